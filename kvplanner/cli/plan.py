"""kvplanner plan: does it fit, where does the memory go, what does it serve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kvplanner.cli.arguments import Parser
from kvplanner.cli.output import BAD_INPUT, DOES_NOT_FIT, FITS, emit_json, give_up_output, note, say, width, written
from kvplanner.errors import BadInput, UnknownName
from kvplanner.printable import printable
from kvplanner.request.flags import add_plan_words, split_flags
from kvplanner.sized_text import sizes_in

if TYPE_CHECKING:
    from argparse import Namespace

    from kvplanner.engine.plan import Plan
    from kvplanner.engine.probe import Answer
    from kvplanner.engine.request import Calibration
    from kvplanner.engine.segment import SegmentKind
    from kvplanner.model.model import Model
    from kvplanner.request.words import Built, PlanWords, Sources
    from kvplanner.solve.remedies import Remedy
    from kvplanner.solve.solver import Asked, Solved

_EXAMPLES: Final = """examples:
  kvplanner plan Llama-3.1-8B-Instruct --gpu H100 --load 32@1500+500
  kvplanner plan ./my-model --gpu 2x24GiB -- --max-model-len 32k --kv-cache-dtype fp8
  kvplanner plan --gpu "4xA100-SXM4-80GB" -- vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 4
  kvplanner plan gpt-oss-120b --gpu "RTX 3090" --engine llamacpp -- -c 32k
  kvplanner plan Qwen3-32B --gpu 2xH100 --load 1@8k+1k --solve users

exit status: 0 fits, 1 does not fit, 2 bad input or cannot be told
"""
_USAGE: Final = """kvplanner plan MODEL [--gpu SPEC] [options] [-- ENGINE FLAGS]
       kvplanner plan [--gpu SPEC] [options] -- vllm serve MODEL ..."""
LAUNCHED: Final = ("shell", "docker", "compose", "kubernetes", "systemd", "python", "modelfile", "nodes", "ray")
ASKED: Final = ("context", "users", "utilisation", "gpus", "tp", "format")
_MOST_REMEDIES: Final = 5
# Of a GPU's name behind its first one.
_MOST_WORDS: Final = 5
_UNTOLD: Final = "Name an NVIDIA GPU that the release runs on, another release (--engine-version) or another engine"
_UNTOLD_CACHE: Final = "The other numbers of the plan stand; the engine tells its tokens when it starts"


def parser() -> Parser:
    """The arguments of `plan`; the engine's own flags follow "--"."""
    made = Parser("plan", "Whether a model fits on given GPUs, and what it serves.", _EXAMPLES, _USAGE)
    add_plan_words(made)
    add = made.add_argument_group("what to print or write").add_argument
    numbers = "the arithmetic of each number, or of some: weights, activations, kv_cache ..."
    add("--explain", nargs="?", const="", metavar="KIND", help=numbers)
    add("--unit", type=_unit, choices=("GiB", "GB"), default="GiB", help="of every size (GiB)")
    add("--json", action="store_true", help="the plan as JSON, schema kvplanner.plan/1")
    add("--save", default="", metavar="FILE", help="also write what was asked as a plan file (.kvplan.json)")
    add("--online", action="store_true", help="may ask the Hub for a model that a plan file names")
    far = "how far it goes: longest context, most users of the --load, smallest utilisation, ..."
    add("--solve", choices=ASKED, help=far)
    kinds = "kinds of requests, 70%%:1500+500,30%%:8k+1k: the most users of them, or those of the --load"
    add("--mix", default="", metavar="MIX", help=kinds)
    ways = "list what to change, also for a plan that fits: to serve more, or with less"
    add("--remedies", action="store_true", help=ways)
    add("--markdown", action="store_true", help="the report as Markdown")
    add("--cross-check", action="store_true", help="also ask llama.cpp's own program on this machine (30 s at most)")
    add("--launch", choices=LAUNCHED, help="instead of the report, the command or file that starts it so")
    machines = "so many machines, each with --gpu: pipeline stages over them"
    add("--nodes", type=int, default=1, metavar="N", help=machines)
    return made


def words_from(argv: Sequence[str]) -> tuple[Namespace, PlanWords]:
    """The arguments, and of them what makes a request. Raises BadInput."""
    from kvplanner.request.words import words_of

    ours, flags = split_flags(argv)
    given, extra = parser().parse_known_args(ours)
    given.beside = ""
    if len(extra) == 1 and given.model and not flags:  # "plan qwen3:8b compose.yaml", in either order
        model, other = given.model, extra[0]
        if model.lower().endswith(_TEXTS) != other.lower().endswith(_TEXTS):  # one of the two is a text
            # The text is read, the model's name stands beside it.
            given.model, given.beside = (model, other) if model.lower().endswith(_TEXTS) else (other, model)
            extra = []
    if extra and extra[0].startswith("-"):
        parser().refuse(extra[0], f"The engine's go after --: kvplanner plan MODEL -- {' '.join(extra)[:60]}")
    if extra:
        from kvplanner.request.launch import refuse_other_command

        refuse_other_command(ours, "plan")
        raise BadInput(f"{extra[0]!r} belongs to no flag", "plan", _place(given.gpu, ours, extra[0]))
    if given.explain and not given.model and not flags and not _is_kind(given.explain.split(",")[0]):
        # "plan --explain MODEL": what follows the bare flag is the model.
        given.model, given.explain = given.explain, ""
    forms = {"--markdown": given.markdown, "--json": given.json, "--explain": given.explain is not None,
             "--launch": bool(given.launch)}  # fmt: skip
    if len(asked := [name for name, wanted in forms.items() if wanted]) > 1 and asked != ["--json", "--explain"]:
        raise BadInput("two forms of the plan are asked for", asked[0], f"Name one form: {', '.join(forms)}")
    return given, words_of(given, flags)


# Files whose text starts a server; "-" is standard input.
_TEXTS: Final = (".yaml", ".yml", ".env", ".service", ".sh", ".py", "dockerfile", "modelfile")
_LOGS: Final = (".log", ".txt", ".out")
_LONGEST_TEXT: Final = 1 << 18


def text_of(words: PlanWords) -> bytes | None:
    """The text of standard input or of a file that was named in the model's place, its beginning where it is long.

    None where a model is named. Raises BadInput for a file that cannot be read.
    """
    from pathlib import Path

    from kvplanner.reading import is_there, open_file

    if words.model == "-":
        import sys

        return sys.stdin.buffer.read(_LONGEST_TEXT + 1)
    if not words.model.lower().endswith((*_TEXTS, *_LOGS)) or not is_there(Path(words.model)):
        return None
    with open_file(Path(words.model)) as file:
        return file.read(0, min(file.size, _LONGEST_TEXT + 1))


def with_text(words: PlanWords, data: bytes) -> PlanWords:
    """The words with a text that was named in the model's place. Raises BadInput."""
    if words.flags:
        raise BadInput("a text is read, so no command stands after it", words.model, "Leave out what follows --")
    if not data.strip():
        raise BadInput("holds nothing", words.model, "Give a command, a compose file, a manifest or a call")
    # A blank at its end marks it as a text, also where it is one word.
    return words._replace(model="", flags=(data.decode("utf-8", "replace") + "\n",))


def _is_log(data: bytes) -> bool:
    from kvplanner.request.pasted import is_log

    return is_log(data.decode("utf-8", "replace"))


def _diagnosed(words: PlanWords, given: Namespace, data: bytes) -> int:
    """What a start-up log says, where one was given in the model's place. Raises BadInput for what it cannot have."""
    import sys
    from io import BytesIO
    from pathlib import Path

    from kvplanner.cli.diagnose import show
    from kvplanner.diagnose.diagnosis import diagnose, diagnose_file

    wanted = {"--solve": given.solve, "--mix": given.mix, "--save": given.save, "--launch": given.launch,
              "--explain": given.explain is not None, "--markdown": given.markdown, "--": words.flags}  # fmt: skip
    if asked := [name for name, value in wanted.items() if value]:
        raise BadInput("a start-up log is read, which is told and not planned", asked[0], "Leave it out")
    given.model, given.report = "", ""  # the log names its model
    if words.model != "-":
        return show(diagnose_file(Path(words.model)), given)
    head = BytesIO(data)
    return show(diagnose(lambda size: head.read(size) or sys.stdin.buffer.read(size), "standard input"), given)


def _place(gpu: str | None, words: Sequence[str], word: str) -> str:
    """What to do with a word too many: most often a GPU without its flag, or without quotes round its blank."""
    if gpu and (named := _with_blanks(gpu, words)):
        return f'Put quotes round a name with blanks: --gpu "{named}"'
    example = f', for example --gpu "{word[:40]}"' if _names_gpu(word) else ""
    return f"Name one model; GPUs go with --gpu{example}"


def _with_blanks(gpu: str, words: Sequence[str]) -> str:
    """The name that a GPU and the words behind it make together, the longest; "" where they make none."""
    behind = words.index(gpu) + 1 if gpu in words else len(words)
    named = ""
    for end in range(behind + 1, min(behind + _MOST_WORDS, len(words)) + 1):
        if words[end - 1].startswith("-"):
            break
        together = " ".join((gpu, *words[behind:end]))
        named = together if _names_gpu(together) else named
    return named


def _names_gpu(text: str) -> bool:
    """Whether a text names one GPU or several, or memory of a size."""
    from kvplanner.catalog import gpus

    try:
        gpus.machine(text)
    except UnknownName as error:
        return " fits " in error.what
    except BadInput:
        return False
    return True


def sources(*, online: bool = False) -> Sources:
    """How the terminal finds models and this machine's GPUs.

    Only "hub:" goes online, where the user wrote it. A plan file may come from anyone: what it names is asked of the
    Hub with --online alone.
    """
    from kvplanner.cli.inspect import open_model
    from kvplanner.cli.local import machine
    from kvplanner.request.words import Sources

    return Sources(open_model, machine, open_model if online else _open_kept, calibration=calibration())


def calibration() -> tuple[Calibration, ...]:
    """What the runs that the user keeps say of plans."""
    from kvplanner.files import calibration_file
    from kvplanner.reading import is_there

    path = calibration_file()
    if not is_there(path):  # most have none
        return ()
    from kvplanner.diagnose.runs import in_use

    return in_use(path)


def _open_kept(name: str) -> Model:
    from kvplanner.source.hub.errors import HubError
    from kvplanner.source.resolve import open_model

    try:
        return open_model(name)
    except HubError as error:
        if error.trouble != "offline":
            raise
        remedy = "Write --online to ask the Hub for it, or name a model of this machine"
        raise HubError("offline", "the plan file names a model of the Hub, which is not on this machine", error.where,
                       remedy) from None  # fmt: skip


def make_plan(built: Built) -> Plan:
    """The plan of a request, what was assumed for it among the warnings. Raises PlannerError."""

    from kvplanner.engine.registry import engine

    plan = engine(built.request.engine).plan(built.request)
    return plan._replace(warnings=(*built.warnings, *plan.warnings)) if built.warnings else plan


def save(path: str, built: Built) -> None:
    """Writes what was asked as a plan file that the window and `plan` open again. Raises BadInput."""
    from pathlib import Path

    from kvplanner.catalog.gpus import machine_words
    from kvplanner.engine.command import role_option
    from kvplanner.engine.registry import engine
    from kvplanner.reading import is_there
    from kvplanner.request import planfile

    if not path.endswith(planfile.SUFFIX):
        raise BadInput(f"{path} would not be known as a plan", "--save", f"Give a name that ends in {planfile.SUFFIX}")

    def placed(name: str) -> str:
        # A plan file may lie anywhere: a model's path must not depend on where this command ran.
        return str(Path(name).resolve()) if is_there(Path(name)) else name

    request = built.request
    option = role_option(engine(request.engine), request.version, "draft")
    draft = request.options.get(option.name) if option else None
    if option and draft:
        request = request._replace(options={**request.options, option.name: placed(str(draft))})
    machine = machine_words(request.machine)
    planfile.save(path, planfile.from_request(request, placed(built.model), machine, built.kept))


def _unit(text: str) -> str:
    return {"gib": "GiB", "gb": "GB"}.get(text.lower(), text)


def _is_kind(text: str) -> bool:
    from kvplanner.request.words import kind_of

    return text.strip().lower() == "all" or kind_of(text) is not None


def _kinds(text: str) -> tuple[SegmentKind, ...]:
    """The segment kinds that --explain names, () for all. Raises UnknownName."""
    from kvplanner.engine.segment import SEGMENT_KINDS
    from kvplanner.request.words import kind_of

    parts = [part.strip() for part in text.split(",") if part.strip()]
    if [part.lower() for part in parts] == ["all"]:
        return ()
    wanted = {part: kind_of(part) for part in parts}
    if unknown := [part for part, kind in wanted.items() if kind is None]:
        what = f"{unknown[0]!r} is no part of a device's memory"
        raise UnknownName(what, "--explain", SEGMENT_KINDS, "Name one, or none for all")
    return tuple(kind for kind in SEGMENT_KINDS if kind in wanted.values())


def status_of(plan: Plan) -> int:
    """The exit status that stands for a verdict."""
    return BAD_INPUT if plan.fits is None else FITS if plan.fits else DOES_NOT_FIT


def run(argv: Sequence[str]) -> int:
    """Prints the plan, or what a log says that was given in its place, and returns its status."""
    import sys

    from kvplanner.request.words import build

    given, words = words_from(argv)
    text = text_of(words)
    if text is not None:
        if _is_log(text):
            return _diagnosed(words, given, text)
        words = with_text(words, text)._replace(model=given.beside)
    built = _of_mix(build(words, sources(online=given.online)), given)
    if given.nodes != 1:
        from kvplanner.request.nodes import on_nodes

        request, said = on_nodes(built.request, given.nodes)
        built = built._replace(request=request, warnings=(*built.warnings, said))
    plan = make_plan(built)
    if given.save:
        save(given.save, built)
    try:
        _print(plan, given, built)
        with written():
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough; the verdict stands.
        give_up_output()
    if plan.fits is None:
        from kvplanner.report.sentences import summary

        planned = plan.kv_cache is None and any(device.segment("weights") for device in plan.devices)
        note(f"{sizes_in(summary(plan), given.unit)}. {_UNTOLD_CACHE if planned else _UNTOLD}")
    return status_of(plan)


def _remedies(plan: Plan, built: Built) -> tuple[Remedy, ...]:
    """What to change; nothing where the engine could not tell of the plan at hand."""
    from kvplanner.solve.others import others_with
    from kvplanner.solve.remedies import remedies
    from kvplanner.source.stores.sisters import on_this_machine

    return () if plan.fits is None else remedies(built.request, plan, others_with(on_this_machine))


def _of_mix(built: Built, given: Namespace) -> Built:
    """The request with the kinds of --mix in place of the --load's one; without a load, the most users are asked for.

    Raises BadInput where their number is needed.
    """
    if not given.mix:
        return built
    from kvplanner.engine.request import mixed
    from kvplanner.request.named import parse_mix

    load = built.request.load
    if load is None and given.solve not in (None, "users", "context"):
        raise BadInput("how many users of the mix there are is needed", f"--solve {given.solve}",
                       f"Say it with --load 32@{given.mix[:60]}")  # fmt: skip
    if load is None and given.solve is None:
        given.solve = "users"
    mixed_ = mixed(load.users if load else 1, parse_mix(given.mix))
    return built._replace(request=built.request._replace(load=mixed_))


def solved(given: Namespace, built: Built) -> Solved | None:
    """How far a setting goes, None where nothing was asked. Raises BadInput."""
    asked: Asked | None = given.solve
    if asked is None:
        return None
    from kvplanner.solve.solver import solve

    return solve(asked, built.request)


def _wants_remedies(plan: Plan, given: Namespace) -> bool:
    """Whether a plan's text has them: where it may not fit, runs slowly or does not serve its load, or asked for."""
    load, served = plan.request.load, plan.limits.sure_serves_users
    asked = given.remedies or not plan.sure or bool(plan.moved_bytes)
    return asked or (load is not None and served is not None and served < load.users)


def _asked_engine(plan: Plan, given: Namespace, built: Built) -> Answer | None:
    """The engine's own answer, None where it is not asked for. Raises BadInput where there is none."""
    if not given.cross_check:
        return None
    from kvplanner.observe.crosscheck import cross_check
    from kvplanner.source.resolve import local_path

    return cross_check(plan, local_path(built.model, built.opened))


def _print(plan: Plan, given: Namespace, built: Built) -> None:
    answer = _asked_engine(plan, given, built)
    _print_plan(plan, given, built, answer)
    if answer is not None and not given.json:
        from kvplanner.report.crosscheck import lines

        say("\n".join(["", *lines(plan, answer, given.unit)]))


def _print_plan(plan: Plan, given: Namespace, built: Built, answer: Answer | None) -> None:
    if given.json:
        from kvplanner.report.schema import to_json

        document = to_json(plan, _remedies(plan, built), solved(given, built))
        if answer is not None:
            from kvplanner.report import crosscheck

            document["cross_check"] = crosscheck.to_json(plan, answer)
        emit_json(document)
        return
    if given.launch:
        from kvplanner.report.launch import snippet
        from kvplanner.source.resolve import local_path

        nodes = given.nodes if given.nodes > 1 else built.nodes
        say(snippet(given.launch, plan, local_path(built.model, built.opened), nodes).rstrip("\n"))
        return
    from kvplanner.report import text as report

    if given.explain is not None:
        say(report.explain(plan, _kinds(given.explain), unit=given.unit).rstrip("\n"))
    elif given.markdown:
        say(report.markdown(plan, unit=given.unit).rstrip("\n"))
    else:
        from kvplanner.cli import colour

        shown = report.text(plan, unit=given.unit, width=width()).rstrip("\n").split("\n")
        found = solved(given, built)
        if found is not None:
            from kvplanner.report.solved import solved_lines

            shown[1:1] = solved_lines(plan, found)
        if _wants_remedies(plan, given):
            from kvplanner.report.remedies import lines

            most = _MOST_REMEDIES if not given.remedies else len(shown)
            shown += lines(plan, _remedies(plan, built), unit=given.unit, width=width(), most=most)
        text = "\n".join(map(printable, shown))
        say(colour.coloured(text, plan.fits) if colour.wanted() else text, painted=True)
