"""cache: from a model and settings to groups, blocks and tokens, without the caches that a second question meets."""

from __future__ import annotations

from tests.bench import Row, cpu_ms

DENSE_BUDGET_MS = 1.0
ANY_BUDGET_MS = 3.0
MEMORY = 40 << 30


def run() -> list[Row]:
    """80 dense layers, and the slowest model of the catalogue."""
    from kvplanner.catalog import gpus, models
    from kvplanner.engine.request import PlanRequest
    from kvplanner.engine.shared.identity import forget
    from kvplanner.engine.vllm.gpu import gpu_of
    from kvplanner.engine.vllm.kv import layout as kv_layout
    from kvplanner.engine.vllm.kv import sizing as kv_sizing
    from kvplanner.engine.vllm.settle import settle as defaults
    from kvplanner.errors import PlannerError

    machine = gpus.machine("8xH100")

    def milliseconds(name: str, repeat: int | None = None, fp8: bool = False) -> float:
        model = models.load(name)
        options = {"kv_cache_dtype": "fp8"} if fp8 else {}
        settings = defaults.resolve(PlanRequest(model, machine, options=options))[0]
        stages, gpu = ((0, model.spec.num_layers),), gpu_of(machine.devices[0].gpu)

        def plan() -> None:
            forget()
            layout = kv_layout.plan_cache(model.spec, settings, gpu, stages)
            kv_sizing.size(layout, (MEMORY,))

        return cpu_ms(plan, repeat=repeat, inner=5)

    slowest, worst = "", 0.0
    for entry in models.index():
        try:
            took = milliseconds(entry.id, repeat=3)
        except PlannerError:
            continue
        if took > worst:
            slowest, worst = entry.id, took
    dense = "meta-llama/Llama-3.1-70B-Instruct"
    return [
        Row("80 dense layers", milliseconds(dense), budget=DENSE_BUDGET_MS),
        Row("80 dense layers, 8-bit cache", milliseconds(dense, fp8=True), budget=ANY_BUDGET_MS),
        Row("slowest of the catalogue", milliseconds(slowest), budget=ANY_BUDGET_MS, note=slowest),
    ]
