"""Why a stage of SGLang's start-up fails or may fail, as clauses with this plan's figures."""

from __future__ import annotations

from collections.abc import Callable

from kvplanner.engine.sglang.startup.checks import Check
from kvplanner.engine.sglang.startup.rank import Rank
from kvplanner.engine.sglang.startup.replica import Failure, Replica
from kvplanner.engine.sglang.startup.window import FractionWindow
from kvplanner.engine.verdict import Bytes, Figures, Reason

_FLAG = "--mem-fraction-static"
_REFUSED = {
    "states": "no slot of recurrent state fits into what {flag} {share} leaves on {gpu}",
    "weights": "the loaded weights leave too little for a KV cache under {flag} {share} on {gpu}",
    "tokens": "not one page of KV cache fits into what {flag} {share} leaves on {gpu}",
    "window": "the sliding-window pool cannot hold one request under {flag} {share} on {gpu}",
    "window_cap": "the sliding-window pool for all requests leaves no room for the full one on {gpu}",
    "requests": "the slots of recurrent state are too few for one request under {flag} {share} on {gpu}",
}
_LACKS = {
    "weights": "loading the weights lacks {missing} on {gpu}",
    "kv_cache_allocation": "the request table and the pools lack {missing} on {gpu}",
    "graph_capture": "capturing CUDA graphs lacks {missing} on {gpu}: the slack is too small",
    "runtime": "serving a full chunk lacks {missing} on {gpu}: the slack is too small",
}
_MAY_LACK = {
    "weights": "loading the weights may lack {most} on {gpu}",
    "kv_cache_allocation": "the request table and the pools may lack {most} on {gpu}",
    "graph_capture": "capturing CUDA graphs may lack {most} of slack on {gpu}",
    "runtime": "serving a full chunk may lack {most} of slack on {gpu}",
}


def failure(made: Replica, found: Failure, window: Callable[[], FractionWindow]) -> Reason:
    """What does not fit, where, by how much, and which fractions would do."""
    rank = made.ranks[found.rank]
    figures: Figures = {"gpu": _gpu(rank), "share": f"{made.settings.fraction:g}", "flag": _FLAG}
    if found.missing_bytes > 0 or found.refusal is None:
        figures = {**figures, "missing": Bytes(found.missing_bytes)}
    text = _REFUSED[found.refusal.kind] if found.refusal is not None else _LACKS[found.stage]
    if found.refusal is not None and found.refusal.kind == "weights" and found.missing_bytes > 0:
        text += ": {missing} short"
    code = f"pools_{found.refusal.kind}" if found.refusal is not None else found.stage
    if found.stage == "weights":
        return Reason(code, text, figures)
    state = made.layouts[0].state
    if code == "pools_requests" and made.settings.states.max_slots is not None and state is not None:
        text += "; --max-mamba-cache-size {slots} is the least that serves one"
        return Reason(code, text, {**figures, "slots": state.per_request * made.settings.parallel.attention_dp})
    ends = window()
    return Reason(code, text + _advice(found, ends), {**figures, **_ends(ends)})


def _advice(found: Failure, window: FractionWindow) -> str:
    """Which way to move the fraction: up where pools are lacking, down where what lives beside them is."""
    if not window.open:
        return "; no fraction works" if window.least is None or window.most is None else (
            "; no fraction works: {least} is the least for the pools and {largest} the largest for the rest"
        )  # fmt: skip
    if found.refusal is not None:
        return "; {least} is the least that works, {largest} the largest"
    return "; {largest} is the largest that works, {least} the least"


def _ends(window: FractionWindow) -> Figures:
    out: dict[str, float] = {}
    if window.least is not None:
        out["least"] = window.least
    if window.most is not None:
        out["largest"] = window.most
    return out


def doubt(rank: Rank, check: Check) -> Reason:
    """What a stage may lack at the end of its band."""
    return Reason(check.stage, _MAY_LACK[check.stage], {"gpu": _gpu(rank), "most": Bytes(check.most)})


def small_pools(made: Replica) -> Reason:
    """The pools may be missing at the lower end of the band."""
    del made
    return Reason("pools_low", "there may be no pools at the lower end of the range")


def _gpu(rank: Rank) -> str:
    return f"GPU {rank.device.index}"
