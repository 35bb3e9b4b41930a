"""The Log tab: a log that is opened, pasted or dropped is read, shown, and becomes the plan when wanted."""

from __future__ import annotations

import json
from pathlib import Path

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from kvplanner.app import planstore
from kvplanner.catalog import gpus, models
from kvplanner.diagnose.diagnosis import diagnose_file
from kvplanner.diagnose.runs import to_json
from kvplanner.observe.stages import EngineEnd
from kvplanner.report.html import html
from kvplanner.ui.dialogs.calibrations import CalibrationsDialog
from kvplanner.ui.log.view import EMPTY, LogView, as_html
from kvplanner.ui.startup.view import StartupView
from kvplanner.ui.theme.palette import DARK
from kvplanner.ui.window.commands.export import _sheet, _text
from kvplanner.ui.window.window import MainWindow

LOGS = Path(__file__).parents[2] / "diagnose" / "logs"
SMALL = LOGS / "vllm" / "0110-kv-too-small.log"


def page(window: MainWindow) -> LogView:
    found = window.centre.below.page("log")
    assert isinstance(found, LogView)
    return found


def test_an_opened_log_shows_and_becomes_the_plan(window: MainWindow, qtbot: QtBot) -> None:
    window.opening.open_path(SMALL)
    view = page(window)
    assert window.centre.below.current is view
    qtbot.waitUntil(lambda: view.found is not None, timeout=10_000)
    assert "one request of 131,072 tokens needs 16.00 GiB" in view.text.toPlainText()
    assert "planned" not in view.text.toPlainText()
    view.plan_button.click()
    qtbot.waitUntil(lambda: window.document.state.ask.version == "0.11.0", timeout=10_000)
    state = window.document.state
    assert state.model_text == "meta-llama/Llama-3.1-8B-Instruct"
    assert state.ask.options["gpu_memory_utilization"] == 0.95
    assert state.ask.options["enforce_eager"] is True
    qtbot.waitUntil(lambda: "planned" in view.text.toPlainText(), timeout=10_000)
    window.document.undo()
    assert window.document.state.ask.version != "0.11.0"


def test_a_pasted_log_is_read_and_other_text_is_an_error_that_leaves_the_plan(window: MainWindow, qtbot: QtBot) -> None:
    QGuiApplication.clipboard().setText(SMALL.read_text(encoding="utf-8"))
    window.opening.paste_command()
    view = page(window)
    qtbot.waitUntil(lambda: view.found is not None, timeout=10_000)
    before, shown = window.document.state, view.text.toPlainText()
    with qtbot.waitSignal(window.messages.posted, timeout=10_000) as posted:
        window.opening.logs.read_text("a list\nof words\n")
    assert posted.args is not None
    assert "The log was not read" in posted.args[0].text
    assert (window.document.state, view.text.toPlainText()) == (before, shown)


def test_a_log_of_two_named_gpus_chooses_them(window: MainWindow, qtbot: QtBot) -> None:
    window.opening.open_path(LOGS / "llamacpp" / "ok-2gpu-pipeline.log")
    view = page(window)
    qtbot.waitUntil(lambda: view.found is not None, timeout=10_000)
    with qtbot.waitSignal(window.messages.posted, timeout=10_000) as posted:  # its file is not on this computer
        view.plan_button.click()
    assert posted.args is not None
    label, use = posted.args[0].action
    assert label.startswith("Use ")
    use()
    state = window.document.state
    assert state.ask.engine == "llamacpp"
    assert [device.gpu.id.partition(" ")[0] for device in state.devices] == ["rtx-4090", "rtx-3060-12gb"]


def test_names_in_a_log_are_text_and_no_markup(qtbot: QtBot, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("INFO vLLM API server version 0.24.0, serving model <b>x</b>&y\n", encoding="utf-8")
    found = diagnose_file(path)
    assert "&lt;b&gt;x&lt;/b&gt;&amp;y" in as_html(found, "<i>", None, "GiB", DARK)
    view = LogView()
    qtbot.addWidget(view)
    assert view.text.toPlainText() == EMPTY
    assert not view.plan_button.isEnabled()
    view.set_log(found, "a.log")
    assert view.plan_button.isEnabled()


def started(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    text = (LOGS / "vllm" / "066-v0-ok.log").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "server.log"
    path.write_text(text, encoding="utf-8")
    return path


def opened(window: MainWindow, qtbot: QtBot, path: Path) -> LogView:
    window.opening.open_path(path)
    view = page(window)
    qtbot.waitUntil(lambda: view.found is not None, timeout=10_000)
    return view


def test_what_a_log_does_not_state_is_asked_for_field_by_field(
    window: MainWindow, qtbot: QtBot, tmp_path: Path
) -> None:
    view = opened(window, qtbot, started(tmp_path, ("meta-llama/Llama-3.1-8B-Instruct", "/srv/models/our-chat")))
    assert set(view.asking.answers()) == {"model", "gpus"}
    assert not view.asking.isHidden()
    view.plan_button.click()
    assert window.document.state.ask.version != "0.6.6.post1"
    view.asking.fields["model"].setText("meta-llama/Llama-3.1-8B-Instruct")
    view.asking.fields["gpus"].setText("RTX 4090 24696MiB")
    view.plan_button.click()
    qtbot.waitUntil(lambda: window.document.state.ask.version == "0.6.6.post1", timeout=10_000)
    assert window.document.state.model_text == "meta-llama/Llama-3.1-8B-Instruct"
    assert "RTX 4090" in window.document.state.devices[0].gpu.name
    assert view.asking.isHidden()


def test_a_log_calibrates_the_plans_like_it(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    view = opened(window, qtbot, started(tmp_path))
    assert not view.calibrate_button.isEnabled()
    view.asking.fields["gpus"].setText("RTX 4090 24696MiB")
    view.plan_button.click()
    qtbot.waitUntil(lambda: view.beside is not None, timeout=10_000)
    assert "the log: " in next(m.text for m in window.centre.bars.canvas.view().measured)
    window.centre.below.show_tab("startup")
    startup = window.centre.below.page("startup")
    assert isinstance(startup, StartupView)
    assert set(startup.logged()) == {"load", "profile", "allocate", "graphs"}
    assert "· the log: " in startup.readout([s.stage for s in startup.stages()].index("profile"))
    assert not startup.grab().isNull()
    before = window.document.plan
    view.calibrate_button.click()
    qtbot.waitUntil(lambda: window.document.plan is not before, timeout=10_000)
    plan = window.document.plan
    assert plan is not None
    activations = plan.devices[0].segment("activations")
    assert activations is not None
    assert activations.estimate.basis == "calibrated"
    assert activations.bytes == round(1.21 * (1 << 30))
    dialog = CalibrationsDialog(window.services.runs, lambda error, what: None, window)
    qtbot.addWidget(dialog)
    assert dialog.table.rowCount() == 1
    item = dialog.table.item(0, 0)
    assert item is not None
    item.setCheckState(Qt.CheckState.Unchecked)
    qtbot.waitUntil(lambda: window.document.plan is not plan, timeout=10_000)
    assert window.document.plan is not None
    assert before is not None
    assert window.document.plan.devices == before.devices
    dialog.export_to(tmp_path / "runs.json")
    dialog.table.selectRow(0)
    dialog.delete_button.click()
    assert dialog.table.rowCount() == 0
    dialog.import_from(tmp_path / "runs.json")
    assert dialog.table.rowCount() == 1
    window.document.set_model("Qwen/Qwen2.5-7B-Instruct", models.load("Qwen/Qwen2.5-7B-Instruct"))
    window.document.flush()
    assert window.centre.bars.canvas.view().measured == ()
    assert startup.logged() == {}


def test_a_contradicted_exact_figure_is_shown_and_a_report_has_both_numbers(
    window: MainWindow, qtbot: QtBot, tmp_path: Path
) -> None:
    view = opened(window, qtbot, started(tmp_path, ("# GPU blocks: 2805", "# GPU blocks: 9805")))
    view.asking.fields["gpus"].setText("RTX 4090 24696MiB")
    view.plan_button.click()
    qtbot.waitUntil(lambda: view.beside is not None, timeout=10_000)
    assert "Finding:" in view.text.toPlainText()
    assert "156,880 tokens" in view.text.toPlainText()
    window.opening.logs.save_report(tmp_path / "report.md")
    qtbot.waitUntil(lambda: not window.services.jobs.active)
    report = (tmp_path / "report.md").read_text("utf-8")
    assert "156,880" in report
    assert str(tmp_path) not in report


def test_a_watched_server_that_ends_offers_its_log(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    path, ended = started(tmp_path), EngineEnd("vLLM", 7, "load weights", "context", 9 << 30)
    with qtbot.waitSignal(window.messages.posted, timeout=10_000) as posted:
        window.opening.logs.offer(ended, path)
    assert posted.args is not None
    assert "at the stage “load weights”" in posted.args[0].text
    posted.args[0].action[1]()
    qtbot.waitUntil(lambda: page(window).found is not None, timeout=10_000)
    with qtbot.waitSignal(window.messages.posted, timeout=10_000) as posted:
        window.opening.logs.offer(ended, None)
    assert posted.args is not None
    assert posted.args[0].action[0] == "Open log…"


def test_what_helps_is_applied_in_one_step_and_holds_by_the_logs_own_figures(window: MainWindow, qtbot: QtBot) -> None:
    view = opened(window, qtbot, SMALL)
    view.asking.fields["gpus"].setText("RTX 4090")
    view.plan_button.click()
    qtbot.waitUntil(lambda: bool(view.remedies()), timeout=10_000)
    before, steps = window.document.state, window.document.undo_count
    assert "is the plan now" not in view.text.toPlainText()
    for number, remedy in enumerate(view.remedies()):
        view.text.anchorClicked.emit(QUrl(f"#{number}"))
        window.document.flush()
        plan = window.document.plan
        assert plan is not None
        assert plan.fits
        assert plan.devices == remedy.plan.devices
        assert plan.kv_cache == remedy.plan.kv_cache
        assert plan.request.measured == remedy.request.measured
        assert window.document.undo_count == steps + 1
        qtbot.waitUntil(lambda: view.text.toPlainText().count("is the plan now") == 1, timeout=10_000)
        assert view.beside is not None
        # The log's figures stand beside the plan of its own start, which has not changed.
        own = view.beside.plan.devices[0].segment("kv_cache")
        assert own is not None
        assert f"{own.bytes / (1 << 30):.2f}" in view.text.toPlainText()
        window.document.undo()
        assert window.document.state == before
        window.document.flush()


def test_options_that_a_cut_log_leaves_open_are_asked_for(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    text = (LOGS / "vllm" / "085-tp2-ok-interleaved.log").read_text("utf-8").splitlines(keepends=True)
    cut = "".join(line for line in text if "Namespace(" not in line and "LLM engine" not in line)
    path = tmp_path / "cut.log"
    path.write_text(cut, encoding="utf-8")
    view = opened(window, qtbot, path)
    assert view.asking.chosen() == {"tensor_parallel_size": "2"}  # its workers are ranks 0 and 1
    assert "gpu_memory_utilization" in view.asking.options
    assert "max_model_len" not in view.asking.options  # the line of concurrency states it
    assert view.asking.options["gpu_memory_utilization"].placeholderText()
    view.asking.fields["version"].setText("0.8.5")
    view.asking.fields["gpus"].setText("2xRTX 4090")
    view.asking.options["gpu_memory_utilization"].setText("a lot")
    with qtbot.waitSignal(window.messages.posted, timeout=10_000) as posted:
        view.plan_button.click()
    assert posted.args is not None
    assert "--gpu-memory-utilization" in posted.args[0].text
    view.asking.options["gpu_memory_utilization"].setText("0.87")
    view.asking.options["kv_cache_dtype"].setText("fp8")
    view.plan_button.click()
    qtbot.waitUntil(lambda: window.document.state.ask.version == "0.8.5", timeout=10_000)
    options = window.document.state.ask.options
    assert options["gpu_memory_utilization"] == 0.87
    assert options["kv_cache_dtype"] == "fp8"
    assert options["tensor_parallel_size"] == 2
    assert window.document.state.model_text == "Qwen/Qwen2.5-14B-Instruct"
    assert view.asking.isHidden()
    assert view.found is not None
    assert view.found.options["gpu_memory_utilization"] == 0.87  # what it teaches is of these too
    view.plan_button.click()  # once more, without the fields
    qtbot.waitUntil(lambda: view.beside is not None, timeout=10_000)
    assert window.document.state.ask.options == options


def test_a_folder_that_a_log_names_opens_here_and_stays_out_of_files(
    window: MainWindow, qtbot: QtBot, tmp_path: Path
) -> None:
    folder = tmp_path / "alice" / "our-chat-v2"
    folder.mkdir(parents=True)
    config = models.record("Qwen/Qwen2.5-7B-Instruct")["config"] | {"num_hidden_layers": 27}  # no catalogue has it
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    view = opened(window, qtbot, started(tmp_path, ("meta-llama/Llama-3.1-8B-Instruct", str(folder))))
    assert "model" not in view.asking.answers()
    view.asking.fields["gpus"].setText("RTX 4090 24696MiB")
    with qtbot.waitSignal(window.messages.posted, timeout=10_000) as posted:
        view.plan_button.click()
    qtbot.waitUntil(lambda: view.beside is not None, timeout=10_000)
    window.document.flush()
    state = window.document.state
    assert (state.model_text, state.model_place) == ("our-chat-v2", str(folder))
    saved, report = tmp_path / "a.kvplan.json", tmp_path / "r.md"
    planstore.save(saved, state)
    window.opening.logs.save_report(report)
    qtbot.waitUntil(lambda: not window.services.jobs.active)
    view.calibrate_button.click()
    qtbot.waitUntil(lambda: bool(window.services.runs.kept()), timeout=10_000)
    kept = json.dumps(to_json(window.services.runs.kept()))
    plan = window.document.plan
    assert plan is not None
    sheet = html(_sheet(plan, "GiB", state.model_text, private=False)()[0])
    exported = [sheet, *(_text(kind, plan, "GiB") for kind in ("json", "md", "csv"))]
    for written in (saved.read_text("utf-8"), report.read_text("utf-8"), kept, *exported):
        assert "alice" not in written
        assert str(tmp_path) not in written
    # The session of this machine finds it again; whoever wants the path in the plan says so.
    again = planstore.from_session(json.loads(json.dumps(planstore.to_session(state))), "session", lambda: None)
    assert again.model == state.model
    assert (again.model_text, again.model_place) == (state.model_text, state.model_place)
    assert posted.args is not None
    posted.args[0].action[1]()
    assert (window.document.state.model_text, window.document.state.model_place) == (str(folder), "")


def test_gpus_that_cannot_be_the_logs_are_not_proposed_and_are_asked_for_again(
    window: MainWindow, qtbot: QtBot, tmp_path: Path
) -> None:
    view = opened(window, qtbot, LOGS / "vllm" / "0240-oom-capture.log")  # of a GPU with 79.25 GiB
    window.document.edit("Other GPUs", devices=gpus.machine("RTX 4090").devices, machine_text="RTX 4090")
    view = opened(window, qtbot, LOGS / "vllm" / "0202-oom-weights.log")
    qtbot.waitUntil(lambda: view.name == "0202-oom-weights.log", timeout=10_000)
    assert view.asking.answers()["gpus"] == "RTX 4090"
    view = opened(window, qtbot, LOGS / "vllm" / "0240-oom-capture.log")
    qtbot.waitUntil(lambda: view.name == "0240-oom-capture.log", timeout=10_000)
    assert view.asking.answers()["gpus"] == "1x81152MiB"
    view.asking.fields["gpus"].setText("RTX 4090")
    view.plan_button.click()
    qtbot.waitUntil(lambda: view.beside is not None, timeout=10_000)
    assert "The log's GPU has 79.25 GiB" in view.text.toPlainText()
    assert view.asking.answers() == {"gpus": "1x81152MiB"}


def test_a_model_that_is_not_known_is_asked_for(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    view = opened(window, qtbot, started(tmp_path, ("meta-llama/Llama-3.1-8B-Instruct", "nobody/knows-this")))
    assert "model" not in view.asking.answers()
    with qtbot.waitSignal(window.messages.posted, timeout=10_000):
        view.plan_button.click()
    assert "model" in view.asking.answers()
    view.asking.fields["model"].setText("Qwen/Qwen2.5-7B-Instruct")
    view.plan_button.click()
    qtbot.waitUntil(lambda: window.document.state.model_text == "Qwen/Qwen2.5-7B-Instruct", timeout=10_000)


def test_where_nothing_is_to_be_asked_what_helps_stands_there_at_once(window: MainWindow, qtbot: QtBot) -> None:
    before = window.document.state
    text = (LOGS / "llamacpp" / "oom-kv.log").read_text("utf-8").replace("MODEL/llama31-8b-q4km.gguf", "Llama-3.1-8B")
    named = "build: 9000 (abcdef12) with GNU 13.3.0 for Linux x86_64\n" + text
    window.opening.logs.read_text(named)
    view = page(window)
    qtbot.waitUntil(lambda: bool(view.remedies()), timeout=10_000)
    assert window.document.state is before  # nothing is planned yet
    assert view.asking.isHidden()
    remedy = view.remedies()[0]
    view.text.anchorClicked.emit(QUrl("#0"))
    window.document.flush()
    plan = window.document.plan
    assert plan is not None
    assert plan.fits
    assert plan.devices == remedy.plan.devices
    assert window.centre.bars.canvas.view().measured  # the log's figures lie over it
    window.document.undo()
    assert window.document.state == before
