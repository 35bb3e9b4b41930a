"""Build resources/models: a small index, and one record a line with config, published figures and provenance.

Run through build_catalogue.py. Configs lose only what no reader looks at; lists of module names become rules
where the result is the same to the byte, which is checked here for each model. A quantised repository whose config is
another record's but for its quantisation keeps that alone.
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvplanner.catalog.models import QUANTISATION
from kvplanner.catalog.rows import index_row
from kvplanner.catalog.stored import as_stored, stored_size
from kvplanner.model.families import READERS, read_config

# Keys that say nothing about memory, in any dictionary of a config.
_DROPPED = re.compile(
    r"dropout|token_id|initializer|transformers_version|use_cache|return_dict|^output_(attentions|hidden_states|scores|router_logits)|^(bos|eos|pad)_|_name_or_path"
    r"|auto_map|id2label|label2id|_loss|_coef$|temperature|beam|penalty|diversity|problem_type|^prefix$|early_stop"
    r"|do_sample|is_decoder|is_encoder|torchscript|tokenizer|finetuning|bad_words|suppress|typical|forced_|ngram"
    r"|num_return|^min_length$|^max_length$|remove_invalid|task_spec|exponential|sep_token|tf_legacy|begin_supp"
    r"|use_bfloat16|short_factor|long_factor|transformers.js|long_mscale|short_mscale|^time_step_(min|max|floor|limit|scale|init)|producer"
    r"|observer|mscale|beta_(fast|slow)|_freq_factor|placeholder|image_grid_pinpoints"
)
_FULL_ATTENTION = (
    "the copy leaves the window out; a public start-up log of Mistral-Small-3.1-24B, which has the same decoder, "
    "shows full attention in all layers"
)
_GEMMA_3_LENGTH = (
    "the copy has a context of 163,840, which is another program's; the repository leaves it out, as that of 27B does, "
    "and the class of transformers gives 131,072"
)
_OLMO_3_LENGTH = (
    "the copy has the context of 8,192 that the model was first trained with; its card gives 65,536, and a public "
    "report serves the 7B with 34,048"
)
_LLAMA_2_LENGTH = (
    "the copy is of an early revision, whose context was 2,048; later ones have 4,096, which all of Llama 2 was "
    "trained with, as the 7B has"
)
# The layers of Nemotron 3 Super and Ultra by algorithm.
_NEMOTRON_NVFP4 = {
    "*mixer.experts*": "NVFP4", "*mixer.shared_experts*": "FP8", "*mixer.in_proj": "FP8", "*mixer.out_proj": "FP8",
}  # fmt: skip
_NEMOTRON_FP8 = _NEMOTRON_NVFP4 | {"*mixer.experts*": "FP8"}
_NEMOTRON = (
    "the copy of hf_quant_config.json lists no layers; github:NVIDIA/Model-Optimizer "
    "modelopt_recipes/models/Nemotron-3-Super-120B-A12B/super-nvfp4-max-calib.yaml and github:NVIDIA-NeMo/Nemotron "
    "pull 257 say which: routed experts in NVFP4, shared experts and Mamba projections in FP8, the rest in 16 bits"
)
_NEMOTRON_8 = (
    "the copy of hf_quant_config.json lists no layers; the published size holds only with attention, latent "
    "projections and the MTP block in 16 bits"
)


def _nemotron(algorithms: Mapping[str, str]) -> dict[str, Any]:
    """The side file of a Nemotron 3 of several algorithms."""
    layers = {name: {"quant_algo": algo} for name, algo in algorithms.items()}
    return {"quantization": {
        "quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8", "quantized_layers": layers,
        "exclude_modules": ["mtp*"],
    }}  # fmt: skip


# Facts that a public copy of a config lost, with the reason why they are known; `assumed` ones stay marked as such.
_AMENDED: dict[str, dict[str, Any]] = {
    "meta-llama/Llama-3.1-405B-Instruct-FP8": {
        "modules_to_not_convert": ["re:.*self_attn.*"],
        "why": "the copy's skip list is cut to ten names; the published element count holds only with the "
        "attention of all layers left in bfloat16",
    },
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8": {
        "ignore": ["re:.*self_attn.*", "re:.*shared_expert.*", "re:.*feed_forward\\.(gate|up|down)_proj.*"],
        "why": "the copy has no skip list; the published element count, scales included, holds only with the routed "
        "experts alone in fp8",
    },
    "XiaomiMiMo/MiMo-V2-Flash": {
        "ignored_layers": ["o_proj"],
        "why": "the copy has no skip list; the published element count, scales included, holds (to 576 elements) only "
        "with the output projections left in bfloat16",
    },
    "mistralai/Mistral-Small-4-119B-2603": {
        "fields": {
            "quantization_config": {
                "quant_method": "fp8",
                "activation_scheme": "static",
                "weight_block_size": None,
                "modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector", "lm_head"],
            }
        },
        "why": "the repository is in fp8 and its settings were not seen; those of Devstral 2 give the published count, "
        "with a weight and an input scale per stored matrix",
    },
    "mistralai/Mistral-Small-24B-Instruct-2501": {"fields": {"sliding_window": None}, "why": _FULL_ATTENTION},
    "mistralai/Devstral-Small-2505": {"fields": {"sliding_window": None}, "why": _FULL_ATTENTION},
    "mistralai/Devstral-Small-2507": {"fields": {"sliding_window": None}, "why": _FULL_ATTENTION},
    "mistralai/Mistral-Large-Instruct-2407": {
        "fields": {"sliding_window": None, "max_position_embeddings": 131_072},
        "assumed": ["sliding_window"],
        "why": "the copy leaves the window out; full attention is assumed, as in every Mistral file since 7B v0.2; its "
        "context of 32,768 was corrected to 131,072, as casperhansen/mistral-large-instruct-2407-awq tells",
    },
    "mistralai/Ministral-8B-Instruct-2410": {
        "fields": {"sliding_window": 32768},
        "assumed": ["sliding_window"],
        "why": "the copy leaves the window out; 32,768 in all layers is how github:abhibambhaniya/GenZ-LLM-Analyzer "
        "GenZ/Models/Model_sets/mistral.py quotes the repository's config",
    },
    "microsoft/Phi-3-mini-4k-instruct": {
        "fields": {"sliding_window": None},
        "assumed": ["sliding_window"],
        "why": "the copy leaves the window out; full attention is assumed, as in most Phi-3 files",
    },
    "google/gemma-3-4b-it": {"fields": {"text_config": {"max_position_embeddings": 131_072}}, "why": _GEMMA_3_LENGTH},
    "google/gemma-3-12b-it": {"fields": {"text_config": {"max_position_embeddings": 131_072}}, "why": _GEMMA_3_LENGTH},
    "allenai/Olmo-3-7B-Instruct": {"fields": {"max_position_embeddings": 65_536}, "why": _OLMO_3_LENGTH},
    "allenai/Olmo-3-1125-32B": {"fields": {"max_position_embeddings": 65_536}, "why": _OLMO_3_LENGTH},
    "meta-llama/Llama-2-13b-hf": {"fields": {"max_position_embeddings": 4096}, "why": _LLAMA_2_LENGTH},
    "meta-llama/Llama-2-13b-chat-hf": {"fields": {"max_position_embeddings": 4096}, "why": _LLAMA_2_LENGTH},
    "meta-llama/Llama-2-70b-hf": {"fields": {"max_position_embeddings": 4096}, "why": _LLAMA_2_LENGTH},
    "meta-llama/Llama-2-70b-chat-hf": {"fields": {"max_position_embeddings": 4096}, "why": _LLAMA_2_LENGTH},
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16": {
        "fields": {"num_nextn_predict_layers": 1, "mtp_layers_block_type": ["attention", "moe"]},
        "why": "the copy is another model's of the same shape, which has no MTP block; this one's NVFP4 repository "
        "names one, and the published size holds only with it",
    },
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": {"side_quant": _nemotron(_NEMOTRON_NVFP4), "why": _NEMOTRON},
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": {"side_quant": _nemotron(_NEMOTRON_NVFP4), "why": _NEMOTRON},
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": {"side_quant": _nemotron(_NEMOTRON_FP8), "why": _NEMOTRON_8},
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8": {"side_quant": _nemotron(_NEMOTRON_FP8), "why": _NEMOTRON_8},
    "LiquidAI/LFM2-2.6B": {
        "fields": {"block_auto_adjust_ff_dim": False},
        "why": "the copy is trimmed; the published element count holds only with the stated width left as it is",
    },
}
_NAME_LISTS = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "targets")
# Red Hat's validated models state a minimum of GPU memory, 1.15 times the files and rounded up to 0.1 GB: each of the
# 36 rows whose size is known otherwise lies below.
_ROUNDED_UP = "minimum vRAM"
# How far the sources of corrections.tsv round.
_GRAINS = {_ROUNDED_UP: 43_478_260, "GiB to 2 decimals": 5_368_709, "HF API": 50_000_000}
# Notes on how the facts were gathered, which tell a user nothing about the model.
_ABOUT_FACTS = re.compile(
    r"^(built with|not built here|vision_config was not|llmfit|mixed-precision ModelOpt|modules_to_not_convert in this"
    r"|the published (checkpoint is FP8|count has)|model_type 'deepseek_ref'|embedding model:|DeepSeek-V3-type index"
    r"|computed values count|the file holds no MTP|The file holds no MTP|MLX |FP8 block scales|Corrects the record"
    r"|No MTP block|The original config has the number"
    r"|the index file states|the published parameter count equals|dimensions, sliding window|max_position_embeddings )"
)
# The facts take these for tied with a second copy of the head; their heads are their own (see Reading.tied).
_UNTIED = {"mistralai/Mistral-Small-3.1-24B-Instruct-2503", "mistralai/Mistral-Small-3.2-24B-Instruct-2506"}
# Counts that the facts could not explain, and that the readers do: packed bytes, with or without their scales.
_EXPLAINED = {
    "nvidia/DeepSeek-V4-Flash-NVFP4": "within 0.0001 % in packed elements with scales",
    "nvidia/DeepSeek-V4-Pro-NVFP4": "within 0.0001 % in packed elements with scales",
    "nvidia/MiniMax-M3-NVFP4": "exact in packed elements",
    "nvidia/Qwen3.6-27B-NVFP4": "exact in packed elements",
    "nvidia/Qwen3.6-35B-A3B-NVFP4": "exact in packed elements",
}


def build(sources: Sequence[Path], target: Path) -> int:
    """Write index.json and records.jsonl below `target` from the facts in `sources`; returns the number of ids.

    A later folder's record replaces an earlier one's of the same id.
    """
    by_name = {path.name: path for source in sources for path in sorted(source.glob("*--*.json"))}
    facts = [json.loads(path.read_text(encoding="utf-8")) for path in by_name.values()]
    facts = [fact for fact in facts if _has_reader(fact)]
    # A base before what is quantised from it, so that a record refers to one that is complete.
    facts.sort(key=lambda f: (f["family"].lower(), bool(_quantisation(f)), f["id"].lower()))
    sizes = _published(sources)
    target.mkdir(parents=True, exist_ok=True)
    rows: list[list[Any]] = []
    lines: list[bytes] = []
    offset = 0
    by_id: dict[str, list[Any]] = {}
    configs: dict[str, str] = {}
    alike: dict[str, int] = {}
    for fact in facts:
        record = _record(fact, sizes.get(fact["id"], []))
        row = index_row(
            record, family=fact["family"], licence=fact["license"], released=fact["released"], offset=offset
        )
        line = _json(_referring(record, configs)).encode() + b"\n"
        by_id[fact["id"]] = row
        alike[fact["id"]] = _size_of_alike(record)
        rows.append(row)
        lines.append(line)
        offset += len(line)
    rows += _same_shapes(sources, by_id, alike)
    index = {"schema": "kvplanner.models/1", "models": rows}
    body = ",\n".join(_json(row) for row in index["models"])
    (target / "index.json").write_text(f'{{"schema":"{index["schema"]}","models":[\n{body}\n]}}\n', encoding="utf-8")
    (target / "records.jsonl").write_bytes(b"".join(lines))
    return len(rows)


def _published(sources: Sequence[Path]) -> dict[str, list[dict[str, Any]]]:
    """Published sizes by id, but for those that are rounded to an unknown grain or count other files too."""
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for source in sources:
        path = source / "published-sizes.jsonl"
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            row = json.loads(line)
            if not row.get("note"):
                found[row["id"]].append(_centred(row | {"bytes": row["stored_bytes"]}))
        for row in _tsv(source / "corrections.tsv"):
            if row["id"] not in found:
                grain = next(size for words, size in _GRAINS.items() if words in row["source"])
                size = {"bytes": int(row["published_bytes"]), "tolerance": grain, "source": row["source"]}
                found[row["id"]].append(_centred(size))
    return found


def _centred(row: dict[str, Any]) -> dict[str, Any]:
    """A published size as the middle of what it may be rounded from."""
    return row | {"bytes": row["bytes"] - row["tolerance"]} if _ROUNDED_UP in row["source"] else row


def _referring(record: dict[str, Any], configs: dict[str, str]) -> dict[str, Any]:
    """A record that names the one whose config it shares but for the quantisation, where there is one."""
    plain = {key: value for key, value in record["config"].items() if key not in QUANTISATION}
    text = _json(plain)
    base = configs.setdefault(text, record["id"])
    quantisation = {key: value for key, value in record["config"].items() if key in QUANTISATION}
    if base == record["id"] or list(record["config"])[: len(plain)] != list(plain):
        return record
    return {"id": record["id"], "config_of": base, "config": quantisation, **{
        key: value for key, value in record.items() if key not in ("id", "config")
    }}  # fmt: skip


def _quantisation(fact: Mapping[str, Any]) -> Any:
    found = fact.get("hf_quant_config")
    return found or next((fact["config"][key] for key in QUANTISATION if key in fact["config"]), None)


def _has_reader(fact: Mapping[str, Any]) -> bool:
    """Whether an architecture is modelled; a model without a reader is left out, by name."""
    names = fact["config"].get("architectures")
    if names is None or names[0] in READERS:  # params.json of Mistral's own format names none
        return True
    print(f"no reader: {fact['id']}")
    return False


def _record(fact: Mapping[str, Any], sizes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is kept of one model."""
    config = trimmed(fact["config"])
    side = fact.get("hf_quant_config")
    _check_trimmed(fact, config, side)
    amended = _AMENDED.get(fact["id"])
    if amended:
        config = _merged(config, amended.get("fields", {}))
        for name in ("modules_to_not_convert", "ignore", "ignored_layers"):
            if name in amended:
                config["quantization_config"].setdefault(name, []).extend(amended[name])
        side = amended.get("side_quant", side)
    config, side = _with_rules(fact["id"], config, side)
    extra = fact.get("stored_but_not_built") if fact["id"] not in _UNTIED else None
    record = {
        "id": fact["id"],
        "config": config,
        "side_quant": side,
        "kind": fact["config_kind"],
        "source": fact["source"],
        "defaults": [*fact.get("fields_from_class_defaults", ()), *(amended or {}).get("assumed", ())],
        "params": fact["params"],
        "params_source": fact["params_source"] if fact["params"] else None,
        "bytes": fact["safetensors_total_bytes"],
        "bytes_source": fact.get("total_bytes_source") if fact["safetensors_total_bytes"] else None,
        "agreement": _EXPLAINED.get(fact["id"], fact.get("agreement")),
        "extra": [extra["elements"], extra["what"]] if extra else None,
        "size": _nearest(sizes, [_centred(dict(row)) for row in fact.get("published_size") or ()]),
        "absent": _absent(fact["notes"]),
        "derived": bool(fact.get("derived")) or None,
        "confirmed": _confirmed(fact),
        "amended": amended["why"] if amended else None,
        "notes": [note for note in fact["notes"] if not _ABOUT_FACTS.match(note)],
        "gated": fact["gated"],
    }
    return {key: value for key, value in record.items() if value not in (None, [])}


def _nearest(*rows: Sequence[Mapping[str, Any]]) -> list[Any] | None:
    """The published size that is rounded least: bytes, how far it is rounded, and who says so."""
    known = sorted((row["tolerance"], row["bytes"], row["source"]) for part in rows for row in part)
    return [known[0][1], known[0][0], known[0][2]] if known else None


def _absent(notes: Iterable[str]) -> list[str]:
    """What the config counts and the files lack."""
    text = " ".join(notes)
    return [part for part, words in (("mtp", "holds no MTP block"), ("tower", "the file lacks")) if words in text]


def _confirmed(fact: Mapping[str, Any]) -> str | None:
    """What agrees with a derived scheme: element count, published size, or nothing."""
    return str(fact["confirmed_by"]).partition(" (")[0] if fact.get("derived") and fact.get("confirmed_by") else None


def _merged(config: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """A config with some fields, also of its parts, replaced."""
    result = dict(config)
    for name, value in fields.items():
        part = result.get(name)
        result[name] = _merged(part, value) if isinstance(part, dict) and isinstance(value, dict) else value
    return result


def _namesake(model: str, base: str, by_id: Mapping[str, list[Any]]) -> str:
    """The record that a mirror is called after, when it has the size and format of the one it is likened to."""
    name = model.rpartition("/")[2].lower().removeprefix("meta-")
    for found, row in by_id.items():
        same = found.rpartition("/")[2].lower().removeprefix("meta-") == name
        if same and row[2:4] == by_id[base][2:4] and row[5] == by_id[base][5]:
            return found
    return base


def _size_of_alike(record: dict[str, Any]) -> int:
    """What an id of the same tensors stores, as far as the record tells."""
    spec, inventory = read_config(record["config"], where=record["id"], side_quant=record.get("side_quant"))
    spec, inventory, _ = as_stored(record, spec, inventory)
    return stored_size(record, spec.quantization, inventory, own=False).value


def _same_shapes(sources: Sequence[Path], by_id: Mapping[str, list[Any]], alike: Mapping[str, int]) -> list[list[Any]]:
    """Ids whose dimensions and element count equal those of a record; what a list likens to another id of the list
    is likened to that one's record.
    """
    listed = {row["id"]: row for source in sources for row in _tsv(source / "same-shape.tsv")}
    # A hub takes ids that differ in case alone for one.
    known = {model.lower() for model in by_id}
    rows = []
    for row in sorted(listed.values(), key=lambda row: row["id"].lower()):
        base = row["same_shape_as"]
        while base not in by_id and base in listed:
            base = listed[base]["same_shape_as"]
        if base not in by_id or row["id"].lower() in known:
            continue
        base = _namesake(row["id"], base, by_id)
        known.add(row["id"].lower())
        entry = [row["id"], *by_id[base][1:9], 1, base, -1]
        entry[4], entry[7], entry[8] = alike[base], None, None
        if row["quantised_repository"] == "yes" and entry[5] is None:
            raise ValueError(f"{row['id']} is quantised, and how was not seen: give it a record")
        rows.append(entry)
    return rows


def _tsv(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return sorted(csv.DictReader(file, delimiter="\t"), key=lambda row: row["id"].lower())


def trimmed(value: Any) -> Any:
    """A config without the keys that say nothing about memory, at any depth; a classifier's classes are counted."""
    if isinstance(value, dict):
        classifies = any(str(name).endswith("Classification") for name in value.get("architectures") or ())
        kept = ("id2label",) if classifies else ()
        return {k: trimmed(v) if k not in kept else v for k, v in value.items() if k in kept or not _DROPPED.search(k)}
    return value


def _check_trimmed(fact: Mapping[str, Any], config: dict[str, Any], side: dict[str, Any] | None) -> None:
    """Raise ValueError when trimming a config changed what is read from it."""
    whole, part = (read_config(c, where=fact["id"], side_quant=side) for c in (fact["config"], config))
    if whole[0]._replace(defaulted=()) != part[0]._replace(defaulted=()) or whole[1] != part[1]:
        raise ValueError(f"{fact['id']}: the trimmed config reads differently")


def _with_rules(model: str, config: dict[str, Any], side: dict[str, Any] | None) -> tuple[dict[str, Any], Any]:
    """Long lists and maps of module names as globs, where reading both gives the same."""
    before = read_config(config, where=model, side_quant=side)
    short, short_side = _shortened(config), _shortened(side)
    if read_config(short, where=model, side_quant=short_side) == before:
        return short, short_side
    print(f"kept in full: {model}")
    return config, side


def _shortened(value: Any) -> Any:
    """A copy whose name lists and quantized_layers are rules."""
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for key, item in value.items():
        if key in _NAME_LISTS and isinstance(item, list):
            result[key] = _globs(item)
        elif key == "quantized_layers":
            algos: dict[str, list[str]] = defaultdict(list)
            for name, how in item.items():
                algos[_json(how)].append(name)
            result[key] = {name: json.loads(how) for how, names in algos.items() for name in _globs(names)}
        else:
            result[key] = _shortened(item)
    return result


def _globs(names: Iterable[str]) -> list[str]:
    """Names that differ only in layer and expert numbers as one glob each; norms need no naming."""
    result: dict[str, None] = {}
    for name in names:
        if re.search(r"norm(\.weight)?$|e_score_correction_bias$|conv1d$", name):
            continue
        if not name.startswith("re:"):
            name = re.sub(r"\blayers\.\d+", "layers.*", re.sub(r"\bexperts\.\d+", "experts.*", name))
        result[name] = None
    return list(result)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
