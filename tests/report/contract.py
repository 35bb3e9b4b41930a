"""The plan schema kvplanner.plan/1 as a checker: names, types and the sums that scripts rely on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvplanner.engine.segment import SEGMENT_KINDS

BASES = {"exact", "calibrated", "analytic", "assumed", "measured", "rest"}
STAGES = {
    None, "free_memory_check", "weights", "profile", "kv_cache_sizing", "kv_cache_too_small", "kv_cache_allocation",
    "graph_capture", "compute", "runtime",
}  # fmt: skip

SIZE, NUMBER, TEXT, FLAG, LIST, OBJECT = (int,), (int, float), (str,), (bool,), (list,), (dict,)
NONE = (type(None),)

PLAN = {
    "schema": TEXT, "engine": OBJECT, "model": OBJECT, "options": OBJECT, "load": OBJECT + NONE, "replicas": SIZE,
    "fits": FLAG + NONE, "stage": TEXT + NONE, "summary": TEXT, "warnings": LIST, "devices": LIST,
    "kv_cache": OBJECT + NONE, "limits": OBJECT,
}  # fmt: skip
MODEL = {
    "id": TEXT, "architecture": TEXT, "parameters": SIZE + NONE, "stored_bytes": SIZE + NONE, "weight_format": TEXT,
    "source": OBJECT,
}  # fmt: skip
DEVICE = {
    "index": SIZE, "kind": TEXT, "gpu": TEXT, "role": TEXT, "total_bytes": SIZE + NONE, "cuda_total_bytes": SIZE + NONE,
    "budget_bytes": SIZE + NONE, "free_bytes": SIZE + NONE, "bytes_per_block": SIZE, "segments": LIST,
}  # fmt: skip
SEGMENT = {
    "kind": TEXT, "bytes": SIZE, "low_bytes": SIZE, "high_bytes": SIZE, "in_budget": FLAG, "basis": TEXT,
    "formula": TEXT, "inputs": LIST,
}  # fmt: skip
INPUT = {"name": TEXT, "value": NUMBER + TEXT, "unit": TEXT, "source": TEXT}
KV_CACHE = {
    "available_bytes": SIZE, "available_low_bytes": SIZE, "available_high_bytes": SIZE, "bytes_per_block": SIZE,
    "block_size": SIZE, "num_blocks": SIZE, "tokens": SIZE, "tokens_low": SIZE, "tokens_high": SIZE,
    "max_concurrency": NUMBER, "context_length": SIZE, "bytes_per_token": NUMBER + NONE, "groups": LIST,
    "error": TEXT + NONE, "estimated_max_model_len": SIZE + NONE,
}  # fmt: skip
GROUP = {"kind": TEXT, "layers": SIZE, "block_size": SIZE, "page_bytes": SIZE, "blocks_per_request": SIZE}
LIMITS = {
    "max_context_length": SIZE + NONE, "max_concurrent_requests": SIZE + NONE, "serves_users": SIZE + NONE,
}  # fmt: skip

Types = Mapping[str, tuple[type, ...]]


def fields(value: object, expected: Types, path: str) -> dict[str, object]:
    """Asserts that an object has the named fields of the named types (a boolean is no number)."""
    assert isinstance(value, dict), f"{path} is no object"
    for name, types in expected.items():
        assert name in value, f"{path}.{name} is missing"
        found = value[name]
        right = isinstance(found, types) and (not isinstance(found, bool) or bool in types)
        assert right, f"{path}.{name} is {found!r}"
    return value


def items(value: object, path: str) -> list[tuple[str, object]]:
    """The entries of a list with their paths."""
    assert isinstance(value, list), f"{path} is no list"
    return [(f"{path}[{i}]", item) for i, item in enumerate(value)]


def check_plan(document: object) -> None:
    """Asserts that a document is a plan as the contract says."""
    plan = fields(document, PLAN, "plan")
    assert plan["schema"] == "kvplanner.plan/1"
    assert plan["stage"] in STAGES
    assert (plan["stage"] is not None) == (plan["fits"] is False)
    engine = fields(plan["engine"], {"name": TEXT, "version": TEXT, "rules": TEXT}, "engine")
    model = fields(plan["model"], MODEL, "model")
    fields(model["source"], {"kind": TEXT, "detail": TEXT}, "model.source")
    _options(plan["options"])
    if plan["load"] is not None:
        fields(plan["load"], {"users": SIZE, "prompt_tokens": SIZE, "output_tokens": SIZE}, "load")
    for path, device in items(plan["devices"], "devices"):
        _device(fields(device, DEVICE, path), plan["fits"], path, vllms=engine["name"] == "vllm")
    if plan["kv_cache"] is not None:
        cache = fields(plan["kv_cache"], KV_CACHE, "kv_cache")
        _ordered([cache[f"available{part}_bytes"] for part in ("_low", "", "_high")], "kv_cache.available")
        _ordered([cache[f"tokens{part}"] for part in ("_low", "", "_high")], "kv_cache.tokens")
        for path, group in items(cache["groups"], "kv_cache.groups"):
            fields(group, GROUP, path)
    fields(plan["limits"], LIMITS, "limits")
    _numbers({name: value for name, value in plan.items() if name != "options"}, "plan")


def _options(options: object) -> None:
    assert isinstance(options, dict)
    for name, option in options.items():
        assert "-" not in name, name
        assert "value" in fields(option, {"origin": TEXT}, f"options.{name}")
        assert option["origin"] in {"user", "default", "derived"}


def _device(device: dict[str, object], fits: object, path: str, *, vllms: bool) -> None:
    segments = [fields(s, SEGMENT, p) for p, s in items(device["segments"], f"{path}.segments")]
    kinds = [s["kind"] for s in segments]
    order = [kind for kind in SEGMENT_KINDS if kind in kinds]
    behind = ("cuda_graphs", "fragmentation", "headroom")
    late = [kind for kind in order if kind not in behind]
    assert sorted(map(str, kinds)) == sorted(order), f"{path}: {kinds}"
    vllms_orders = (order, [*late, *(k for k in behind if k in kinds)])
    assert not vllms or kinds in vllms_orders, f"{path}: {kinds}"
    for segment in segments:
        assert segment["basis"] in BASES
        _ordered([segment["low_bytes"], segment["bytes"], segment["high_bytes"]], f"{path}.{segment['kind']}")
        for where, entry in items(segment["inputs"], f"{path}.{segment['kind']}.inputs"):
            fields(entry, INPUT, where)
    total = sum(int(str(s["bytes"])) for s in segments)
    charged = {s["kind"] for s in segments if s["in_budget"]}
    assert not charged & {"driver_reserved", "other", "runtime_outside", "headroom"}, f"{path}: {charged}"
    if fits and "kv_cache" in charged:
        inside = sum(int(str(s["bytes"])) for s in segments if s["in_budget"])
        # SGLang charges its pools without their spare page and their tables of windows.
        beyond = 0 if vllms else int(str(device["total_bytes"])) // 100
        assert inside <= int(str(device["budget_bytes"])) + beyond, f"{path}: {inside} of {device['budget_bytes']}"
    if fits:  # files that are mapped may be larger than the host's memory
        whole = sum(int(str(device[name] or 0)) for name in ("total_bytes", "overflow_bytes"))
        assert total == whole, f"{path}: {total} of {whole}"
        assert not device["overflow_bytes"] or device["kind"] == "host", path
    else:
        assert "headroom" not in kinds or fits is None


def _numbers(value: object, path: str) -> None:
    """Asserts that nothing is negative and that whole sizes are integers, in a document without the options."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            _numbers(item, f"{path}.{name}")
    elif isinstance(value, list):
        for where, item in items(value, path):
            _numbers(item, where)
    elif isinstance(value, int | float):
        assert value >= 0, f"{path} is {value}"
        assert "bytes" not in path.rpartition(".")[2] or isinstance(value, int) or value % 1, f"{path} is {value}"


def _ordered(values: Sequence[object], path: str) -> None:
    numbers = [int(str(v)) for v in values]
    assert numbers == sorted(numbers), f"{path}: {numbers}"
