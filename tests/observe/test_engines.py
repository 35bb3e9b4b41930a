"""From a running process to a plan."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvplanner.errors import BadInput, NotModelled, PlannerError
from kvplanner.observe.engines import address_of, launch_of, other_root
from kvplanner.observe.signatures import recognise
from kvplanner.observe.snapshot import EngineSeen, GpuSample, ProcessSample, Reading, Snapshot
from kvplanner.units import GIB
from tests.observe.kit import imitated_vllm
from tests.patience import wait_for


def gpu(number: int, *processes: ProcessSample) -> GpuSample:
    used = sum(p.memory.value or 0 for p in processes)
    return GpuSample(
        number, f"GPU-{number}0000000", f"0000:0{number}:00.0", "NVIDIA H100 80GB HBM3",
        total=Reading(79 * GIB), reserved=Reading(0), allocated=Reading(used), free=Reading(79 * GIB - used),
        processes=processes,
    )  # fmt: skip


def seen(*command: str, engine: str = "vllm", pid: int = 4_000_000) -> EngineSeen:
    return EngineSeen(pid, 0.0, engine, {"vllm": "vLLM", "llamacpp": "llama-server"}.get(engine, engine), command)


def shot(*gpus: GpuSample) -> Snapshot:
    return Snapshot(1, 0.0, 0.0, gpus)


def test_flags_become_options_and_the_engines_memory_counts_as_free() -> None:
    server = seen(
        "/v/bin/python", "/v/bin/vllm", "serve", "org/m", "-tp", "2", "--max-model-len", "32k", "--port", "81"
    )
    row = ProcessSample(5, Reading(70 * GIB), ("compute",), root_pid=server.pid)
    launch = launch_of(server, shot(gpu(0, row), gpu(1, row), gpu(2)))
    assert launch.model == "org/m"
    assert launch.options == {"tensor_parallel_size": 2, "max_model_len": 32000}
    assert launch.machine is not None
    assert [(d.uuid[:5], d.free_bytes) for d in launch.machine.devices] == [("GPU-0", 79 * GIB), ("GPU-1", 79 * GIB)]
    assert "without this engine" in launch.machine.devices[0].free_source
    assert launch.address == "http://127.0.0.1:81"
    assert any("--port" in w for w in launch.warnings)


def test_the_model_may_be_a_flag() -> None:
    server = seen("python", "-m", "vllm.entrypoints.openai.api_server", "--model=org/m", "--dtype", "bfloat16")
    launch = launch_of(server, shot(gpu(0)))
    assert (launch.model, launch.options) == ("org/m", {"dtype": "bfloat16", "tensor_parallel_size": 1})


def test_a_flag_that_may_matter_is_not_passed_over() -> None:
    with pytest.raises(PlannerError, match="--nonsense-buffers"):
        launch_of(seen("vllm", "serve", "m", "--nonsense-buffers", "3"), shot(gpu(0)))


def test_engines_that_are_named_but_not_planned() -> None:
    with pytest.raises(NotModelled, match="cannot be planned yet"):
        launch_of(seen("text-generation-launcher", engine="tgi"), shot(gpu(0)))


def test_a_running_llama_server_becomes_a_plan() -> None:
    words = ("llama-server", "-m", "a.gguf", "-ngl", "99", "-c", "8192", "-nkvo", "--port", "81")
    launch = launch_of(seen(*words, engine="llamacpp"), shot(gpu(0)))
    assert launch.model == "a.gguf"
    assert launch.options == {"n_gpu_layers": "99", "ctx_size": 8192, "kv_offload": False}
    assert launch.address == "http://127.0.0.1:81"


def test_a_running_llama_server_with_files_of_a_repository_becomes_a_plan(tmp_path: Path) -> None:
    projector = tmp_path / "mmproj.gguf"
    projector.write_bytes(bytes(5000))
    words = ("llama-server", "-hf", "org/M-GGUF:Q8_0", "--mmproj", str(projector), "-c", "4096")
    launch = launch_of(seen(*words, engine="llamacpp"), shot(gpu(0)))
    assert launch.model == "org/M-GGUF:Q8_0"
    assert launch.options == {"ctx_size": 4096, "mmproj_size": 5000}
    with pytest.raises(BadInput, match=r"--lora /gone\.gguf cannot be seen from here.*--lora-size"):
        launch_of(seen("llama-server", "-m", "a.gguf", "--lora", "/gone.gguf", engine="llamacpp"), shot(gpu(0)))


def test_of_a_running_repositorys_model_is_known_what_may_come_with_it() -> None:
    launch = launch_of(seen("llama-server", "-hf", "org/M-GGUF", "--no-mmproj", engine="llamacpp"), shot(gpu(0)))
    assert launch.unasked is not None
    assert "--no-mmproj" in launch.unasked
    assert launch_of(seen("llama-server", "-m", "a.gguf", engine="llamacpp"), shot(gpu(0))).unasked is None


def test_a_running_server_of_llama_cpp_python_becomes_a_plan() -> None:
    """Its own flags, defaults and port."""
    words = ("/v/bin/python3", "-m", "llama_cpp.server", "--model", "a.gguf", "--n_gpu_layers", "-1", "--n_ctx", "8192")
    launch = launch_of(seen(*words, "--tensor_split", "0.5", "0.5", engine="llamacpp"), shot(gpu(0)))
    assert launch.model == "a.gguf"
    assert launch.address == "http://127.0.0.1:8000"
    wanted = {"n_gpu_layers": "-1", "ctx_size": 8192, "tensor_split": "0.5,0.5", "batch_size": 512, "fit": "off"}
    assert wanted.items() <= launch.options.items()
    assert launch_of(seen(*words, "--port", "9000", engine="llamacpp"), shot(gpu(0))).address.endswith(":9000")
    found = recognise(words)
    assert found is not None
    with_variables = found.with_variables({"N_BATCH": "256", "N_CTX": "1", "PATH": "/bin"})
    assert with_variables.index("256") < with_variables.index("8192")
    assert "/bin" not in with_variables


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are scripts")
def test_a_running_ollama_becomes_a_plan_of_what_it_has_loaded(tmp_path: Path) -> None:
    """Its llama-server child has the whole context of its slots, as llm/server.go starts it."""
    kinds = ["--cache-type-k", "q8_0", "--cache-type-v", "q8_0"]
    child = ["-m", "/blobs/sha256-ab", "-c", "16384", "-np", "2", "-b", "1024", *kinds]
    server, python = tmp_path / "llama-server", (sys.executable, "-S", "-E")
    starts = (
        f"import subprocess\nsubprocess.Popen({[*python, str(server), *child]})\nprint('ready', flush=True)\ninput()"
    )
    (tmp_path / "ollama").write_text(starts)
    server.write_text("import time\ntime.sleep(600)")
    served = subprocess.Popen(
        (*python, str(tmp_path / "ollama"), "serve"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert served.stdout is not None
        assert served.stdout.readline() == "ready\n"
        ours = EngineSeen(served.pid, 0.0, "ollama", "Ollama", ("ollama", "serve"))
        wait_for(lambda: launch_of(ours, shot(gpu(0))).model)
        launch = launch_of(ours, shot(gpu(0)))
        assert launch.model == "/blobs/sha256-ab"
        assert launch.options == {"num_ctx": 8192, "num_parallel": 2, "kv_cache_type": "q8_0", "num_batch": 1024}
    finally:
        os.killpg(served.pid, signal.SIGKILL)
        served.wait()


def test_inner_processes_alone_are_no_plan() -> None:
    with pytest.raises(BadInput, match="inner processes"):
        launch_of(seen(), shot(gpu(0)))


@pytest.mark.parametrize(
    ("words", "address"),
    [
        (("vllm", "serve", "m"), "http://127.0.0.1:8000"),
        (("vllm", "serve", "m", "--host", "0.0.0.0", "--port=9001"), "http://127.0.0.1:9001"),
        (("vllm", "serve", "m", "--host", "10.0.0.4"), "http://10.0.0.4:8000"),
        (("vllm", "serve", "m", "--port", "x"), ""),
        ((), ""),
    ],
)
def test_addresses(words: tuple[str, ...], address: str) -> None:
    assert address_of(seen(*words)) == address


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that looks like vLLM, started in a folder that holds a model, with some GPUs hidden."""
    (tmp_path / "lib" / "python3.12" / "site-packages" / "vllm-0.19.1.dist-info").mkdir(parents=True)
    (tmp_path / "models" / "m").mkdir(parents=True)
    with imitated_vllm(tmp_path, "models/m", CUDA_VISIBLE_DEVICES="1") as process:
        yield process


def test_a_real_process_tells_its_folder_and_its_gpus(server: subprocess.Popen[str], tmp_path: Path) -> None:
    running = seen(sys.executable, str(tmp_path / "bin" / "vllm"), "serve", "models/m", pid=server.pid)
    launch = launch_of(running, shot(gpu(0), gpu(1)))
    assert launch.model == str(tmp_path / "models" / "m")
    assert launch.machine is not None
    assert [d.uuid for d in launch.machine.devices] == ["GPU-10000000"]
    assert launch.version == "0.19.1"


def test_a_process_with_this_file_system_is_looked_at_from_here(server: subprocess.Popen[str]) -> None:
    assert other_root(server.pid) is None
    assert other_root(4_000_000) is None


def test_a_process_in_another_container_is_looked_at_through_its_root() -> None:
    with subprocess.Popen(["unshare", "--mount", "sleep", "600"], stderr=subprocess.PIPE) as other:
        wait_for(lambda: other_root(other.pid) is not None or other.poll() is not None)
        if other.poll() is not None:
            pytest.skip("this user may not make a mount namespace")
        try:
            assert other_root(other.pid) == Path(f"/proc/{other.pid}/root")
        finally:
            other.kill()
