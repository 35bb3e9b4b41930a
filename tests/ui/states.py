"""States of the window that are looked at: what is planned, what is opened then, at which size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from kvplanner.catalog import models as models_of
from kvplanner.engine.probe import Answer, Answered
from kvplanner.observe.recording import Recorder
from kvplanner.observe.snapshot import GpuSample, ProcessSample, Reading, Snapshot
from kvplanner.report.crosscheck import lines
from kvplanner.ui.log.view import LogView
from kvplanner.ui.setup.slider import MarkedSlider
from kvplanner.ui.window.commands.greeting import Tour
from kvplanner.ui.window.commands.solving import Solving
from kvplanner.ui.window.screenshot import settle
from kvplanner.ui.window.window import MainWindow
from kvplanner.units import GIB
from tests import patience
from tests.ui.window.kit import settled

LOGS = Path(__file__).parents[1] / "diagnose" / "logs"
LOG = LOGS / "vllm" / "0110-kv-too-small.log"
SMALL, USUAL, HD, UHD = (1024, 640), (1280, 800), (1920, 1080), (3840, 2160)


def nothing(window: MainWindow) -> None:
    """The plan as it is."""


class State(NamedTuple):
    """What to show: plan arguments, what to do then, size, pixels for each of the window's."""

    arguments: Mapping[str, object]
    act: Callable[[MainWindow], None] = nothing
    size: tuple[int, int] = USUAL
    scale: float = 1.0


def startup(window: MainWindow) -> None:
    window.view.show_startup()


def models(window: MainWindow) -> None:
    window.pickers.open_models("qwen3")


def all_models(window: MainWindow) -> None:
    window.pickers.open_models("")


def marked_models(window: MainWindow) -> None:
    window.pickers.open_models("8b")
    wait_for(lambda: len(window.pickers._model_marks.found) > 600)


def marked_gpus(window: MainWindow) -> None:
    window.pickers.open_gpus("")
    wait_for(lambda: len(window.pickers._gpu_marks.found) > 20)


def no_model(window: MainWindow) -> None:
    window.pickers.open_models("nothing is called that")


def gpus(window: MainWindow) -> None:
    window.pickers.open_gpus("2")


def in_sight(window: MainWindow, name: str) -> None:
    """The row of a further option, the section being opened for it."""
    window.panel.show_search()
    section = window.panel.advanced
    assert section is not None
    settled(section)
    settle(5)
    window.panel.ensureWidgetVisible(section.entries[name], 0, 400)


def advanced(window: MainWindow) -> None:
    window.document.set_option("max_num_seqs", 64)
    window.document.set_option("block_size", 32)
    window.document.flush()
    in_sight(window, "block_size")


def refused(window: MainWindow) -> None:
    window.document.set_option("tensor_parallel_size", 3)
    window.document.flush()


def offered(window: MainWindow) -> None:
    """The first ways as buttons below the verdict."""
    solving = window.findChild(Solving)
    assert solving is not None
    wait_for(lambda: solving.finder.remedies is not None and solving.finder.plan is window.document.plan)


def ways_back(window: MainWindow) -> None:
    """From settings that have no plan, in the tab too."""
    refused(window)
    window.centre.show_tab("Ways")
    wait_for(lambda: not window.services.jobs.active)


def messages(window: MainWindow) -> None:
    window.messages.info("kvplanner was not closed properly last time: your plan was restored")
    window.messages.warning("The catalogue on this machine is older than the engine", "details")
    window.messages.error(OSError(28, "No space left on device"), "The plan was not saved")


def loading(window: MainWindow) -> None:
    window.panel.model.show_loading("Qwen3-235B-A22B")


def dropping(window: MainWindow) -> None:
    from kvplanner.app.opening import Opening

    window.drops.show(Opening("model", "Read the model folder Qwen3-8B and plan it on the GPUs chosen now"))


def wait_for(done: Callable[[], object]) -> None:
    """Let the window live until something is there."""
    patience.wait_for(done, pause=lambda: settle(5))


def ways(window: MainWindow) -> None:
    window.centre.show_tab("Ways")
    page = window.centre.below.page("ways")
    wait_for(lambda: "Looking" not in page.text.toPlainText())  # type: ignore[attr-defined]  # a page's own: the window gives widgets


def what_fits(window: MainWindow) -> None:
    window.centre.show_tab("What fits")
    page = window.centre.below.page("fits")
    wait_for(lambda: page.shown.rowCount() >= 40)  # type: ignore[attr-defined]  # a page's own: the window gives widgets


def read(window: MainWindow, path: Path) -> LogView:
    page = window.centre.below.page("log")
    assert isinstance(page, LogView)
    before = page.found
    window.opening.open_path(path)
    wait_for(lambda: page.name == path.name and page.found is not before)
    return page


def log(window: MainWindow) -> None:
    read(window, LOG)


def log_planned(window: MainWindow) -> None:
    page = read(window, LOG)
    page.plan_button.click()
    wait_for(page.remedies)


def log_applied(window: MainWindow) -> None:
    log_planned(window)
    page = window.centre.below.page("log")
    assert isinstance(page, LogView)
    page.remedy_wanted.emit(page.remedies()[1])
    window.document.flush()


def log_asked(window: MainWindow) -> None:
    """A log without its head: what it leaves open is asked for."""
    text = (LOGS / "vllm" / "085-tp2-ok-interleaved.log").read_text("utf-8").splitlines(keepends=True)
    kept = "".join(line for line in text if "Namespace(" not in line and "LLM engine" not in line)
    page = window.centre.below.page("log")
    assert isinstance(page, LogView)
    before = page.found
    window.opening.logs.read_text(kept)
    wait_for(lambda: page.found is not before)


def log_devices(window: MainWindow) -> None:
    read(window, LOGS / "llamacpp" / "ok-2gpu-pipeline.log")


def weights(window: MainWindow) -> None:
    window.centre.show_tab("Explain")
    window.centre.select(0, "weights")


def activations(window: MainWindow) -> None:
    window.centre.show_tab("Explain")
    window.centre.select(0, "activations")


def no_plan(window: MainWindow) -> None:
    window.centre.set_problem("The model's config names an architecture that is not known here", "Choose another model")


def no_driver(window: MainWindow) -> None:
    window.view.gpu_panel(True)
    dock = window.view.dock
    assert dock is not None
    wait_for(lambda: dock.panel.notice.isVisible())


def recorded(path: Path) -> None:
    """A minute of two cards, one with a server."""
    recorder = Recorder(path)
    for second in range(60):
        server = ProcessSample(
            4711, Reading((2 + second // 4) * GIB), ("compute",), name="python3", user="ada", engine="vllm",
            command=("vllm", "serve", "Qwen/Qwen3-8B", "--max-model-len", "32768"), local=True, root_pid=4711,
        )  # fmt: skip
        sizes = (server.memory.value or 0, GIB // 2)
        gpus = tuple(
            GpuSample(
                i, f"GPU-{i}b8f2e40-90c1-4a55-8c11-00000000000{i}", name="NVIDIA GeForce RTX 4090",
                total=Reading(24 * GIB), free=Reading(23 * GIB - size), allocated=Reading(size), reserved=Reading(GIB),
                processes=(server,) if i == 0 else (),
            )
            for i, size in enumerate(sizes)
        )  # fmt: skip
        recorder.add(Snapshot(second, float(second), 1_790_000_000.0 + second, gpus))
    recorder.close()


def replay(window: MainWindow) -> None:
    window.view.gpu_panel(True)
    dock = window.view.dock
    assert dock is not None
    path = Path(window.services.settings.path).parent / "recording.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    recorded(path)
    dock.panel.feed.play(path)
    wait_for(lambda: dock.panel.bars.rows())
    dock.panel.replay.pause.setChecked(True)
    dock.panel._seek(0.7)
    settle(120)


def compare(window: MainWindow) -> None:
    """The plan that is edited beside two others."""
    window.view.pin_plan()
    window.document.set_option("kv_cache_dtype", "fp8")
    window.document.flush()
    window.view.pin_plan()
    window.document.set_option("max_model_len", 8192)
    window.document.flush()
    window.view.show_compare()


def together(window: MainWindow) -> None:
    """Three servers on the same GPUs, of which not all start."""
    window.document.set_option("gpu_memory_utilization", 0.6)
    window.document.flush()
    compare(window)
    page = window.centre.below.page("compare")
    page.show_together()  # type: ignore[attr-defined]  # a page's own: the window gives widgets
    shared = page.together  # type: ignore[attr-defined]  # a page's own: the window gives widgets
    wait_for(lambda: len(shared.orders) == 6)


def sweep(window: MainWindow) -> None:
    window.view.show_compare()
    page = window.centre.below.page("compare")
    page.show_sweep()  # type: ignore[attr-defined]  # a page's own: the window gives widgets
    swept = page.sweep  # type: ignore[attr-defined]  # a page's own: the window gives widgets
    wait_for(lambda: swept._job is None and swept.points and swept.plot.made)


def heat(window: MainWindow) -> None:
    sweep(window)
    swept = window.centre.below.page("compare").sweep  # type: ignore[attr-defined]  # a page's own: the window gives widgets
    swept.second.setCurrentIndex(swept.second.findText("Users"))
    wait_for(lambda: swept._job is None and len(swept.points) > 64)


def launch(window: MainWindow) -> None:
    window.view.show_launch()


def launch_as(form: str) -> Callable[[MainWindow], None]:
    """The Launch page in one of its forms."""

    def show(window: MainWindow) -> None:
        window.view.show_launch()
        page = window.centre.below.page("launch")
        page.form.setCurrentIndex(page.form.findData(form))  # type: ignore[attr-defined]  # a page's own: the window gives widgets

    return show


def machines(window: MainWindow) -> None:
    """What fits, the other way: machines for the model."""
    what_fits(window)
    page = window.centre.below.page("fits")
    page.way.setCurrentIndex(1)  # type: ignore[attr-defined]  # a page's own: the window gives widgets
    wait_for(lambda: page.shown.rowCount() >= 8)  # type: ignore[attr-defined]  # a page's own: the window gives widgets


def no_log(window: MainWindow) -> None:
    window.centre.show_tab("Log")


def over_time(window: MainWindow) -> None:
    replay(window)
    dock = window.view.dock
    assert dock is not None
    dock.panel.tabs.setCurrentWidget(dock.panel.plot)
    wait_for(lambda: dock.panel.plot.made)


def processes(window: MainWindow) -> None:
    replay(window)
    dock = window.view.dock
    assert dock is not None
    dock.panel.tabs.setCurrentWidget(dock.panel.processes)


def tour(window: MainWindow) -> None:
    """The second sentence of the first run's tour."""
    window.help.tour()
    window.findChildren(Tour)[-1].next.click()


def gigabytes(window: MainWindow) -> None:
    window.view.unit_gb()


def layers_moved(window: MainWindow) -> None:
    """One layer moved by hand: what --fit had placed around it is written out, among the further options too."""
    slider = window.panel.fields["n_gpu_layers"].findChildren(MarkedSlider)[0]
    QTest.keyClick(slider, Qt.Key.Key_Left)
    window.document.flush()
    in_sight(window, "override_tensor")


def engine_answered(window: MainWindow) -> None:
    """What the engine's own program said of the plan: figures that agree, and one that does not."""
    window.view.show_launch()
    page = window.centre.below.page("launch")
    plan = window.document.plan
    assert plan is not None
    found = []
    for at, device in enumerate(plan.devices):
        for segment in device.segments:
            if segment.kind in ("weights", "kv_cache", "compute"):
                more = 90_000_000 if segment.kind == "compute" and not at else 0
                name = "Host" if device.device.kind == "host" else f"CUDA{at}"
                found.append(Answered(name, at, segment.kind, segment.bytes + more, 1 << 20, segment.estimate))
    answer = Answer("llama-fit-params", "llama-fit-params -m Qwen3-32B-Q4_K_M.gguf -c 16384", tuple(found))
    page.show_answer("\n".join(lines(plan, answer, window.services.unit())))  # type: ignore[attr-defined]  # a page's own: the window gives widgets


def models_together(window: MainWindow) -> None:
    """Several models of one Ollama: which are loaded beside each other."""
    window.view.pin_plan()
    window.document.edit("Another model", model_text="Qwen3-8B", model=models_of.load("Qwen/Qwen3-8B"))
    window.document.flush()
    window.view.pin_plan()
    window.document.edit("A third one", model_text="gemma-3-27b-it", model=models_of.load("google/gemma-3-27b-it"))
    window.document.flush()
    window.view.show_compare()
    page = window.centre.below.page("compare")
    page.show_together()  # type: ignore[attr-defined]  # a page's own: the window gives widgets
    shared = page.together  # type: ignore[attr-defined]  # a page's own: the window gives widgets
    wait_for(lambda: shared.orders)


def host_selected(window: MainWindow) -> None:
    """RAM as a device: its weights explained."""
    window.centre.show_tab("Explain")
    plan = window.document.plan
    assert plan is not None
    window.centre.select(len(plan.devices) - 1, "weights")


TP8 = ("--tensor-parallel-size=8",)
WHOLE_PROMPTS = ("--no-enable-chunked-prefill",)
EXPERTS: Final = {
    "model": "gpt-oss-120b", "gpu": "RTX 3090", "engine": "llamacpp", "flags": ("--host-memory", "64GiB"),
}  # fmt: skip
UNEQUAL: Final = {
    "model": "Llama-3.3-70B-Instruct", "gpu": "RTX 4060 Ti 16GB,RTX 3090", "engine": "llamacpp",
    "weight_format": "q4_k_m",
}  # fmt: skip
SPILLS: Final = {**UNEQUAL, "gpu": "RTX 4090", "flags": ("-ngl", "40", "-c", "16384", "--wddm")}
ASKED: Final = {**UNEQUAL, "model": "Qwen3-32B", "gpu": "2xRTX 3090", "flags": ("-c", "16384")}
OLLAMA: Final = {"model": "Qwen3-32B", "gpu": "RTX 4090", "engine": "ollama", "flags": ("OLLAMA_CONTEXT_LENGTH=16384",)}
STATES: dict[str, State] = {
    "fits": State({"gpu": "2xRTX 4090", "load": "32@1500+500"}),
    "start": State({}),
    "small-window": State({"gpu": "2xRTX 4090", "load": "32@1500+500"}, size=SMALL),
    "does-not-fit": State({"model": "Llama-3.3-70B-Instruct", "gpu": "2xH100"}),
    "does-not-fit-small": State({"model": "Llama-3.3-70B-Instruct", "gpu": "2xH100"}, size=SMALL),
    "does-not-fit-hd": State({"model": "Llama-3.3-70B-Instruct", "gpu": "2xH100"}, size=HD),
    "weights-too-large": State({"model": "Llama-3.3-70B-Instruct", "gpu": "1xRTX 4090,1xRTX 3090"}),
    "eight-folded": State({"model": "Llama-3.3-70B-Instruct", "gpu": "8xH100"}),
    "eight-kinds": State(
        {"model": "Llama-3.1-8B-Instruct", "gpu": "2xRTX 4090,2xRTX 3090,2xH100,2xL40S", "flags": TP8}, size=HD
    ),
    "sixteen": State({"model": "Llama-3.3-70B-Instruct", "gpu": "8xH100,8xH200", "flags": TP8}, size=SMALL),
    "sixteen-4k": State({"model": "Llama-3.3-70B-Instruct", "gpu": "8xH100,8xH200", "flags": TP8}, size=UHD),
    "others-hold-memory": State({"gpu": "2xRTX 4090", "free": ("0=20GiB",)}),
    "cannot-tell": State({"gpu": "MI300X"}),
    "no-plan": State({}, no_plan),
    "no-plan-small": State({}, no_plan, size=SMALL),
    "start-up": State({"gpu": "2xRTX 4090"}, startup),
    "start-up-small": State({"model": "Llama-3.3-70B-Instruct", "gpu": "2xH100"}, startup, size=SMALL),
    "explain-weights": State({"gpu": "2xRTX 4090"}, weights),
    "explain-activations-4k": State({"gpu": "2xRTX 4090"}, activations, size=UHD),
    "ways": State({"model": "Llama-3.3-70B-Instruct", "gpu": "2xH100"}, ways, size=HD),
    "ways-small": State({"gpu": "RTX 4090"}, ways, size=SMALL),
    "ways-offered": State({"model": "Llama-3.3-70B-Instruct", "gpu": "2xH100"}, offered),
    "ways-offered-small": State({"model": "gpt-oss-120b", "gpu": "RTX 4090"}, offered, size=SMALL),
    "ways-of-slots-small": State(
        {"model": "Qwen3-14B", "gpu": "RTX 5090", "engine": "ollama", "load": "64@8k+1k"}, ways, size=SMALL
    ),
    "ways-back": State({}, ways_back),
    "ways-back-small": State({}, ways_back, size=SMALL),
    "what-fits": State({"gpu": "RTX 4090"}, what_fits),
    "log": State({"gpu": "RTX 4090"}, log),
    "log-planned": State({"gpu": "RTX 4090"}, log_planned),
    "log-applied-small": State({"gpu": "RTX 4090"}, log_applied, size=SMALL),
    "log-asked": State({"gpu": "2xRTX 4090"}, log_asked),
    "log-asked-small": State({"gpu": "2xRTX 4090"}, log_asked, size=SMALL),
    "log-devices": State({"gpu": "2xRTX 4090"}, log_devices),
    "model-picker": State({}, models),
    "model-picker-all": State({}, all_models, size=SMALL),
    "model-picker-empty": State({}, no_model),
    "no-length-known": State({"gpu": "RTX 4090", "flags": WHOLE_PROMPTS}, size=SMALL),
    "model-picker-marked": State({"gpu": "RTX 4060 Ti 16GB"}, marked_models),
    "gpu-picker-marked": State({"model": "Qwen3-32B"}, marked_gpus),
    "gpu-picker": State({}, gpus),
    "advanced": State({}, advanced),
    "refused-value": State({}, refused),
    "refused-small": State({}, refused, size=SMALL),
    "messages": State({}, messages),
    "loading": State({}, loading),
    "dropping": State({}, dropping),
    "compare": State({"gpu": "2xRTX 4090"}, compare),
    "compare-hd": State({"gpu": "2xRTX 4090"}, compare, size=HD),
    "together": State({"gpu": "2xRTX 4090"}, together),
    "together-small": State({"gpu": "2xRTX 4090"}, together, size=SMALL),
    "sweep": State({"gpu": "2xRTX 4090", "load": "8@1500+500"}, sweep),
    "map": State({"gpu": "2xRTX 4090", "load": "8@1500+500"}, heat, size=HD),
    "launch": State({"gpu": "2xRTX 4090"}, launch),
    "launch-small": State({"gpu": "2xRTX 4090"}, launch, size=SMALL),
    "launch-docker": State({"gpu": "2xRTX 4090"}, launch_as("docker")),
    "launch-kubernetes-small": State({"gpu": "2xRTX 4090"}, launch_as("kubernetes"), size=SMALL),
    "launch-hd": State({"gpu": "2xRTX 4090"}, launch_as("compose"), size=HD),
    "what-fits-hd": State({"gpu": "2xRTX 4090", "load": "8@1500+500"}, what_fits, size=HD),
    "what-fits-small": State({"gpu": "RTX 4090"}, what_fits, size=SMALL),
    "machines": State({"load": "8@1500+500"}, machines, size=HD),
    "machines-usual": State({"load": "8@1500+500"}, machines),
    "no-log": State({}, no_log),
    "log-planned-hd": State({"gpu": "RTX 4090"}, log_planned, size=HD),
    "over-time": State({"gpu": "2xRTX 4090"}, over_time),
    "over-time-small": State({"gpu": "2xRTX 4090"}, over_time, size=SMALL),
    "processes": State({"gpu": "2xRTX 4090"}, processes),
    "tour": State({}, tour),
    "gigabytes": State({"gpu": "80GB"}, gigabytes),
    "no-driver": State({}, no_driver),
    "replay": State({"gpu": "2xRTX 4090"}, replay),
    "replay-small": State({"gpu": "2xRTX 4090"}, replay, size=SMALL),
    "replay-hd": State({"gpu": "2xRTX 4090"}, replay, size=HD),
    "large": State({"gpu": "2xRTX 4090"}, size=HD, scale=2.0),
    "wide": State({"model": "Llama-3.3-70B-Instruct", "gpu": "4xH100"}, size=(2560, 1440)),
    "llamacpp": State({"gpu": "RTX 4090", "engine": "llamacpp"}),
    "llamacpp-shares": State({"model": "Llama-3.3-70B-Instruct", "gpu": "3xRTX 3090", "engine": "llamacpp"}),
    "llamacpp-experts": State(EXPERTS),
    "llamacpp-experts-small": State(EXPERTS, host_selected, size=SMALL),
    "llamacpp-moved": State({"model": "gpt-oss-120b", "gpu": "2xRTX 3090", "engine": "llamacpp"}, layers_moved),
    "llamacpp-moved-small": State(UNEQUAL, layers_moved, size=SMALL),
    "llamacpp-fails-small": State({**UNEQUAL, "flags": ("-ngl", "81", "-c", "8192")}, size=SMALL),
    "llamacpp-spills": State(SPILLS),
    "llamacpp-spills-small": State(SPILLS, host_selected, size=SMALL),
    "llamacpp-answered": State(ASKED, engine_answered),
    "llamacpp-answered-small": State(ASKED, engine_answered, size=SMALL),
    "ollama": State(OLLAMA),
    "ollama-small": State(OLLAMA, size=SMALL),
    "ollama-together": State({"model": "Qwen3-32B", "gpu": "2xRTX 4090", "engine": "ollama"}, models_together),
    "ollama-together-small": State(
        {"model": "Qwen3-32B", "gpu": "2xRTX 4090", "engine": "ollama"}, models_together, size=SMALL
    ),
    "sglang": State({"gpu": "2xRTX 4090", "engine": "sglang"}, size=HD),
}
# With half as large letters again: what shall be looked at, by its name above.
LARGER = ("fits", "small-window", "does-not-fit-small", "does-not-fit-hd", "refused-value", "advanced", "replay",
          "messages", "gpu-picker", "what-fits", "ways-small", "sixteen", "compare", "sweep",
          "launch-small", "log-asked", "over-time", "processes", "llamacpp-experts-small", "llamacpp-answered-small",
          "ollama-small", "ways-offered", "ways-offered-small", "ways-back-small")  # fmt: skip
