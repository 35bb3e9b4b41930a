"""A solver's answer is that of trying everything."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.command import role_option
from kvplanner.engine.option import OptionValue, Role
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.errors import BadInput, PlannerError
from kvplanner.report.schema import solved_to_json
from kvplanner.report.solved import solved_lines
from kvplanner.solve.solver import ASKED, Asked, solve
from kvplanner.solve.trials import largest, works
from tests.cli.kit import Terminal

LLAMA, GEMMA, HYBRID = "meta-llama/Llama-3.1-8B-Instruct", "google/gemma-3-27b-it", "Qwen/Qwen3.5-27B"
SMALL = Load(4, 1500, 500)


def asked(
    model: str,
    gpu: str,
    options: dict[str, OptionValue] | None = None,
    load: Load | None = None,
    version: str | None = None,
    engine_: str = "vllm",
    weight_format: str | None = None,
) -> PlanRequest:
    return PlanRequest(
        models.load(model), gpus.machine(gpu), engine_, version, options or {}, load, weight_format=weight_format
    )


def named(request: PlanRequest, role: Role) -> str:
    """The engine's option of a role."""
    option = role_option(engine(request.engine), request.version, role)
    assert option is not None
    return option.name


def plan(request: PlanRequest) -> Plan | None:
    try:
        return engine(request.engine).plan(request)
    except PlannerError:
        return None


CONTEXTS = [
    asked(LLAMA, "RTX 4090"),
    asked(GEMMA, "H100"),
    asked(HYBRID, "H100", {"max_num_seqs": 64, "max_model_len": 16384}),
    asked(LLAMA, "RTX 4090", {"enable_chunked_prefill": False}),
    asked(LLAMA, "RTX 4090", version="0.6.6"),  # chunks its prompts by itself above 32k tokens
    asked("deepseek-ai/DeepSeek-V2-Lite", "RTX 4090,RTX 3090"),
    asked("Qwen/Qwen3-30B-A3B", "2xL40S", {"pipeline_parallel_size": 2}),
    asked(LLAMA, "RTX 4090", {"mem_fraction_static": 0.8}, engine_="sglang"),
    asked(HYBRID, "2xL40S", {"max_running_requests": 32}, engine_="sglang"),  # slots of states before tokens
    asked("openai/gpt-oss-20b", "RTX 4090", {"chunked_prefill_size": 8192}, engine_="sglang"),  # pools of windows
    asked(LLAMA, "RTX 4090", {"fit": "off", "n_gpu_layers": "99"}, engine_="llamacpp", weight_format="GGUF Q8_0"),
    asked(HYBRID, "RTX 4090", {"fit": "off", "n_gpu_layers": "99"}, engine_="llamacpp", weight_format="GGUF Q4_K_M"),
    asked(GEMMA, "2xRTX 4080", {"ubatch_size": 2048}, engine_="llamacpp", weight_format="GGUF Q4_K_M"),  # --fit moves
    asked("Qwen/Qwen3-30B-A3B", "RTX 4080", engine_="ollama", weight_format="GGUF Q4_K_M"),
]


@pytest.mark.slow
@pytest.mark.parametrize("request_", CONTEXTS, ids=lambda r: f"{r.engine}-{r.model.id}-{r.version}-{len(r.options)}")
def test_the_longest_context_is_that_of_trying_all(request_: PlanRequest) -> None:
    limit = request_.model.spec.context_length or 0
    found, option = solve("context", request_), named(request_, "context")

    @cache
    def planned(length: int) -> Plan | None:
        return plan(request_._replace(options={**request_.options, option: length}))

    # Another grid than the search has; llama.cpp fits its layers anew at each length.
    step = limit // (97 if request_.engine in ("vllm", "sglang") else 31)
    for surely, value in ((False, found.value), (True, found.sure_value)):
        scanned = max((n for n in range(limit, 0, -step) if works(planned(n), surely=surely)), default=None)
        if value is None:
            assert scanned is None
            continue
        assert isinstance(value, int)
        assert works(planned(value), surely=surely)
        assert scanned is None or scanned <= value
        for more in (1, 2, 7, 16, 64, 500, 3000):
            assert value + more > limit or not works(planned(value + more), surely=surely), more


@pytest.mark.slow
@pytest.mark.parametrize(
    "request_",
    [
        asked(LLAMA, "RTX 4090", {"max_model_len": 8192}),
        asked(GEMMA, "H100", {"max_model_len": 16384}),
        asked(HYBRID, "H100", {"max_num_seqs": 64, "max_model_len": 16384}),
        asked(LLAMA, "RTX 4090", {"context_length": 8192, "max_running_requests": 150}, engine_="sglang"),
        asked(HYBRID, "H100", {"context_length": 16384, "max_running_requests": 24}, engine_="sglang"),
        asked(LLAMA, "RTX 4090", {"ctx_size": 65_536, "parallel": 8}, engine_="llamacpp", weight_format="GGUF Q8_0"),
        asked(LLAMA, "RTX 4090", {"num_ctx": 32_768, "num_parallel": 4}, engine_="ollama", weight_format="GGUF Q8_0"),
    ],
    ids=lambda r: f"{r.engine}-{r.model.id}",
)
def test_most_users_is_that_of_trying_all(request_: PlanRequest) -> None:
    request = request_._replace(load=Load(1, 6000, 1000))
    found = solve("users", request)
    plans = {users: plan(request._replace(load=Load(users, 6000, 1000))) for users in range(1, 200)}
    for surely, value in ((False, found.value), (True, found.sure_value)):
        assert value == max((n for n, made in plans.items() if works(made, surely=surely)), default=None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "gpu", "engine_"),
    [(LLAMA, "H100", "vllm"), (HYBRID, "2xL40S", "vllm"), (GEMMA, "H100", "vllm"),
     (LLAMA, "H100", "sglang"), (HYBRID, "2xL40S", "sglang"), ("openai/gpt-oss-20b", "H100", "sglang")],
)  # fmt: skip
def test_the_smallest_share_is_that_of_trying_all(model: str, gpu: str, engine_: str) -> None:
    request = asked(model, gpu, load=SMALL, engine_=engine_)
    request = request._replace(options={named(request, "context"): 16384, named(request, "max_requests"): 32})
    found, option = solve("utilisation", request), named(request, "budget_share")
    plans = {
        share: plan(request._replace(options={**request.options, option: share}))
        for share in (n / 100 for n in range(5, 100))
    }
    for surely, value in ((False, found.value), (True, found.sure_value)):
        assert value == min((share for share, made in plans.items() if works(made, surely=surely)), default=None)
    assert found.plan is None or found.plan.sure


def test_the_fewest_gpus_carry_the_load_and_fewer_do_not() -> None:
    request = asked("meta-llama/Llama-3.3-70B-Instruct", "H100", load=Load(16, 7000, 1000))
    found = solve("gpus", request)
    assert isinstance(found.sure_value, int)
    assert found.plan is not None
    assert found.plan.sure
    assert len(found.plan.devices) == found.sure_value
    for tp, pp in ((1, 1), (2, 1), (1, 2)):
        machine = gpus.machine(f"{tp * pp}xH100")
        if tp * pp < found.sure_value:
            other = request._replace(
                machine=machine, options={"tensor_parallel_size": tp, "pipeline_parallel_size": pp}
            )
            assert not works(plan(other), surely=True)


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_the_fewest_gpus_are_a_machine_that_is_built(name: str) -> None:
    """More than a node holds are two nodes, with tensors within each and a stage on each: no thirteen stages."""
    request = asked("meta-llama/Llama-3.3-70B-Instruct", "RTX 4090", load=SMALL, engine_=name)
    found = solve("gpus", request)
    assert found.sure_value == 16
    assert found.request is not None
    tp, pp = (found.request.options[named(request, role)] for role in ("tensor_parallel", "pipeline_parallel"))
    assert (tp, pp) == (8, 2)
    shown = solved_lines(engine(name).plan(request), found)[0]
    assert "383.81 GiB in all" in shown


def test_the_best_split_carries_most() -> None:
    request = asked("Qwen/Qwen3-30B-A3B", "4xA100-SXM4-80GB", load=Load(1000, 7000, 1000))
    found = solve("tp", request)
    assert found.plan is not None
    best = found.plan.limits.sure_serves_users or 0
    for tp, pp, dp in ((1, 1, 1), (2, 1, 1), (4, 1, 1), (1, 1, 4), (2, 1, 2), (2, 2, 1), (1, 4, 1)):
        sizes: dict[str, OptionValue] = {
            "tensor_parallel_size": tp, "pipeline_parallel_size": pp, "data_parallel_size": dp,
        }  # fmt: skip
        other = plan(request._replace(options=sizes))
        assert other is not None
        assert (other.limits.sure_serves_users or 0) <= best, sizes


def test_the_best_mix_of_llama_cpp_is_a_gguf_one_and_a_dynamic_one_only_where_its_band_fits() -> None:
    request = PlanRequest(models.load("Qwen/Qwen3-30B-A3B"), gpus.machine("RTX 4060 Ti 16GB"), "llamacpp", None,
                          {"ctx_size": 8192, "n_gpu_layers": 99})  # fmt: skip
    found = solve("format", request)
    assert found.plan is not None
    assert found.plan.sure
    for value in (found.value, found.sure_value):
        assert str(value).startswith("GGUF ")
        tried = plan(request._replace(weight_format=str(value)))
        assert tried is not None
        assert tried.fits
        assert tried.sure == (value == found.sure_value)
    larger = solve("format", request._replace(machine=gpus.machine("H200")))
    assert larger.value in ("GGUF BF16", "GGUF F16")


def test_the_format_is_the_largest_that_works() -> None:
    request = asked("Qwen/Qwen3-32B", "RTX 5090", {"max_model_len": 4096}, Load(2, 1500, 500))
    found = solve("format", request)
    assert found.plan is not None
    assert found.plan.sure
    assert found.value not in (None, "bfloat16")
    wider = plan(request._replace(weight_format="FP8"))
    assert wider is None or not wider.sure or found.value == "FP8"


def test_where_the_models_own_length_does_not_fit_that_of_the_load_is_set() -> None:
    found = solve("users", asked(LLAMA, "RTX 4090", load=Load(1, 3500, 500)))
    assert found.plan is not None
    assert found.plan.request.options["max_model_len"] == 4000
    assert found.plan.limits.sure_serves_users == found.sure_value
    assert any(change.option == "max_model_len" for change in found.changes)


def test_what_keeps_an_answer_from_being_sure_is_named() -> None:
    found = solve("users", asked(LLAMA, "H100", {"gpu_memory_utilization": 0.99}, Load(1, 3500, 500)))
    assert found.sure_value is None
    assert found.value
    assert found.bound_by == "free_memory_check"


@pytest.mark.parametrize("what", ASKED)
def test_every_question_has_an_answer_in_text_and_json(terminal: Terminal, what: Asked) -> None:
    words = ("plan", "Llama-3.1-8B-Instruct", "--gpu", "H100", "--load", "8@1500+500", "--solve", what)
    solved = json.loads(terminal(*words, "--json").out)["solved"]
    assert solved["asked"] == what
    assert solved["sure_value"] is not None
    assert solved["bound_by"]
    assert (
        terminal(*words)
        .out.splitlines()[1]
        .startswith(
            {
                "context": "Longest",
                "users": "Most",
                "utilisation": "Smallest",
                "gpus": "Fewest",
                "tp": "Best",
                "format": "Largest",
            }[what]
        )
    )


def test_users_need_a_load() -> None:
    with pytest.raises(BadInput, match="--load"):
        solve("users", asked(LLAMA, "H100"))


@pytest.mark.parametrize(
    ("does", "most"),
    [(lambda n: n < 40, 39), (lambda n: n < 10 or 50 <= n < 70, 69), (lambda n: False, None), (lambda n: True, 100)],
)
def test_a_gap_hides_nothing_above(does: Callable[[int], bool], most: int | None) -> None:
    assert largest(1, 100, does, [20]) == most


def test_experts_are_spread_in_sglang_too() -> None:
    """Qwen3-235B in blocks of 8 bits: eight ranks cannot cut its experts (1,536 / 8 is no whole block)."""
    request = PlanRequest(
        models.load("Qwen/Qwen3-235B-A22B-FP8"), gpus.machine("8xH100"), "sglang", load=Load(100, 3000, 1000)
    )
    found = solve("tp", request)
    assert found.sure_value == "TP 8, PP 1, DP 1, EP"
    assert found.request is not None
    assert found.request.options["ep_size"] == 8


def test_where_several_splits_carry_the_load_the_one_without_stages_is_best() -> None:
    """vLLM's guide: one GPU where the model fits, more of a tensor within a node, stages beyond it."""
    small = solve("tp", asked(LLAMA, "4xH100", load=Load(8, 3000, 1000)))
    assert small.sure_value == "TP 1, PP 1, DP 4"
    large = solve("tp", asked("meta-llama/Llama-3.3-70B-Instruct", "4xH100", load=Load(8, 3000, 1000)))
    assert large.sure_value == "TP 4, PP 1, DP 1"


@pytest.mark.parametrize(
    ("request_", "what", "option", "value"),
    [
        # 1,024 sequences want more blocks of states than there are: as many as the load has users do.
        (asked(HYBRID, "H100", load=Load(16, 8000, 1000)), "context", "max_num_seqs", 16),
        (asked(HYBRID, "H100", load=Load(16, 8000, 1000)), "tp", "max_num_seqs", 16),
        # Four slots answer four users, one answers one.
        (asked(LLAMA, "RTX 4090", {}, Load(8, 3000, 1000), None, "llamacpp", "GGUF Q4_K_M"), "gpus", "parallel", 8),
        (asked(LLAMA, "RTX 4090", {}, Load(8, 3000, 1000), None, "ollama", "GGUF Q4_K_M"), "gpus", "num_parallel", 8),
        # A model's own length is no part of the question which format holds the load.
        (asked("meta-llama/Llama-3.3-70B-Instruct", "2xRTX 4090", load=Load(2, 1500, 500)), "format", "max_model_len",
         2000),
    ],
)  # fmt: skip
def test_what_the_user_did_not_set_is_set_for_the_load(
    request_: PlanRequest, what: Asked, option: str, value: int
) -> None:
    found = solve(what, request_)
    assert found.sure_value is not None
    assert found.request is not None
    assert found.request.options[option] == value
    assert option in {change.option for change in found.changes}


def test_more_slots_are_users_of_ollama_and_fewer_sequences_of_a_hybrid() -> None:
    ollama = solve("users", asked(LLAMA, "RTX 4090", {}, Load(1, 3000, 1000), None, "ollama", "GGUF Q4_K_M"))
    assert isinstance(ollama.sure_value, int)
    assert ollama.sure_value > 8
    hybrid = solve("users", asked(HYBRID, "H100", load=Load(1, 8000, 1000)))
    assert isinstance(hybrid.sure_value, int)
    assert hybrid.sure_value > 8
    assert hybrid.request is not None
    assert hybrid.request.options["max_num_seqs"] == hybrid.sure_value


@pytest.mark.parametrize(
    ("model", "gpu", "what", "said"),
    [
        (LLAMA, "RTX 4090", "context", "beyond it start-up fails or may fail when the KV cache is sized"),
        (LLAMA, "H100", "context", "the model allows no more"),
        (LLAMA, "RTX 4090", "users", "the KV cache holds no more"),
        (LLAMA, "H100", "utilisation", "below it the KV cache holds too little"),
        ("meta-llama/Llama-3.3-70B-Instruct", "H100", "gpus", "with fewer start-up fails or may fail"),
        (LLAMA, "H100", "gpus", "none are fewer"),
        (LLAMA, "2xH100", "tp", "the whole load is carried"),
        (LLAMA, "H100", "format", "the weights as they are stored"),
        ("Qwen/Qwen3-32B", "RTX 4090", "context", "none works; start-up fails while loading the weights"),
        (LLAMA, "RTX 4090", "utilisation", "none works; the KV cache holds too little"),
        ("meta-llama/Llama-3.3-70B-Instruct", "RTX 4060 Ti 16GB", "format", "none works; start-up fails while loading"),
    ],
)
def test_what_binds_an_answer_is_said_of_it(model: str, gpu: str, what: Asked, said: str) -> None:
    users = 64 if (gpu, what) == ("RTX 4090", "utilisation") else 8
    request = asked(model, gpu, {"max_model_len": 8192} if what == "utilisation" else {}, Load(users, 3000, 1000))
    found = plan(request)
    assert found is not None
    assert said in solved_lines(found, solve(what, request))[0]


def test_fewest_gpus_of_the_models_own_context_come_with_a_shorter_one_that_needs_fewer() -> None:
    """A 70B's 131,072 tokens take sixteen cards of 24 GB, which nobody asked for: half of them hold 36,864."""
    request = asked("meta-llama/Llama-3.3-70B-Instruct", "RTX 4090")
    found = solve("gpus", request)
    assert found.sure_value == 16
    assert found.plan is not None
    assert found.plan.kv_cache is not None
    assert found.plan.kv_cache.context_length == 131_072
    assert found.shorter is not None
    length, count = found.shorter
    assert (length >= 8192, count) == (True, 8)
    at_length = solve("gpus", request._replace(options={"max_model_len": length}))
    assert (at_length.sure_value, at_length.shorter) == (count, None)
    told = solved_lines(found.plan, found)
    assert told[1].strip() == f"at the model's own context of 131,072; with {length:,}: 8 GPUs"
    made = solved_to_json(found)
    assert (made["context_length"], made["shorter"]) == (131_072, {"context_length": length, "value": count})


def test_where_a_shorter_context_needs_as_many_gpus_nothing_is_said_of_it() -> None:
    found = solve("gpus", asked("meta-llama/Llama-3.3-70B-Instruct", "H200"))
    assert found.sure_value is not None
    assert found.shorter is None
