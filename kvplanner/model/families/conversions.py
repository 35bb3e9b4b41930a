"""Architectures that vLLM makes of others: aliases, embedders, classifiers and reward models of any decoder, drafts.

Sources: vLLM 0.33, model_executor/models/registry.py (names that share a class), config/model.py (what a name's ending
means) and adapters.py (the head that a conversion adds).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kvplanner.model.config.fields import Fields
from kvplanner.model.config.reading import Body, Draft, Reader, Reading
from kvplanner.model.families import drafts
from kvplanner.model.spec import Attention, Task
from kvplanner.model.tensors import Place, TensorGroup

Find = Callable[[str], Reader | None]

# Names that vLLM, now or in an earlier release, gives to the class of another name.
ALIASES: Final[Mapping[str, str]] = {
    "LLaMAForCausalLM": "LlamaForCausalLM", "AquilaModel": "LlamaForCausalLM", "AquilaForCausalLM": "LlamaForCausalLM",
    "XverseForCausalLM": "LlamaForCausalLM", "IQuestCoderForCausalLM": "LlamaForCausalLM",
    "TeleChat3ForCausalLM": "LlamaForCausalLM", "StableLMEpochForCausalLM": "StableLmForCausalLM",
    "RWForCausalLM": "FalconForCausalLM", "ChatGLMForConditionalGeneration": "ChatGLMModel",
    "BaiChuanForCausalLM": "BaichuanForCausalLM", "MiniMaxForCausalLM": "MiniMaxText01ForCausalLM",
    "MPTForCausalLM": "MptForCausalLM", "ExaoneMoEForCausalLM": "ExaoneMoeForCausalLM",
    "Grok1ModelForCausalLM": "Grok1ForCausalLM", "GritLM": "MistralForCausalLM",
    "Fairseq2LlamaForCausalLM": "LlamaForCausalLM",
    "MiMoV2ForCausalLM": "MiMoV2FlashForCausalLM",
    "BailingMoeV3ForCausalLM": "BailingHybridForCausalLM", "TeleChatForCausalLM": "TeleChat2ForCausalLM",
        "NemotronHPuzzleForCausalLM": "NemotronHForCausalLM", "Gemma3TextModel": "Gemma3Model",
    "Tarsier2ForConditionalGeneration": "Qwen2VLForConditionalGeneration",
    "MusicFlamingoForConditionalGeneration": "AudioFlamingo3ForConditionalGeneration",
    "MiniMaxM3SparseForCausalLM": "MiniMaxM3ForCausalLM", "PhimoeForCausalLM": "PhiMoEForCausalLM",
    "Qwen2_5OmniModel": "Qwen2_5OmniForConditionalGeneration", "Ovis2_6ForCausalLM": "Ovis2_5",
    "Ovis2_6_MoeForCausalLM": "Ovis2_5", "Qwen3ASRRealtimeGeneration": "Qwen3ASRForConditionalGeneration",
    "Step3p7ForConditionalGeneration": "Step3p7FlashForCausalLM",
    "NemotronH_Nano_Omni_Reasoning_V3": "NemotronH_Nano_VL_V2", "OpsColQwen3Model": "ColQwen3",
    "NemotronH_Super_Omni_Reasoning_V3": "NemotronH_Nano_VL_V2", "Qwen3VLNemotronEmbedModel": "ColQwen3",
    "NemotronH_Omni_Reasoning_V3": "NemotronH_Nano_VL_V2",
}  # fmt: skip

# Decoders that embed or classify with attention in both directions, so without a cache: whose layers they have.
_BIDIRECTIONAL: Final[Mapping[str, tuple[str, Task]]] = {
    "LlamaBidirectionalModel": ("LlamaForCausalLM", "embed"),
    "LlamaBidirectionalForSequenceClassification": ("LlamaForCausalLM", "classify"),
    "Lfm2BidirectionalModel": ("Lfm2ForCausalLM", "embed"),
    "VoyageQwen3BidirectionalEmbedModel": ("Qwen3ForCausalLM", "classify"),
    "DeepseekV3BidirectionalModel": ("DeepseekV3ForCausalLM", "embed"),
}

# Spellings of files that vLLM's registry does not list: what its command line has to say instead.
_RESPELT: Final[Mapping[str, str]] = {
    "TelechatForCausalLM": "TeleChat2ForCausalLM", "NewModel": "GteNewModel",
    "NewForSequenceClassification": "GteNewForSequenceClassification", "LongcatCausalLM": "LongcatFlashForCausalLM",
}  # fmt: skip

# What a name's ending means, in the order in which vLLM tries them.
_GENERATING: Final = ("ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel")
_POOLING: Final[tuple[tuple[str, Task], ...]] = (
    ("ForTextEncoding", "embed"), ("EmbeddingModel", "embed"), ("ForSequenceClassification", "classify"),
    ("ForTokenClassification", "classify"), ("ForAudioClassification", "classify"),
    ("ForImageClassification", "classify"), ("ForVideoClassification", "classify"),
    ("ClassificationModel", "classify"), ("ForRewardModeling", "embed"), ("RewardModel", "embed"), ("Model", "embed"),
)  # fmt: skip
# Reward models with a head of several layers: sizes of its output, hidden width first.
_REWARD_HEADS: Final = ("Qwen2ForRewardModel", "Qwen2ForProcessRewardModel")


def converted(architecture: str, find: Find) -> Reader | None:
    """The reader of an architecture that stands for another one, None when it stands for none.

    find: the reader that an architecture has of its own.
    """
    if architecture in _RESPELT:
        base = find(_RESPELT[architecture])
        return _respelt(base, _RESPELT[architecture]) if base is not None else None
    if architecture in ALIASES:
        other = ALIASES[architecture]
        return find(other) or _by_ending(other, find)
    if architecture in drafts.MTP_OF:
        base = find(drafts.MTP_OF[architecture])
        return drafts.mtp_of(base) if base is not None else None
    if architecture in drafts.EAGLE_OF:
        whose = drafts.EAGLE_OF[architecture]
        base = find(ALIASES.get(whose, whose))
        return drafts.eagle(base) if base is not None else None
    if architecture in _REWARD_HEADS:
        base = find("Qwen2ForCausalLM")
        return _rewarding(base) if base is not None else None
    if architecture == "InternLM2ForRewardModel":
        base = find("InternLM2ForCausalLM")
        return pooled(base, "classify", "v_head", 1) if base is not None else None
    if architecture in _BIDIRECTIONAL:
        name, task = _BIDIRECTIONAL[architecture]
        base = find(name)
        return _both_ways(pooled(base, task)) if base is not None else None
    return _by_ending(architecture, find)


def _respelt(text: Reader, name: str) -> Reader:
    """The reader of the name that vLLM knows, with what to tell it."""
    say = f"""vLLM's registry does not list the file's name: --hf-overrides '{{"architectures": ["{name}"]}}'"""

    def read(reading: Reading) -> Draft:
        draft = text(reading)
        return draft._replace(remarks=(*draft.remarks, say))

    return read


def _both_ways(text: Reader) -> Reader:
    """The same layers with attention in both directions, which keeps no cache."""

    def read(reading: Reading) -> Draft:
        reading.text.skip("pooling", "temperature", "is_causal", "use_bidirectional_attention")
        draft = text(reading)
        return draft._replace(bodies=tuple(_without_cache(body) for body in draft.bodies))

    return read


def _without_cache(body: Body) -> Body:
    mixers = tuple(m._replace(causal=False) if isinstance(m, Attention) else m for m in body.spec.mixers)
    return body._replace(spec=body.spec._replace(mixers=mixers))


def _by_ending(architecture: str, find: Find) -> Reader | None:
    for ending, task in _POOLING:
        if not architecture.endswith(ending):
            continue
        stem = architecture.removesuffix(ending)
        for other in (*_GENERATING, "Model"):
            name = stem + other
            base = find(ALIASES.get(name, name)) if name != architecture else None
            if base is not None:
                return pooled(base, task)
        return None
    return None


def pooled(text: Reader, task: Task, head: str = "score", labels: int | None = None) -> Reader:
    """A decoder that embeds or classifies: the same layers and cache, no head, and a small one for classes."""

    def read(reading: Reading) -> Draft:
        both_ways = reading.text.values.get("use_bidirectional_attention") is True
        reading.text.raw("use_bidirectional_attention")
        draft = text(reading)
        if both_ways:
            draft = draft._replace(bodies=tuple(_without_cache(body) for body in draft.bodies))
        outside = [without_prefix(g) for g in draft.outside if g.kind != "head"]
        if task == "classify":
            count = labels or label_count(reading.top)
            outside += reading.parts.at("last").linear(head, "other", count, draft.hidden)
        return draft._replace(outside=outside, task=task, tied=False, mtp=None)

    return read


def _rewarding(text: Reader) -> Reader:
    """Qwen2.5-Math-RM and -PRM: two layers where the head was; a process reward has two labels."""

    def read(reading: Reading) -> Draft:
        draft = text(reading)
        labels = 2 if "Process" in reading.architecture else 1
        last = reading.parts.at("last")
        outside = [without_prefix(g) for g in draft.outside if g.kind != "head"]
        outside += last.linear("score.0", "other", draft.hidden, draft.hidden, bias=True)
        outside += last.linear("score.2", "other", labels, draft.hidden, bias=True)
        return draft._replace(outside=outside, task="classify", tied=False)

    return read


def label_count(top: Fields) -> int:
    """How many classes: as listed, as stated, or two, which a class takes without either."""
    listed = top.raw("id2label")[1]
    top.skip("id2label", "label2id")
    if isinstance(listed, Mapping) and listed:
        if any(isinstance(name, Mapping | list | tuple) for name in listed.values()):
            raise top.bad("id2label", "names of classes by number")
        return len(listed)
    top.noted("id2label")
    return top.get("num_labels", default=2, high=1 << 20)


def without_prefix(group: TensorGroup) -> TensorGroup:
    """Backbone files name their tensors without "model.", and no tied head holds the embedding on the last stage."""
    place: Place = "first" if group.place == "first+last" else group.place
    return group._replace(path=group.path.removeprefix("model."), place=place)
