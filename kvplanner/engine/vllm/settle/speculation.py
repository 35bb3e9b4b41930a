"""What --speculative-config comes to: the draft method and its tokens, and what is refused of a draft model.

Rules: config/speculative.py and v1/spec_decode/draft_model.py of vLLM 0.33.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvplanner.engine.option import OptionValue
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.shared.ledger import Book
from kvplanner.engine.vllm.quirks import quirks
from kvplanner.engine.vllm.releases import spelled
from kvplanner.engine.vllm.settings import Speculative, Version
from kvplanner.engine.vllm.settle import check as defaults_check
from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.spec import ModelSpec
from kvplanner.record import NamedTuple

_FLAG: Final = "--speculative-config"
_METHODS: Final = "draft_model, eagle, eagle3 or mtp"
_NGRAM: Final = ("ngram", "[ngram]")
# Draft models ran on the engine that 0.10 dropped (issue 21797); the next one refused them still in 0.13 (issue 31883)
# and runs them with pull request 24322, in 0.15. Whether 0.14 has it is not known.
_DROPPED, _BACK = (10, 0), (14, 0)
# Beside a model with towers they were refused in 0.15 (its draft_model.py) and in 0.20.1 (issue 42005).
_BESIDE_TOWERS: Final = (21, 0)
# Pull request 38174; seen in 0.25.1.
_OTHER_VOCABULARY: Final = (25, 0)


class Speculation(NamedTuple):
    """method None: no speculative decoding. inferred: why the method is what it is, "" when it was given."""

    method: str | None
    tokens: int
    inferred: str = ""


def settle_speculative(request: PlanRequest, book: Book, tp: int, version: Version) -> Speculative:
    """The method and its tokens, as the engine settles them. Raises as `speculation` and `check_draft` do."""
    spec, draft = request.model.spec, request.draft.spec if request.draft else None
    found = speculation(book.options, spec, draft)
    book.settle(
        "speculative_method", found.method, found.inferred or "none", "derived" if found.inferred else "default"
    )
    book.settle("speculative_model", None, "none")
    book.settle("num_speculative_tokens", found.tokens, "one token" if found.method else "none")
    book.settle("draft_tensor_parallel_size", tp if found.method else None, "as the model is split")
    book.settle("use_heterogeneous_vocab", False, "both have the same vocabulary")
    book.warnings += check_draft(book.options, spec, draft, found, tp, version)
    return Speculative(found.method, found.tokens)


def speculation(options: Mapping[str, OptionValue], spec: ModelSpec, draft: ModelSpec | None) -> Speculation:
    """The method and tokens that the options stand for; draft: the draft model's layers when it could be opened.

    Raises BadInput (where = --speculative-config) for what the engine refuses and for a method that cannot be told.
    """
    method, model = str(options.get("speculative_method") or ""), str(options.get("speculative_model") or "")
    given = options.get("num_speculative_tokens")
    inferred = ""
    if not method and model:
        method = method_of(model, draft)
        inferred = f"from the draft model {model}"
    if not method:
        if given:
            raise BadInput(f"{given} tokens are to be drafted, and nothing drafts them", _FLAG,
                           "Add a method, for example mtp or ngram, or a draft model")  # fmt: skip
        return Speculation(None, 0)
    if method == "mtp" and spec.mtp_layers == 0 and not model and not quirks(spec.architecture).assistant:
        raise BadInput(f"{spec.architecture} has no multi-token-prediction layers for method mtp", _FLAG,
                       "Choose another method, or a checkpoint with such layers")  # fmt: skip
    tokens = 1 if given is None else int(given)
    if tokens < 1:
        raise BadInput(f"num_speculative_tokens={tokens} must be greater than zero", _FLAG, "Give 1 or more")
    return Speculation(method, tokens, inferred)


def method_of(model: str, draft: ModelSpec | None) -> str:
    """The method that the engine takes for a draft model without one: by its name, then by its architecture.

    Raises BadInput where neither tells.
    """
    name, architecture = model.lower(), draft.architecture.lower() if draft else ""
    if name in _NGRAM:
        return "ngram"
    if "eagle3" in name or "eagle3" in architecture:
        return "eagle3"
    if "eagle-" in name or "eagle" in architecture:
        return "eagle"
    if "mtp" in architecture:
        return "mtp"
    if draft is None or "medusa" in architecture or "speculator" in architecture:
        raise BadInput(f"how {model!r} drafts cannot be told", _FLAG, f'Add a "method": {_METHODS}')
    return "draft_model"


def check_draft(
    options: Mapping[str, OptionValue], spec: ModelSpec, draft: ModelSpec | None, found: Speculation, tp: int,
    version: Version,
) -> tuple[str, ...]:  # fmt: skip
    """Warnings for keys that change nothing; found: what `speculation` made of the options.

    Raises BadInput (where = --speculative-config) for a draft model and its keys that the engine refuses, NotModelled
    for a draft model on fewer GPUs than the model, which the engine before 0.10 ran.
    """
    standalone = found.method == "draft_model"
    if options.get("use_heterogeneous_vocab") and not standalone:
        raise BadInput("use_heterogeneous_vocab only works with method='draft_model'", _FLAG, "Leave it out")
    told = _check_draft_tp(options.get("draft_tensor_parallel_size"), found.method, tp, version)
    if standalone and draft is not None:
        _check_release(spec, version, bool(options.get("language_model_only")))
        defaults_check.check_heads(draft, tp, _FLAG)
        if draft.vocab_size != spec.vocab_size and not options.get("use_heterogeneous_vocab"):
            raise _other_vocabulary(spec.vocab_size, draft.vocab_size, version)
    return told


def _check_draft_tp(given: OptionValue | None, method: str | None, tp: int, version: Version) -> tuple[str, ...]:
    if given is None or method in (None, "ngram") or given == tp:
        return ()
    if given != 1:
        raise BadInput(f"speculative_draft_tensor_parallel_size={given} cannot be other value than 1 or target model "
                       "tensor_parallel_size", _FLAG, f"Give {tp}, or leave it out")  # fmt: skip
    if method != "draft_model":  # issues 31345, 31398
        return (f"draft_tensor_parallel_size 1 changes nothing: {method} drafts on all {tp} GPUs of the model",)
    if version < _DROPPED:
        raise NotModelled("a draft model on fewer GPUs than the model", _FLAG, f"Give {tp}, or leave it out")
    raise BadInput(
        f"Currently, 'draft_tensor_parallel_size' and 'tensor_parallel_size' must be the same. Got {given} and {tp}. "
        "Please pass 'draft_tensor_parallel_size' in the speculative_config", _FLAG, f"Give {tp}, or leave it out",
        brief=f"the draft model must be split over {tp} GPUs as the model is",
    )  # fmt: skip


def _check_release(spec: ModelSpec, version: Version, without_towers: bool) -> None:
    if _DROPPED <= version < _BACK:
        raise BadInput(
            "Speculative decoding with draft model is not supported yet. Please consider using other speculative "
            "decoding methods such as ngram, medusa, eagle, or mtp", _FLAG,
            f"Choose another method, or a release other than {spelled(_DROPPED)} to 0.13",
        )  # fmt: skip
    if spec.multimodal and not without_towers and _BACK <= version < _BESIDE_TOWERS:
        raise BadInput(
            "Speculative Decoding with draft models or parallel drafting does not support multimodal models", _FLAG,
            "Choose another method, or add --language-model-only",
        )  # fmt: skip


def _other_vocabulary(target: int, draft: int, version: Version) -> BadInput:
    """V0 only asserted it (issue 5203); since then the engine says why."""
    what = f"Target model vocab_size={target}. Draft model vocab_size={draft}."
    if version >= _DROPPED:
        what = ("Target and draft model should have the same vocabulary size. "
                f"{what} Using models with different tokenizers can cause out-of-bounds errors during speculative "
                "decoding")  # fmt: skip
    remedy = "Choose a draft model of the same vocabulary"
    if version >= _OTHER_VOCABULARY:
        remedy += ', or add "use_heterogeneous_vocab": true'
    return BadInput(what, _FLAG, remedy, brief=f"the draft model's vocabulary has {draft:,} entries, not {target:,}")
