"""From what was asked to llama-server's settings: defaults by build, values checked, and each option's origin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvplanner.engine.llamacpp import split
from kvplanner.engine.llamacpp.builds import NO_FLASH, PLAIN_TYPES, Build, has_kernel
from kvplanner.engine.llamacpp.cache import CACHE_TYPES
from kvplanner.engine.llamacpp.drafting import MTP
from kvplanner.engine.llamacpp.settings import ContextSettings, FitSettings, PlaceSettings, Settings
from kvplanner.engine.option import OptionValue, Resolved
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import Device
from kvplanner.model.spec import Attention, ModelSpec
from kvplanner.record import NamedTuple
from kvplanner.units import MIB

_AUTO_SLOTS: Final = -1


class Settled(NamedTuple):
    """Settings, the options as resolved, and the GPUs that are used. projector, adapters: bytes beside the model.

    wddm: Windows drives the GPUs; spills: and moves to RAM what they cannot hold. steered: a control vector is loaded.
    """

    settings: Settings
    resolved: dict[str, Resolved]
    gpus: tuple[Device, ...]
    warnings: tuple[str, ...]
    projector_bytes: int = 0
    projector_on_gpu: bool = True
    adapter_bytes: int = 0
    host_bytes: int | None = None
    wddm: bool = False
    spills: bool = False
    steered: bool = False


class _Values:
    """What was asked, with what stands for it where it was not; remembers the origin of each."""

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        self.options = options
        self.resolved: dict[str, Resolved] = {}

    def take(self, name: str, default: OptionValue | None, reason: str = "") -> OptionValue | None:
        given = self.options.get(name)
        if given is not None:
            self.resolved[name] = Resolved(given, "user")
            return given
        self.resolved[name] = Resolved(default, "default", reason)
        return default

    def whole(self, name: str, default: int, reason: str = "") -> int:
        return int(self.take(name, default, reason) or 0)

    def word(self, name: str, default: str) -> str:
        return str(self.take(name, default) or "")

    def yes(self, name: str, default: bool, reason: str = "") -> bool:
        return bool(self.take(name, default, reason))


def settle(build: Build, spec: ModelSpec, options: Mapping[str, OptionValue], gpus: tuple[Device, ...]) -> Settled:
    """The settings. Raises BadInput for values that llama-server refuses."""
    values = _Values(options)
    context = _context(build, spec, values)
    place, used, warnings = _place(build, values, gpus, spec)
    target = _target(values.word("fit_target", "1024"), len(used))
    fit = FitSettings(values.word("fit", "on" if build.fit else "off") == "on", target, values.whole("fit_ctx", 4096))
    _refuse(build, context, place, spec, len(used))
    if used and place.gpu_layers != 0:
        _refuse_types(build, context, values.options.get("flash_attn") or "auto")
    wddm = values.yes("wddm", False)
    return Settled(
        Settings(build, context, place, fit), values.resolved, used, tuple(warnings),
        projector_bytes=values.whole("mmproj_size", 0), projector_on_gpu=values.yes("mmproj_offload", True),
        adapter_bytes=values.whole("lora_size", 0), host_bytes=_host_bytes(values),
        wddm=wddm, spills=values.yes("sysmem_fallback", True) and wddm, steered=bool(values.word("control_vector", "")),
    )  # fmt: skip


def _host_bytes(values: _Values) -> int | None:
    given = values.take("host_memory", None, "not known: what stays on the host is not held against anything")
    return None if given is None else int(given)


def _context(build: Build, spec: ModelSpec, values: _Values) -> ContextSettings:
    trained = spec.trained_context_length or 4096
    asked = values.options.get("ctx_size")
    slots = values.whole("parallel", build.slots, f"slots of build {build.name}")
    drafts = values.options.get("spec_draft_model") or values.word("spec_type", "none") == MTP
    automatic = slots == _AUTO_SLOTS or "parallel" not in values.options or (slots == 1 and build.one_is_all)
    if automatic and build.one_is_all and (drafts or values.options.get("kv_unified")):
        automatic, slots = False, 1  # then the one slot of the default stands for itself
        if "parallel" not in values.options:
            values.resolved["parallel"] = Resolved(1, "default", "-kvu and a draft leave the default's slot alone")
    slots = build.slots if automatic else slots
    if slots < 1:
        raise BadInput("0 slots answer nothing", "--parallel", "Give 1 to 256, or leave it out")
    shared = build.unified and automatic
    unified = values.yes("kv_unified", shared, "slots that were not given share one cache" if shared else "")
    tokens, reason = trained, "the model's own" if spec.trained_context_length else "the model states none"
    if asked:
        tokens = int(asked)
    elif asked is None and build.context is not None:
        tokens, reason = build.context, f"what builds of {build.name} take"
    values.resolved["ctx_size"] = (
        Resolved(tokens, "user") if asked else Resolved(tokens, "default" if asked is None else "user", reason)
    )
    embeddings = values.yes("embeddings", False)
    every_row = embeddings or bool(values.options.get("all_outputs"))
    batch = values.whole("batch_size", 2048)
    draft = values.whole("spec_draft_n_max", build.drafted) if drafts else 0
    return ContextSettings(
        tokens=tokens,
        slots=slots,
        unified=unified,
        batch=batch,
        ubatch=values.whole("ubatch_size", 512),
        key_type=values.word("cache_type_k", "f16"),
        value_type=values.word("cache_type_v", "f16"),
        flash=_flash(build, values),
        full_window=values.yes("swa_full", False),
        draft_rows=draft,
        outputs=batch if every_row else None,
        embeddings=embeddings,
        reducible=asked is None,
        draft_key_type=values.word("spec_draft_type_k", "f16"),
        draft_value_type=values.word("spec_draft_type_v", "f16"),
    )


def _flash(build: Build, values: _Values) -> str:
    """Flash attention as asked; a quantised value cache turns "auto" into on."""
    asked = values.word("flash_attn", "auto" if build.flash_auto else "off")
    quantised = values.options.get("cache_type_v", "f16") not in PLAIN_TYPES
    return "on" if quantised and asked == "auto" else asked


def _place(
    build: Build, values: _Values, gpus: tuple[Device, ...], spec: ModelSpec
) -> tuple[PlaceSettings, tuple[Device, ...], list[str]]:
    warnings: list[str] = []
    used = _devices(values.word("device", "all"), gpus)
    mode = values.word("split_mode", "layer")
    main = values.whole("main_gpu", 0)
    if mode == "none" and used:
        if main >= len(used):
            raise BadInput(f"there is no GPU {main}", "--main-gpu", f"Give 0 to {len(used) - 1}")
        used = (used[main],)
    shares = _shares(values.word("tensor_split", ""))
    if len(shares) > len(used) and any(shares[len(used) :]):
        warnings.append(f"--tensor-split names {len(shares)} shares for {len(used)} GPUs: the rest is left out")
    experts = values.whole("n_cpu_moe", 0)
    all_experts = values.yes("cpu_moe", False)
    load_mode = values.word("load_mode", "auto")
    mapped = values.yes("mmap", load_mode in ("auto", "mmap", "mlock"))
    layers = _gpu_layers(build, values) if used else 0
    return (
        PlaceSettings(
            asked_layers=layers,
            gpu_layers=min(layers, spec.num_layers + 1) if layers is not None else None,
            split_mode=mode,
            main_gpu=main,
            shares=shares[: len(used)] if any(shares[: len(used)]) else (),
            overrides=values.word("override_tensor", ""),
            cpu_experts=0 if all_experts else experts or None,
            kv_offload=values.yes("kv_offload", True),
            op_offload=values.yes("op_offload", True),
            mmap=mapped,
            mlock=values.yes("mlock", load_mode == "mlock"),
            repack=values.yes("repack", True),
        ),
        used,
        warnings,
    )


def _gpu_layers(build: Build, values: _Values) -> int | None:
    text = values.word("n_gpu_layers", "auto" if build.all_layers else "0").strip().lower()
    if text in ("auto", "all", "-1", "-2"):
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 6:
        raise BadInput(f"{text[:40]!r} is no number of layers", "--n-gpu-layers", "Give a number, auto or all")
    return int(text)


def _devices(text: str, gpus: tuple[Device, ...]) -> tuple[Device, ...]:
    """The GPUs that --device names; they are called CUDA0 and so on in the order of the machine."""
    if text.lower() == "all":
        return gpus
    if text.lower() == "none":
        return ()
    names = {f"cuda{index}": gpu for index, gpu in enumerate(gpus)}
    found: list[Device] = []
    for name in filter(None, (part.strip().lower() for part in text.split(","))):
        if name not in names:
            known = ", ".join(f"CUDA{index}" for index in range(len(gpus))) or "none here"
            raise BadInput(f"there is no device {name[:40]!r}", "--device", f"Name one of {known}")
        found.append(names[name])
    return tuple(found)


def _shares(text: str) -> tuple[float, ...]:
    try:
        shares = tuple(float(part) for part in text.replace("/", ",").split(",") if part.strip())
    except ValueError:
        raise BadInput(f"{text[:60]!r} is no list of shares", "--tensor-split", "Example: --tensor-split 3,1") from None
    if any(not 0 <= share < 1e9 for share in shares):
        raise BadInput("a share is negative or beyond all range", "--tensor-split", "Example: --tensor-split 3,1")
    return shares


def _target(text: str, gpus: int) -> tuple[int, ...]:
    """Bytes that stay free on each GPU (at least one number, for a machine without any)."""
    try:
        given = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        given = []
    if not given or any(not 0 <= value < 1 << 40 for value in given):
        raise BadInput(f"{text[:60]!r} is no number of MiB", "--fit-target", "Example: --fit-target 1024")
    count = max(gpus, 1)
    each = given * count if len(given) == 1 else given + [1024] * (count - len(given))
    return tuple(value * MIB for value in each[:count])


def _refuse(build: Build, context: ContextSettings, place: PlaceSettings, spec: ModelSpec, gpus: int) -> None:
    """Raises BadInput, in the engine's words, for what it refuses whatever memory there is."""
    off = context.flash == "off" or spec.model_type in NO_FLASH
    if off and context.value_type not in PLAIN_TYPES:
        raise BadInput(
            "quantized V cache requires flash_attn to be enabled", "--cache-type-v", "Leave --flash-attn at auto"
        )
    if place.split_mode == "row" and not build.row_split:
        raise BadInput(
            "device CUDA0 does not support split buffers", "--split-mode row", "Use layer, or a build before b9500"
        )
    if place.split_mode == "tensor":
        _refuse_within(build, context, spec, gpus)


def _refuse_types(build: Build, context: ContextSettings, asked: object) -> None:
    """Raises BadInput where "auto" finds no flash attention on a GPU for quantised values, which need it.

    By llama-context.cpp of b9200; where it is on, by "on" or by the build, attention runs on the host instead.
    """
    keys, values = context.key_type, context.value_type
    if asked != "auto" or not build.flash_auto or values in PLAIN_TYPES or has_kernel(build, keys, values):
        return
    if not build.mixed_types and not build.forces_flash:
        raise BadInput(
            "quantized V cache was requested, but this requires Flash Attention", "--cache-type-v",
            f"Give keys and values one type, q8_0 or q4_0: CUDA has it for no others in builds of {build.name}",
        )  # fmt: skip


def refuse_heads(build: Build, context: ContextSettings, spec: ModelSpec, *, latent: bool) -> None:
    """Raises BadInput for cache types that a model's heads do not go with (llama_init_from_model).

    latent: attention keeps a latent vector, which is key and value in one.
    """
    keys, values = context.key_type, context.value_type
    if latent and build.forces_flash and keys != values:
        raise BadInput(
            f"model does not support different K ({keys}) and V ({values}) cache types", "--cache-type-v",
            f"Give keys and values one type: --cache-type-v {keys}",
        )  # fmt: skip
    if not build.flash_auto or context.flash == "off":
        return
    found = {mixer for layer in spec.layers for mixer in layer.mixers if isinstance(mixer, Attention)}
    for letter, type_, sizes in (
        ("K", keys, [mixer.head_size for mixer in found]), ("V", values, [mixer.head_size_v for mixer in found]),
    ):  # fmt: skip
        block = CACHE_TYPES[type_][0]
        odd = next((size for size in sizes if size % block), None)
        if odd is not None:
            raise BadInput(
                f"{letter} cache type {type_} with block size {block} does not divide "
                f"n_embd_head_{letter.lower()}={odd}",
                f"--cache-type-{letter.lower()}", "Use f16 or bf16",
            )  # fmt: skip


def _refuse_within(build: Build, context: ContextSettings, spec: ModelSpec, gpus: int) -> None:
    """What -sm tensor refuses."""
    flag, remedy = "--split-mode tensor", "Use layer"
    if not build.tensor_split:
        raise BadInput(f"builds of {build.name} have no split mode tensor", flag, remedy)
    if spec.model_type in split.REFUSED:
        raise BadInput(f"LLAMA_SPLIT_MODE_TENSOR not implemented for architecture '{spec.model_type}'", flag, remedy)
    if not gpus:
        raise BadInput("LLAMA_SPLIT_MODE_TENSOR needs >= 1 devices", flag, "Name a GPU, or leave it out")
    if context.flash == "off":
        raise BadInput("SPLIT_MODE_TENSOR requires flash_attn to be enabled", flag, "Leave --flash-attn at auto")
