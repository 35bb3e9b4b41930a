"""How many bytes a weight takes on the GPU after vLLM's post-processing: scales widened, merged, padded, repacked.

Read from what vLLM 0.33 itself allocates for each kernel that it chooses by compute capability:
fp8 blocks        native from 9.0 (before 0.33 from 8.9): fp32 scales; DeepGEMM on 10.x: one byte per row and 128
                  columns; below Marlin: 16-bit scales per row and 128 columns.
fp8, one scale    pieces that are joined share one scale after loading; below 8.9 Marlin spreads it over the rows.
AWQ               Machete (9.0) widens zero points to 16 bits; Marlin keeps them packed.
GPTQ              Machete (9.0) keeps zero points and the columns' order; Marlin drops both.
packed int        symmetric zero points and act-order indices are dropped.
NVFP4             10.x and later pad the scales to 128 rows and 4 columns, and with them the width of experts, see
                  `_nvfp4_expert`; others run Marlin with unpadded scales.
MXFP4 experts     padded by kernel, see `mxfp4_layout`.
"""

from __future__ import annotations

from math import gcd
from typing import Final

from kvplanner.engine.shared.shard import Local
from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.weights import methods as weights_methods
from kvplanner.engine.vllm.weights import rules as weights_rules
from kvplanner.model.formats import DTYPE_BYTES, WeightFormat, fp8_tensor
from kvplanner.model.spec import ModelSpec, Moe
from kvplanner.model.tensors import TensorGroup
from kvplanner.record import NamedTuple
from kvplanner.units import ceil_div, round_up

_FLOATS: Final = ("float64", "float32", "bfloat16", "float16")
_NATIVE_FP8: Final = (8, 9)
_HOPPER: Final = (9, 0)
_BLACKWELL: Final = (10, 0)
_CONSUMER_BLACKWELL: Final = (12, 0)
_SCALE_ROWS: Final = 128  # rows in which swizzled scales stand
_PACKED_EXPERTS: Final = ("gptq", "awq")
_BLOCK: Final = 32  # values that share an MXFP4 scale


class Mxfp4(NamedTuple):
    """How MXFP4 experts lie in memory. hidden, width, summed: what the model's width, a rank's share of an expert's,
    and the dimension that is summed over are padded to.

    swizzled: scales in Hopper's tiles of 256 rows by 4 columns; twice: the unswizzled ones stay beside them;
    bias_bytes: of one element of a bias.
    """

    hidden: int
    width: int
    summed: int = 1
    swizzled: bool = False
    twice: bool = False
    bias_bytes: int = 2


def resident(
    group: TensorGroup, local: Local, fmt: WeightFormat, spec: ModelSpec, settings: Settings, gpu: Gpu,
    first_of_fused: bool = True,
) -> tuple[int, int]:  # fmt: skip
    """Bytes of one layer's tensors of a group on a rank, and those of their values, whose scales stand apart.

    fmt: what the engine runs, see `effective`. first_of_fused: whether the group is the first piece of the matrix that
    it is joined to, which owns a shared scale.
    """
    if fmt.layout == "dense" and fmt.name in _FLOATS:
        if group.kind == "experts" and len(local.shape) == 1 and spec.quantization == "mxfp4":
            size = local.copies * mxfp4_bias(group, local, settings, gpu)
        else:
            size = local.elements * unquantised_bytes(group, spec, settings)
        return size, size
    if len(local.shape) < 2:
        size = local.copies * fmt.bytes_of(local.shape)
        return size, size
    if fmt.name == "nvfp4" and group.kind == "experts" and gpu.runs_as >= _BLACKWELL:
        local = _nvfp4_expert(group, local, spec, settings, gpu)
    size = local.copies * _packed(fmt, group, local, settings, gpu, first_of_fused)
    if fmt.name == "mxfp4" and group.kind == "experts":
        return size, local.copies * _mxfp4_values(group, local, settings, gpu)[0]
    return size, min(ceil_div(int(local.elements * fmt.bits), 8), size)


def _packed(
    fmt: WeightFormat, group: TensorGroup, local: Local, settings: Settings, gpu: Gpu, first_of_fused: bool
) -> int:
    """Bytes of one quantised matrix with its scales."""
    if group.kind != "experts":
        return _matrix(fmt, local, settings, gpu, False, first_of_fused)
    if fmt.name == "mxfp4":
        return mxfp4_expert(group, local, settings, gpu)
    width = local.rows if group.shard == "expert_column" else local.columns
    if fmt.layout == "block":
        fmt = _expert_blocks(fmt, width)
    if fmt.name in _PACKED_EXPERTS and fmt.group:
        if width % fmt.group == 0:
            return _matrix(fmt, local, settings, gpu, True, False) + _expert_zeros(fmt, local, settings)
        fmt = fmt._replace(group=_dividing(fmt.group, width))
    return _matrix(fmt, local, settings, gpu, True, first_of_fused)


def as_stored(spec: ModelSpec, settings: Settings) -> bool:
    """Whether every matrix runs in the file's own format, so that `effective` need not be asked of each."""
    return not weights_rules.skips_in_vain(spec) and weights_methods.online(spec, settings) is None


def effective(group: TensorGroup, spec: ModelSpec, settings: Settings) -> WeightFormat:
    """The format that the engine runs: the file's, or that of an online quantisation of a 16-bit checkpoint."""
    if weights_rules.skipped_in_vain(group, spec):
        return fp8_tensor(True)
    wanted = weights_methods.online(spec, settings)
    if wanted is None or group.kind not in wanted.kinds or group.shard == "replicated":
        return group.format
    plain = group.format.layout == "dense" and len(group.shape) >= 2 and group.place == "layer"
    return wanted.format if plain else group.format


def unquantised_bytes(group: TensorGroup, spec: ModelSpec, settings: Settings) -> int:
    """Bytes per element of an unquantised tensor: whatever the file holds is cast to the engine's dtype.

    What the model's class declares in fp32 stays so.
    """
    if weights_rules.fp32_router(group, spec) or weights_rules.fp32_part(group, spec):
        return DTYPE_BYTES["float32"]
    return DTYPE_BYTES[settings.model.dtype]


def mxfp4_layout(settings: Settings, gpu: Gpu) -> Mxfp4:
    """The layout of MXFP4 experts: of Triton's kernels on Hopper, TRT-LLM's on 10.x, Marlin's elsewhere."""
    arch, version = gpu.runs_as, settings.version
    if arch == _HOPPER:
        once = rules.MXFP4_SCALES_ONCE.at(version)
        summed = rules.MXFP4_TRITON_SUMMED.at(version)
        return Mxfp4(1, 64, summed, swizzled=True, twice=not once, bias_bytes=4 if once else 2)
    if _BLACKWELL <= arch < _CONSUMER_BLACKWELL:
        return Mxfp4(256, rules.MXFP4_TRTLLM_WIDTH.at(version), bias_bytes=4)
    return Mxfp4(256, 128)


def mxfp4_expert(group: TensorGroup, local: Local, settings: Settings, gpu: Gpu) -> int:
    """Bytes of one expert's matrix: half a byte a value and a byte per 32, on padded sizes."""
    layout, column = mxfp4_layout(settings, gpu), group.shard == "expert_column"
    values, rows, columns = _mxfp4_values(group, local, settings, gpu)
    scales = rows * ceil_div(columns, _BLOCK)
    if not layout.swizzled:
        return values + scales
    pieces = 2 if column else 1  # gate and up stand in one matrix
    tiles = round_up(pieces * rows, 256) * round_up(ceil_div(columns, _BLOCK), 4) // pieces
    return values + tiles + (scales if layout.twice else 0)


def _mxfp4_values(group: TensorGroup, local: Local, settings: Settings, gpu: Gpu) -> tuple[int, int, int]:
    """(bytes of the values, rows, columns) of one expert's matrix, padded."""
    layout, column = mxfp4_layout(settings, gpu), group.shard == "expert_column"
    rows = round_up(local.rows, layout.width if column else layout.hidden)
    columns = round_up(local.columns, layout.hidden if column else layout.width)
    return rows * round_up(columns, layout.summed) // 2, rows, columns


def mxfp4_bias(group: TensorGroup, local: Local, settings: Settings, gpu: Gpu) -> int:
    """Bytes of one expert's bias, padded like its matrix; that of the down projection is whole on every rank."""
    layout = mxfp4_layout(settings, gpu)
    return round_up(local.rows, layout.width if group.shard == "expert_column" else layout.hidden) * layout.bias_bytes


def _nvfp4_expert(group: TensorGroup, local: Local, spec: ModelSpec, settings: Settings, gpu: Gpu) -> Local:
    """One rank's part of an NVFP4 expert with its width padded as the kernels want it.

    Without a gate the first matrix is as tall as its scales, which stand in whole 128 rows, and the second as wide;
    TRT-LLM's kernels (10.x) want multiples also with a gate (quantization/utils/flashinfer_fp4_moe.py). Mixed ModelOpt
    exports quantise the weights of their experts alone, which Marlin runs as they are.
    """
    if spec.quantization == "modelopt_mixed":
        return local
    gated = not any(isinstance(m, Moe) and m.matrices == 2 for layer in spec.layers for m in layer.mlps)
    routed = _BLACKWELL <= gpu.runs_as < _CONSUMER_BLACKWELL
    unit = _SCALE_ROWS if not gated else rules.NVFP4_TRTLLM_WIDTH.at(settings.version) if routed else 1
    if group.shard == "expert_column":
        return local._replace(rows=round_up(local.rows, unit))
    return local._replace(columns=round_up(local.columns, unit))


def notes(spec: ModelSpec, settings: Settings, gpu: Gpu) -> tuple[str, ...]:
    """What is not exact about this format on this GPU."""
    method = settings.model.quantization or spec.quantization or ""
    found = []
    if method and gpu.arch is None:
        found.append("the GPU's compute capability is not known: its kernels are taken to be those of 9.0")
    if spec.quantization == "gptq":
        found.append("act-order GPTQ files may keep the scales of row-parallel layers whole on every rank: not counted")
    if "fp4" in method and "mxfp4" not in method:
        found.append("NVFP4 kernels may pad experts further; the part is small")
    if weights_rules.skips_in_vain(spec):
        found.append("its skip list names the encoder as a whole, which is no layer: vLLM builds it in 8 bits")
    wanted = weights_methods.online(spec, settings)
    if wanted is not None and not wanted.checked:
        found.append(f"{method} is counted by its rule, which was not held against the engine")
    return tuple(found)


def _expert_blocks(fmt: WeightFormat, width: int) -> WeightFormat:
    """Smaller blocks where a rank's share of an expert's width would cut the file's."""
    side = gcd(width, fmt.block_rows)
    return fmt if side == fmt.block_rows else fmt._replace(block_rows=side, block_columns=side)


def _matrix(fmt: WeightFormat, local: Local, settings: Settings, gpu: Gpu, expert: bool, first_of_fused: bool) -> int:
    arch = gpu.runs_as
    rows, columns = local.rows, local.columns
    payload = ceil_div(int(rows * columns * fmt.bits), 8)
    if fmt.name == "fp8":
        return payload + _fp8_scales(fmt, local, settings, arch, expert, first_of_fused)
    if fmt.name == "int8" and fmt.layout == "channel":
        return payload + 4 * rows
    if fmt.name == "awq":
        groups = rows * (ceil_div(columns, fmt.group) if fmt.group else 1)
        machete = arch == _HOPPER and not expert and rules.MACHETE_AWQ.at(settings.version)
        return payload + 2 * groups + (2 * groups if machete and fmt.zero_bits else groups * fmt.zero_bits // 8)
    if fmt.name == "gptq" or (fmt.name.startswith("int") and fmt.layout == "group"):
        packed = fmt._replace(zero_bits=0, index_bytes=0, extra_bytes=0).bytes_of((rows, columns))
        kept = fmt.name == "gptq" and arch == _HOPPER and not expert
        return packed + (_machete_beside(fmt, local, settings, first_of_fused) if kept else 0)
    if fmt.name == "nvfp4" and arch >= _BLACKWELL:
        return payload + round_up(rows, _SCALE_ROWS) * round_up(ceil_div(columns, fmt.group), 4) + fmt.extra_bytes
    return fmt.bytes_of((rows, columns))


def _dividing(group: int, width: int) -> int:
    """The group that MoeWNA16 works with, which takes experts that Marlin does not: halved until it divides a rank's
    share of an expert's width (layers/quantization/moe_wna16.py)."""
    while width % group and group > _BLOCK:
        group //= 2
    return group


def _expert_zeros(fmt: WeightFormat, local: Local, settings: Settings) -> int:
    """Zero points of symmetric GPTQ experts that Marlin's method keeps: a word for eight rows of each group."""
    if fmt.name != "gptq" or fmt.bits != 4:
        return 0
    return rules.GPTQ_EXPERT_ZEROS.at(settings.version) * (local.rows // 8) * ceil_div(local.columns, fmt.group)


def _machete_beside(fmt: WeightFormat, local: Local, settings: Settings, first_of_fused: bool) -> int:
    """What Machete keeps of a GPTQ matrix: packed zero points, and the order of its input columns."""
    zeros = local.rows * (ceil_div(local.columns, fmt.group) if fmt.group else 1) * fmt.zero_bits // 8
    ordered = first_of_fused and rules.GPTQ_ORDER_KEPT.at(settings.version)
    return zeros + (4 * local.columns if ordered else 0)


def _fp8_scales(
    fmt: WeightFormat, local: Local, settings: Settings, arch: tuple[int, int], expert: bool, first_of_fused: bool
) -> int:
    rows, columns = local.rows, local.columns
    if fmt.layout == "block":
        per_row = ceil_div(columns, fmt.block_columns)
        if arch < (_HOPPER if rules.ADA_BLOCKS_BY_MARLIN.at(settings.version) else _NATIVE_FP8):
            return 2 * rows * per_row
        if _BLACKWELL <= arch < _CONSUMER_BLACKWELL and not expert:
            return rows * round_up(per_row, 4)
        return 4 * ceil_div(rows, fmt.block_rows) * per_row
    if arch < _NATIVE_FP8:
        return 2 * rows
    if fmt.layout == "channel":
        return 4 * rows
    shared = 4 + fmt.extra_bytes
    return shared if first_of_fused else 0
