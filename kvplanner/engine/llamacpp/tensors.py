"""A model's tensors as llama.cpp loads them: whole, by their GGUF names, with what each device rounds them up to.

Rules: llama-model.cpp and ggml-cuda.cu of llama.cpp 0.5.0-dev (October 2026).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal

from kvplanner.model.model import Model
from kvplanner.model.spec import Attention, ModelSpec
from kvplanner.model.tensors import Inventory, TensorGroup
from kvplanner.record import NamedTuple
from kvplanner.units import round_up

# CUDA kernels read quantised rows in steps of 512 elements; buffers start tensors at multiples of 128 bytes.
_ROW_STEP: Final = 512
_CUDA_ALIGNMENT: Final = 128
_HOST_ALIGNMENT: Final = 32

Role = Literal["input", "output", "table", "first", "skipped"]


class Tensor(NamedTuple):
    """One tensor of a model file.

    name: below "blk.N." for a layer's, else whole ("token_embd.weight"). device_bytes, host_bytes: what it takes in a
    CUDA buffer and in a host buffer; bytes: in the file. expert: a routed expert's matrix or bias. block: elements of a
    quantised block, 1 for others.
    """

    name: str
    kind: str
    columns: int
    rows: int
    bytes: int
    device_bytes: int
    host_bytes: int
    quantised: bool
    expert: bool = False
    block: int = 1

    def part(self, *, columns: int, rows: int) -> int:
        """Bytes that a part of the tensor takes in a CUDA buffer; 0 for none of it."""
        whole = max(self.columns * self.rows, 1)
        held = self.bytes * columns * rows // whole
        if held and self.quantised and columns % _ROW_STEP:
            held += self.bytes * (_ROW_STEP - columns % _ROW_STEP) // whole
        return round_up(held, _CUDA_ALIGNMENT)


class Tensors(NamedTuple):
    """layers[i]: the tensors of layer i; equal layers share one tuple.

    inputs: looked up on the host; outputs: beside the last layer; tables: rotary factors, copied to each device that
    holds a layer; first: beside the first layer. tied: the embedding when the output layer uses it too.
    windowed[i]: layer i sees a window only.
    """

    layers: tuple[tuple[Tensor, ...], ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    tables: tuple[Tensor, ...]
    first: tuple[Tensor, ...]
    tied: Tensor | None
    windowed: tuple[bool, ...] = ()

    def table_devices(self, devices: tuple[int, ...], architecture: str) -> tuple[int, ...]:
        """The devices of the layers that use the rotary tables: in Gemma 4 those with full attention alone."""
        if architecture == "gemma4" and self.windowed:
            return tuple(device for device, window in zip(devices, self.windowed, strict=True) if not window)
        return devices


# Where llama.cpp keeps what lies outside the layers (LLM_TENSOR_INFOS).
_INPUT: Final = re.compile(r"(token_embd|token_types|position_embd|per_layer_\w+)(_norm)?(\.\w+)?")
# How names of GGUF files themselves begin.
_OWN: Final = ("attn_", "ffn_", "ssm_", "shortconv", "time_mix", "channel_mix", "post_", "indexer")
_PLAIN_NAMES: Final = frozenset({"ssm_a", "ssm_d", "ssm_dt", "rope_freqs"})

# The names that checkpoints on the Hub use, for models that are planned without a GGUF file.
_HUB_NAMES: Final[tuple[tuple[str, str], ...]] = (
    # Recurrent and convolutional layers, whose projections have names of their own.
    (r".*(linear_attn|mamba|mixer)\.A_log", "ssm_a"), (r".*(mamba|mixer)\.D", "ssm_d"),
    (r".*(linear_attn|mamba|mixer)\.conv1d", "ssm_conv1d"), (r".*(linear_attn|mamba|mixer)\.out_proj", "ssm_out"),
    (r".*(linear_attn|mamba|mixer)\.norm", "ssm_norm"), (r".*linear_attn\.in_proj_a", "ssm_alpha"),
    (r".*linear_attn\.in_proj_b", "ssm_beta"), (r".*linear_attn\.in_proj_ba", "ssm_ba"),
    (r".*linear_attn\.in_proj_qkvz?", "attn_qkv"), (r".*linear_attn\.in_proj_z", "attn_gate"),
    (r".*(mamba|mixer)\.in_proj", "ssm_in"), (r"conv\.conv", "shortconv.conv"),
    (r"conv\.in_proj", "shortconv.in_proj"), (r"conv\.out_proj", "shortconv.out_proj"),
    # Attention.
    (r".*\.(q_proj|wq|query)", "attn_q"), (r".*\.(k_proj|wk|key)", "attn_k"), (r".*\.(v_proj|wv|value)", "attn_v"),
    (r".*\.(o_proj|wo|out_proj|dense)", "attn_output"), (r".*(qkv_proj|query_key_value|W_pack|c_attn)", "attn_qkv"),
    (r".*q_a_proj", "attn_q_a"), (r".*q_b_proj", "attn_q_b"), (r".*kv_a_proj_with_mqa", "attn_kv_a_mqa"),
    (r".*kv_b_proj", "attn_kv_b"), (r".*q_a_layernorm", "attn_q_a_norm"), (r".*kv_a_layernorm", "attn_kv_a_norm"),
    (r".*(q_norm|q_layernorm)", "attn_q_norm"), (r".*(k_norm|k_layernorm)", "attn_k_norm"), (r".*sinks", "attn_sinks"),
    # Experts, then dense blocks.
    (r".*experts.*gate_up_proj", "ffn_gate_up_exps"), (r".*shared_expert_gate", "ffn_gate_inp_shexp"),
    (r".*shared_expert.*gate_proj", "ffn_gate_shexp"), (r".*shared_expert.*up_proj", "ffn_up_shexp"),
    (r".*shared_expert.*down_proj", "ffn_down_shexp"), (r".*experts.*(gate_proj|w1)", "ffn_gate_exps"),
    (r".*experts.*(up_proj|w3)", "ffn_up_exps"), (r".*experts.*(down_proj|w2)", "ffn_down_exps"),
    (r".*block_sparse_moe\.input_linear", "ffn_gate_up_exps"), (r".*block_sparse_moe\.output_linear", "ffn_down_exps"),
    (r".*shared_mlp\.input_linear", "ffn_up_shexp"), (r".*shared_mlp\.output_linear", "ffn_down_shexp"),
    (r".*(e_score_correction_bias|expert_bias)", "exp_probs_b.bias"),
    (r".*(gate_up_proj)", "ffn_up"), (r".*(gate_proj|feed_forward\.w1)", "ffn_gate"),
    (r".*(up_proj|feed_forward\.w3)", "ffn_up"), (r".*(down_proj|feed_forward\.w2)", "ffn_down"),
    (r".*(mlp\.gate|router|block_sparse_moe\.gate|mixer\.gate|feed_forward\.gate).*", "ffn_gate_inp"),
    # Norms; what stands before the feed-forward block is Gemma's `ffn_norm`, and else the norm after attention.
    (r".*pre_feedforward_layernorm", "ffn_norm"), (r".*pre_feedforward_layernorm_2", "pre_ffw_norm_2"),
    (r".*post_feedforward_layernorm", "post_ffw_norm"), (r".*post_feedforward_layernorm_1", "post_ffw_norm_1"),
    (r".*post_feedforward_layernorm_2", "post_ffw_norm_2"), (r".*post_attention_layernorm", "post_attention_norm"),
    (r".*(input_layernorm|operator_norm)|norm", "attn_norm"),
    # Gemma's inputs of each layer.
    (r"per_layer_input_gate", "inp_gate"), (r"per_layer_projection", "proj"),
    (r"post_per_layer_input_norm", "post_norm"), (r"layer_scalar", "layer_output_scale"),
)  # fmt: skip
# The same outside the layers.
_OUTSIDE_NAMES: Final[tuple[tuple[str, str], ...]] = (
    (r"(.*\.)?(norm|final_layernorm|ln_f|norm_f|embedding_norm)", "output_norm"),
    (r"(.*\.)?embed_tokens_per_layer", "per_layer_token_embd"),
    (r"(.*\.)?per_layer_model_projection", "per_layer_model_proj"),
    (r"(.*\.)?per_layer_projection_norm", "per_layer_proj_norm"),
)  # fmt: skip


@lru_cache(maxsize=4096)
def gguf_name(path: str) -> str:
    """A layer tensor's name in a GGUF file, with its suffix; a Hub name is translated, an unknown one kept."""
    stem, suffix = (path.removesuffix(".bias"), ".bias") if path.endswith(".bias") else (path, ".weight")
    if stem in _PLAIN_NAMES and suffix == ".weight":
        return stem
    if stem.startswith(_OWN) and "layernorm" not in stem and "per_layer" not in stem:
        return stem + suffix
    if stem.endswith(".dt_bias"):
        return "ssm_dt.bias"
    for pattern, name in _HUB_NAMES:
        if re.fullmatch(pattern, stem.removesuffix(".weight")):
            return name if name in _PLAIN_NAMES or name.endswith(".bias") else name + suffix
    return stem + suffix


def tensors_of(model: Model) -> Tensors:
    """The tensors of a model whose inventory is known. Linear in its distinct layers."""
    inventory = model.inventory
    assert inventory is not None
    blocks = tuple(_block(block) for block in inventory.blocks)
    tied = _is_tied(inventory)
    found: dict[Role, list[Tensor]] = {"input": [], "output": [], "table": [], "first": [], "skipped": []}
    embedding: Tensor | None = None
    for group in inventory.outside:
        role = _role(group)
        tensor = _tensor([group], "")
        found[role].append(tensor)
        if tied and role == "input" and tensor.name == "token_embd.weight":
            embedding = tensor
    return Tensors(
        tuple(blocks[at] for at in inventory.block_of), tuple(found["input"]), tuple(found["output"]),
        tuple(found["table"]), tuple(found["first"]), embedding, _windowed(model.spec),
    )  # fmt: skip


def _windowed(spec: ModelSpec) -> tuple[bool, ...]:
    kinds = [any(isinstance(m, Attention) and m.window for m in layer.mixers) for layer in spec.layers]
    return tuple(kinds[index] for index in spec.layer_of)


def _is_tied(inventory: Inventory) -> bool:
    return not any(group.kind == "head" and group.path in ("output", "lm_head") for group in inventory.outside)


def _role(group: TensorGroup) -> Role:
    if group.place in ("mtp", "tower"):
        return "skipped"
    if group.path.startswith("rope_"):
        return "table"
    if _outside_name(group) in ("per_layer_model_proj.weight", "per_layer_proj_norm.weight"):
        return "first"
    return "input" if group.kind == "embedding" or group.place == "first" or _INPUT.fullmatch(group.path) else "output"


@lru_cache(maxsize=1024)
def _block(block: tuple[TensorGroup, ...]) -> tuple[Tensor, ...]:
    tensors = _whole(block, "blk")
    # Checkpoints may join the experts' gate and up matrices; GGUF files of the same models keep them apart.
    halves = [at for at, tensor in enumerate(tensors) if tensor.name == "ffn_gate_up_exps.weight"]
    if len(halves) == 2:
        for at, name in zip(halves, ("ffn_gate_exps.weight", "ffn_up_exps.weight"), strict=True):
            tensors[at] = tensors[at]._replace(name=name)
    biases = [at for at, tensor in enumerate(tensors) if tensor.name == "ffn_gate_up_exps.bias"]
    if len(biases) == 2:
        for at, name in zip(biases, ("ffn_gate_exps.bias", "ffn_up_exps.bias"), strict=True):
            tensors[at] = tensors[at]._replace(name=name)
    return tuple(tensors)


def _whole(groups: Iterable[TensorGroup], prefix: str) -> list[Tensor]:
    """Groups as whole tensors: the parts of a joined projection put together again, experts stacked."""
    found: list[Tensor] = []
    joined: list[TensorGroup] = []
    for group in groups:
        if joined and (group.path != joined[0].path or group.format != joined[0].format):
            found.append(_tensor(joined, prefix))
            joined = []
        if ("qkv" in group.path and len(group.shape) > 1) or (joined and group.path == joined[0].path):
            joined.append(group)
            continue
        found.append(_tensor([group], prefix))
    if joined:
        found.append(_tensor(joined, prefix))
    return found


def _tensor(parts: list[TensorGroup], prefix: str) -> Tensor:
    group = parts[0]
    shape = group.shape or (1,)
    columns = shape[-1]
    rows = 0
    for part in parts:
        count = part.count
        for size in part.shape[:-1]:
            count *= size
        rows += count
    bytes_ = sum(part.stored_bytes for part in parts)
    quantised = group.format.block_columns > 1 and len(shape) > 1
    padded = bytes_
    if quantised and columns % _ROW_STEP:
        padded += int((_ROW_STEP - columns % _ROW_STEP) * group.format.bits) // 8
    name = gguf_name(group.path) if prefix else _outside_name(group)
    return Tensor(
        name, group.kind, columns, rows, bytes_, round_up(padded, _CUDA_ALIGNMENT), round_up(bytes_, _HOST_ALIGNMENT),
        quantised, "exps" in name, group.format.block_columns if quantised else 1,
    )  # fmt: skip


def _outside_name(group: TensorGroup) -> str:
    if group.kind == "head":
        return "output.bias" if group.path.endswith(".bias") else "output.weight"
    for pattern, name in _OUTSIDE_NAMES:
        if re.fullmatch(pattern, group.path):
            return f"{name}.weight"
    if group.kind == "embedding" and not group.path.startswith(("per_layer", "altup", "token", "position")):
        return "token_embd.weight"
    return group.path if group.path.endswith(".bias") else f"{group.path}.weight"
