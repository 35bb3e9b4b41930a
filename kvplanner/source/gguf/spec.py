"""ModelSpec of a GGUF file: metadata for the sizes, the tensor table for what each layer holds.

Keys and defaults: llama.cpp's llama-arch and llama-hparams (October 2026).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kvplanner.errors import BadInput
from kvplanner.model.spec import (
    Attention,
    Indexer,
    LayerSpec,
    Mixer,
    Mla,
    Mlp,
    ModelSpec,
    Moe,
    State,
    Task,
    Tower,
)
from kvplanner.record import NamedTuple
from kvplanner.source.gguf.header import GgufHeader, GgufTensor, Value

MAX_LAYERS: Final = 4096

# The Hub's class for an architecture's name in GGUF.
ARCHITECTURES: Final[dict[str, str]] = {
    "llama": "LlamaForCausalLM", "llama4": "Llama4ForCausalLM", "mistral3": "MistralForCausalLM",
    "mistral4": "Mistral4ForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen2moe": "Qwen2MoeForCausalLM",
    "qwen2vl": "Qwen2VLForConditionalGeneration", "qwen3": "Qwen3ForCausalLM", "qwen3moe": "Qwen3MoeForCausalLM",
    "qwen3vl": "Qwen3VLForConditionalGeneration", "qwen3vlmoe": "Qwen3VLMoeForConditionalGeneration",
    "qwen3next": "Qwen3NextForCausalLM", "qwen35": "Qwen3_5ForCausalLM", "qwen35moe": "Qwen3_5MoeForCausalLM",
    "gemma": "GemmaForCausalLM", "gemma2": "Gemma2ForCausalLM", "gemma3": "Gemma3ForCausalLM",
    "gemma3n": "Gemma3nForCausalLM", "gemma4": "Gemma4ForCausalLM", "phi2": "PhiForCausalLM",
    "phi3": "Phi3ForCausalLM", "phimoe": "PhiMoEForCausalLM", "gpt-oss": "GptOssForCausalLM",
    "deepseek": "DeepseekForCausalLM", "deepseek2": "DeepseekV3ForCausalLM", "deepseek32": "DeepseekV32ForCausalLM",
    "glm4": "Glm4ForCausalLM", "glm4moe": "Glm4MoeForCausalLM", "glm-dsa": "GlmMoeDsaForCausalLM",
    "chatglm": "ChatGLMModel", "command-r": "CohereForCausalLM", "cohere2": "Cohere2ForCausalLM",
    "starcoder2": "Starcoder2ForCausalLM", "stablelm": "StableLmForCausalLM", "falcon": "FalconForCausalLM",
    "falcon-h1": "FalconH1ForCausalLM", "mamba": "MambaForCausalLM", "mamba2": "Mamba2ForCausalLM",
    "jamba": "JambaForCausalLM", "granite": "GraniteForCausalLM", "granitemoe": "GraniteMoeForCausalLM",
    "granitehybrid": "GraniteMoeHybridForCausalLM", "nemotron": "NemotronForCausalLM",
    "nemotron_h": "NemotronHForCausalLM", "nemotron_h_moe": "NemotronHForCausalLM", "olmo2": "Olmo2ForCausalLM",
    "olmoe": "OlmoeForCausalLM", "exaone": "ExaoneForCausalLM", "exaone4": "Exaone4ForCausalLM",
    "lfm2": "Lfm2ForCausalLM", "lfm2moe": "Lfm2MoeForCausalLM", "minicpm": "MiniCPMForCausalLM",
    "minicpm3": "MiniCPM3ForCausalLM", "internlm2": "InternLM2ForCausalLM", "baichuan": "BaichuanForCausalLM",
    "smollm3": "SmolLM3ForCausalLM", "hunyuan-moe": "HunYuanMoEV1ForCausalLM",
    "hunyuan-dense": "HunYuanDenseV1ForCausalLM",
    "ernie4_5": "Ernie4_5ForCausalLM", "ernie4_5-moe": "Ernie4_5_MoeForCausalLM", "seed_oss": "SeedOssForCausalLM",
    "bailingmoe": "BailingMoeForCausalLM", "bailingmoe2": "BailingMoeV2ForCausalLM", "dots1": "Dots1ForCausalLM",
    "minimax-m2": "MiniMaxM2ForCausalLM", "kimi-linear": "KimiLinearForCausalLM", "apertus": "ApertusForCausalLM",
    "arcee": "ArceeForCausalLM", "gpt2": "GPT2LMHeadModel", "bloom": "BloomForCausalLM", "mpt": "MPTForCausalLM",
    "dbrx": "DbrxForCausalLM", "grok": "Grok1ForCausalLM", "bert": "BertModel", "nomic-bert": "NomicBertModel",
    "jina-bert-v2": "JinaBertModel", "modern-bert": "ModernBertModel", "gemma-embedding": "Gemma3TextModel",
}  # fmt: skip

# Window layers where no array says so: period, and whether the full layer comes first.
_PERIODS: Final[dict[str, tuple[int, bool]]] = {
    "gemma2": (2, False), "gemma3": (6, False), "gemma3n": (5, False), "gemma-embedding": (6, False),
    "cohere2": (4, False), "exaone4": (4, False), "gpt-oss": (2, False), "llama4": (4, False), "olmo2": (4, False),
    "plamo3": (8, False), "afmoe": (4, False), "exaone-moe": (4, False), "smallthinker": (4, True),
    "cohere2moe": (4, True), "laguna": (4, True), "modern-bert": (3, True), "mellum": (4, False),
}  # fmt: skip
# Architectures for which llama.cpp does not apply the window that a file may state.
_NO_WINDOW: Final = frozenset({"llama", "phi3", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "starcoder2", "mistral3"})
_BUILT_IN_WINDOW: Final[dict[str, int]] = {"exaone-moe": 128, "smallthinker": 4096}
_LLAMA4_CHUNK: Final = 8192
_ENCODERS: Final = frozenset(
    {"bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert", "neo-bert",
     "gemma-embedding", "t5encoder", "eurobert"}
)  # fmt: skip
_DELTA: Final = frozenset({"qwen3next", "qwen35", "qwen35moe"})
_MAMBA2: Final = frozenset({"mamba2", "granitehybrid", "nemotron_h", "nemotron_h_moe", "falcon-h1", "plamo2"})
_MAMBA1: Final = frozenset({"mamba", "jamba"})
# What tells a Kimi delta layer, which has projections named like attention's, from attention.
_KDA: Final = ("ssm_conv1d_q", "ssm_q_conv", "ssm_f_a")
# Keys that stand for caches or states which this reader does not understand.
_UNMODELLED: Final[dict[str, str]] = {
    "attention.compress_ratios": "compressed attention", "hyper_connection": "hyper-connections",
    "wkv.head_size": "RWKV state", "token_shift_count": "RWKV token shift",
    "decoder_block_count": "an encoder beside the decoder",
}  # fmt: skip


class _Layer(NamedTuple):
    """The tensors of one layer: name below "blk.N." without ".weight" → shape, fastest dimension first."""

    shapes: Mapping[str, tuple[int, ...]]

    def has(self, *names: str) -> bool:
        return any(name in self.shapes for name in names)


_BLOCK: Final = re.compile(r"blk\.(\d{1,5})\.(.+)")


class Reader:
    """Reads one model's metadata; `name` is the file for messages."""

    def __init__(self, header: GgufHeader, tensors: tuple[GgufTensor, ...], name: str) -> None:
        self.metadata = header.metadata
        self.lengths = header.lengths
        self.name = name
        architecture = header.metadata.get("general.architecture")
        if not isinstance(architecture, str) or not architecture:
            raise BadInput("is missing or not text", f"{name}: general.architecture", "It is not a model's file")
        self.arch = architecture
        self.blocks: dict[int, dict[str, tuple[int, ...]]] = {}
        self.outside: dict[str, tuple[int, ...]] = {}
        for tensor in tensors:
            match = _BLOCK.fullmatch(tensor.name)
            if match:
                self.blocks.setdefault(int(match[1]), {})[match[2].removesuffix(".weight")] = tensor.shape
            else:
                self.outside[tensor.name.removesuffix(".weight")] = tensor.shape
        self.not_modelled: list[str] = []

    def value(self, key: str) -> Value | None:
        """A key below the architecture's prefix."""
        return self.metadata.get(f"{self.arch}.{key}")

    def number(self, key: str, default: int | None = None) -> int | None:
        """A whole number ≥ 0; an array gives its largest. Raises BadInput for anything else."""
        value = self.value(key)
        if value is None:
            return default
        values = value if isinstance(value, tuple) else (value,)
        numbers = [v for v in values if isinstance(v, int) and 0 <= v < 1 << 40]
        if len(numbers) != len(values) or not numbers:
            raise BadInput("is not a whole number", f"{self.name}: {self.arch}.{key}", "The file is damaged")
        return max(numbers)

    def need(self, key: str) -> int:
        """A number ≥ 1 that must be there."""
        value = self.number(key)
        if not value:
            raise BadInput(
                "is missing or zero", f"{self.name}: {self.arch}.{key}", "The file is damaged or not a model"
            )
        return value

    def per_layer(self, key: str, layer: int, default: int) -> int:
        """A number that may be an array with one entry per layer."""
        value = self.value(key)
        if isinstance(value, tuple):
            if layer >= len(value):
                raise BadInput(
                    f"has {len(value)} entries, expected one for each layer",
                    f"{self.name}: {self.arch}.{key}",
                    "The file is damaged",
                )
            item = value[layer]
            return int(item) if isinstance(item, int) and 0 <= item < 1 << 40 else default
        number = self.number(key)
        return default if number is None else number


def read_spec(reader: Reader) -> ModelSpec:
    """The layers of a GGUF model. What is not understood is listed in not_modelled. Raises BadInput."""
    count, mtp = layer_counts(reader)
    hidden = reader.need("embedding_length")
    kinds: dict[LayerSpec, int] = {}
    layer_of = [kinds.setdefault(_layer(reader, index, count, hidden), len(kinds)) for index in range(count)]
    vocab = reader.outside.get("token_embd", (0, 0))
    tokens = reader.lengths.get("tokenizer.ggml.tokens", 0)
    vocab_size = (vocab[1] if len(vocab) > 1 else 0) or reader.number("vocab_size", tokens) or 0
    _note_unmodelled(reader)
    task: Task = "embed" if reader.arch in _ENCODERS else "generate"
    return ModelSpec(
        architecture=ARCHITECTURES.get(reader.arch, reader.arch),
        model_type=reader.arch,
        hidden_size=hidden,
        vocab_size=vocab_size,
        layers=tuple(kinds),
        layer_of=tuple(layer_of),
        context_length=reader.number("context_length"),
        dtype="float16",
        tied_embeddings="output" not in reader.outside,
        quantization="gguf",
        towers=_towers(reader),
        mtp_layers=mtp,
        task=task,
        multimodal=any(name.startswith(("v.", "mm.", "a.")) for name in reader.outside),
        not_modelled=tuple(reader.not_modelled),
    )


def layer_counts(reader: Reader) -> tuple[int, int]:
    """Decoder layers, and multi-token-prediction blocks after them. Raises BadInput."""
    blocks = reader.need("block_count")
    mtp = reader.number("nextn_predict_layers", 0) or 0
    if blocks > MAX_LAYERS or mtp >= blocks:
        raise BadInput(
            f"is {blocks:,} with {mtp:,} prediction layers", f"{reader.name}: {reader.arch}.block_count",
            f"At most {MAX_LAYERS:,} layers are accepted",
        )  # fmt: skip
    return blocks - mtp, mtp


def _layer(reader: Reader, index: int, count: int, hidden: int) -> LayerSpec:
    layer = _Layer(reader.blocks.get(index, {}))
    mixers: list[Mixer] = []
    own = layer.has("attn_k", "attn_qkv", "attn_kv_a_mqa", "attn_kv_b", "attn_k_b") and not (
        _is_delta(layer) or layer.has(*_KDA) or _is_lightning(reader, layer)
    )
    if own or (layer.has("attn_q") and reader.number("attention.shared_kv_layers")):
        mixers.append(_attention(reader, index, count, hidden, layer))
    state = _state(reader, layer, hidden)
    if state is not None:
        mixers.append(state)
    return LayerSpec(tuple(mixers), _mlps(reader, index, layer, hidden))


def _is_delta(layer: _Layer) -> bool:
    """A gated delta layer keeps its joined projection under the name attn_qkv."""
    return layer.has("ssm_conv1d") and layer.has("attn_qkv") and layer.has("ssm_out")


def _is_lightning(reader: Reader, layer: _Layer) -> bool:
    """MiniMax-01 joins the projections of its lightning layers alone (minimax-01.cpp)."""
    return reader.arch == "minimax-01" and layer.has("attn_qkv")


def _attention(reader: Reader, index: int, count: int, hidden: int, layer: _Layer) -> Attention | Mla:
    heads = reader.per_layer("attention.head_count", index, 0)
    if not heads:
        raise BadInput(
            f"is missing or zero for layer {index}",
            f"{reader.name}: {reader.arch}.attention.head_count",
            "The file is damaged",
        )
    lora = reader.number("attention.kv_lora_rank")
    if lora:
        return _mla(reader, heads, lora, layer)
    window, chunk = _window(reader, index)
    key = reader.number("attention.key_length", hidden // heads) or hidden // heads
    value = reader.number("attention.value_length", key) or key
    if window is not None:
        key = reader.number("attention.key_length_swa", key) or key
        value = reader.number("attention.value_length_swa", value) or value
    shared = reader.number("attention.shared_kv_layers", 0) or 0
    return Attention(
        heads, reader.per_layer("attention.head_count_kv", index, heads), key, value, window, chunk,
        causal=reader.arch not in _ENCODERS and reader.value("attention.causal") is not False,
        owns_cache=index < count - shared,
        sinks=layer.has("attn_sinks"),
        indexer=_indexer(reader, layer),
    )  # fmt: skip


def _mla(reader: Reader, heads: int, lora: int, layer: _Layer) -> Mla:
    rope = reader.need("rope.dimension_count")
    key = reader.number("attention.key_length_mla") or reader.need("attention.key_length")
    value = reader.number("attention.value_length_mla") or reader.need("attention.value_length")
    if key <= rope:
        raise BadInput(
            f"is {key}, not more than the {rope} rotary dimensions",
            f"{reader.name}: {reader.arch}.attention.key_length",
            "Convert the model again",
        )
    return Mla(
        heads, lora, key - rope, rope, value, reader.number("attention.q_lora_rank") or None, _indexer(reader, layer)
    )


def _indexer(reader: Reader, layer: _Layer) -> Indexer | None:
    heads = reader.number("attention.indexer.head_count")
    size = reader.number("attention.indexer.key_length")
    if not heads or not size or not any(name.startswith("indexer") for name in layer.shapes):
        return None
    return Indexer(heads, size, reader.number("attention.indexer.top_k", 0) or 0)


def _window(reader: Reader, index: int) -> tuple[int | None, int | None]:
    """Window and chunk of a layer; (None, None) for full attention."""
    size = reader.number("attention.sliding_window") or _BUILT_IN_WINDOW.get(reader.arch, 0)
    if reader.arch == "llama4":
        return (None, None) if index % 4 == 3 else (None, reader.number("attention.sliding_window") or _LLAMA4_CHUNK)
    if not size or reader.arch in _NO_WINDOW:
        return None, None
    pattern = reader.value("attention.sliding_window_pattern")
    if isinstance(pattern, tuple):
        return (size if index < len(pattern) and pattern[index] else None), None
    period, full_first = _PERIODS.get(reader.arch, (0, False))
    if isinstance(pattern, int) and not isinstance(pattern, bool) and pattern > 0:
        period = pattern
    if not period:
        text = f"which layers of {reader.arch!r} use the sliding window of {size:,} tokens"
        if text not in reader.not_modelled:
            reader.not_modelled.append(text)
        return None, None
    full = index % period == (0 if full_first else period - 1)
    return (None if full else size), None


def _state(reader: Reader, layer: _Layer, hidden: int) -> State | None:
    if layer.has("shortconv.conv"):
        return State("short_conv", reader.need("shortconv.l_cache"), channels=hidden)
    if _is_lightning(reader, layer):
        heads = reader.need("attention.head_count")
        size = reader.number("attention.key_length") or hidden // heads
        return State("lightning", 0, heads, size, heads, size)
    if layer.has(*_KDA):
        size = reader.need("kda.head_dim")
        heads = reader.need("attention.head_count")
        return State("kda", reader.need("ssm.conv_kernel"), heads, size, heads, size)
    if not layer.has("ssm_conv1d"):
        return None
    kernel, inner, size = reader.need("ssm.conv_kernel"), reader.need("ssm.inner_size"), reader.need("ssm.state_size")
    if reader.arch in _MAMBA1 or layer.has("ssm_x"):
        return State("mamba1", kernel, state_size=size, channels=inner)
    heads = reader.need("ssm.time_step_rank")
    groups = reader.number("ssm.group_count", 1) or 1
    if reader.arch in _DELTA or _is_delta(layer):
        return State("gated_delta", kernel, heads, inner // heads, groups, size)
    if reader.arch not in _MAMBA2:
        reader.not_modelled.append(f"the recurrent layers of {reader.arch!r}, read as Mamba-2")
    return State("mamba2", kernel, heads, inner // heads, state_size=size, groups=groups)


def _mlps(reader: Reader, index: int, layer: _Layer, hidden: int) -> tuple[Mlp | Moe, ...]:
    """Feed-forward parts by their tensors; widths from the shapes (fastest dimension first: in, out, experts)."""
    found: list[Mlp | Moe] = []
    down = layer.shapes.get("ffn_down")
    if down is not None and len(down) > 1:
        matrices = 3 if layer.has("ffn_gate") or _holds_gate(layer.shapes.get("ffn_up"), down[0]) else 2
        found.append(Mlp(down[0], matrices))
    experts = layer.shapes.get("ffn_down_exps")
    if experts is not None and len(experts) == 3:
        shared = layer.shapes.get("ffn_down_shexp", (0,))[0]
        gate = layer.has("ffn_gate_exps", "ffn_gate_up_exps")
        found.append(
            Moe(
                experts[2], reader.per_layer("expert_used_count", index, 0), experts[0], shared, 3 if gate else 2,
                experts[1] if experts[1] != hidden else None,
            )
        )  # fmt: skip
    return tuple(found)


def _holds_gate(up: tuple[int, ...] | None, width: int) -> bool:
    """Phi-3 and its like store gate and up as one matrix."""
    return up is not None and len(up) > 1 and up[1] == 2 * width


def _towers(reader: Reader) -> tuple[Tower, ...]:
    sizes = [shape for name, shape in reader.outside.items() if name.startswith(("v.", "mm."))]
    if not sizes:
        return ()
    total = 0
    for shape in sizes:
        elements = 1
        for size in shape:
            elements *= size
        total += elements
    depth = len({name.split(".")[2] for name in reader.outside if name.startswith("v.blk.")})
    return (Tower("vision", 0, depth, total),)


def _note_unmodelled(reader: Reader) -> None:
    prefix = reader.arch + "."
    for key, words in _UNMODELLED.items():
        if any(name.startswith(prefix + key) for name in reader.metadata):
            reader.not_modelled.append(f"{words} ({prefix}{key})")
    if not reader.blocks:
        reader.not_modelled.append("the layers: the file holds no tensor of any")
