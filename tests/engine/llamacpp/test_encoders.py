"""Encoders, which keep no cache and give no logits: llama.cpp's own sizes of them, and what public logs print.

The figures are MiB that an unmodified llama.cpp (commit 0c1e57098, October 2026) reserved on imitated CUDA devices of
24,000 MiB for files of these shapes: model and compute buffer of each GPU, then of the host. A public log of Ollama's
of September 2026 prints EmbeddingGemma's 63.02 MiB too, and ggml-org/ci of March 2025 bge-small's 16.75 and 2.51 MiB.
"""

from __future__ import annotations

import pytest

from kvplanner.catalog import models
from kvplanner.engine.llamacpp.architectures import as_gguf
from kvplanner.engine.llamacpp.builds import build_of
from kvplanner.engine.llamacpp.settings import ContextSettings, PlaceSettings, Settings
from kvplanner.engine.llamacpp.sizes import Sizes, size_up
from kvplanner.engine.llamacpp.tensors import tensors_of
from kvplanner.engine.whatif import as_format
from kvplanner.units import MIB
from tests.engine.llamacpp.kit import plan, size

SMALL, M3, NOMIC = "BAAI/bge-small-en-v1.5", "BAAI/bge-m3", "nomic-ai/nomic-embed-text-v1.5"
GEMMA = "google/embeddinggemma-300m"
CASES = {
    (SMALL, 1, 512, "on"): ((40.73,), (5.0, 2.76)),
    (SMALL, 1, 512, "off"): ((40.73,), (16.75, 3.26)),
    (SMALL, 2, 128, "off"): ((23.76, 16.97), (3.44, 2.69, 1.38)),
    (M3, 1, 2048, "on"): ((577.23,), (56.01, 32.02)),
    (M3, 1, 8192, "off"): ((577.23,), (4512.04, 352.09)),
    (M3, 2, 8192, "on"): ((312.67, 264.56), (960.02, 832.13, 704.38)),
    (NOMIC, 1, 512, "off"): ((216.15,), (23.51, 4.01)),
    (NOMIC, 1, 2048, "on"): ((216.15,), (92.03, 20.03)),
    (NOMIC, 2, 2048, "on"): ((126.09, 90.06), (140.04, 134.09, 62.12)),
    (GEMMA, 1, 512, "off"): ((307.19,), (11.76, 5.01)),
    (GEMMA, 1, 2048, "on"): ((307.19,), (63.02, 28.03)),
}


def sized(model: str, gpus: int, ubatch: int, flash: str, build: str | None = None) -> Sizes:
    """A model's sizes with embeddings of every token asked for."""
    mix = "GGUF Q8_0" if model == GEMMA else "GGUF F16"
    found = as_gguf(as_format(models.load(model), mix))[0]
    context = ContextSettings(
        tokens=512 if model == SMALL else max(2048, ubatch), slots=1, unified=True, batch=ubatch, ubatch=ubatch,
        flash=flash, outputs=ubatch,
    )  # fmt: skip
    rules = build_of(build)._replace(real_kernels=False)
    return size_up(found, tensors_of(found), Settings(rules, context, PlaceSettings()), (24_000 * MIB,) * gpus)


@pytest.mark.parametrize(("case", "printed"), CASES.items(), ids=lambda value: str(value[0]))
def test_buffers_are_llama_cpps_own(
    case: tuple[str, int, int, str], printed: tuple[tuple[float, ...], tuple[float, ...]]
) -> None:
    sizes = sized(*case)
    weights, compute = printed
    assert [one / MIB for one in sizes.placed.device_bytes] == pytest.approx(weights, abs=0.07)
    assert [one / MIB for one in (*sizes.compute.gpus, sizes.compute.host)] == pytest.approx(compute, abs=0.011)
    assert sum(sizes.kv) == 0


def test_what_ci_printed_in_march_2025() -> None:
    sizes = sized(SMALL, 1, 512, "off", "b4900")
    assert sizes.compute.gpus[0] / MIB == pytest.approx(16.75, abs=0.005)
    assert sizes.compute.host / MIB == pytest.approx(2.51, abs=0.005)


def test_no_logits_are_planned_for_embeddings_of_a_whole_batch() -> None:
    """Logits of 8,192 tokens would take 7.6 GiB: no encoder makes any."""
    planned = plan(
        models.load(M3), "RTX 3060 12GB", engine_name="llamacpp", embeddings=True, ctx_size=8192, batch_size=8192,
        ubatch_size=8192, parallel=1,
    )  # fmt: skip
    assert planned.verdict.state == "fits"
    assert size(planned.devices[0], "compute") < 400 * MIB


@pytest.mark.parametrize(
    ("version", "ubatch", "start", "grown"),
    [(None, 8192, 4 * 4 * (250_002 + 1024), ["7.66 GiB"]), ("b6000", 2048, 4 * (250_002 + 1024), ["1.92 GiB"]),
     (None, 128, 4 * 4 * (250_002 + 1024), []), ("b5200", 8192, 0, [])],
)  # fmt: skip
def test_the_host_keeps_logits_beside_embeddings(
    version: str | None, ubatch: int, start: int, grown: list[str]
) -> None:
    """llama_context::output_reserve: for the slots at the start, for every token of a batch as one comes."""
    planned = plan(
        models.load(M3), "RTX 3060 12GB", version=version, embeddings=True, ctx_size=8192, batch_size=8192,
        ubatch_size=ubatch,
    )  # fmt: skip
    host = next(device for device in planned.devices if device.device.kind == "host")
    assert size(host, "output") == start
    notes = [note for note in planned.warnings if "of logits in RAM" in note]
    assert [note.split()[9:11] for note in notes] == [size.split() for size in grown]
