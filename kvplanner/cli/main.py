"""Finds the command, runs it, and turns what goes wrong into one line and an exit status.

Each command's module is imported when it is asked for, so that none pays for another.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

from kvplanner.cli.output import FITS, OutputFailed, complain, give_up_output, make_printable, say, written
from kvplanner.errors import BadInput, PlannerError, UnknownName
from kvplanner.reading import unreadable

if TYPE_CHECKING:
    from kvplanner.cli.report import PdfMaker

COMMANDS: Final[dict[str, str]] = {
    "plan": "does a model fit, where the memory goes, and what it serves",
    "fits": "what fits a machine, and which machine a model needs",
    "compare": "plans side by side: what differs, and by how much",
    "together": "several servers on the same GPUs, in their order of start",
    "sweep": "one setting over its range, or two as a map: tokens, users, the first limit",
    "nodes": "machines for a number of users, or users for a number of machines",
    "report": "a plan as a page to hand on: HTML, PDF or a short Markdown",
    "inspect": "what a model is: tensors, bytes, layers, KV cache",
    "diagnose": "a start-up log: how far it came, why it failed, what was measured",
    "calibrations": "runs whose figures replace estimates in plans like them",
    "models": "the bundled models, searched",
    "gpus": "the GPUs known here, or those of this machine (--local)",
    "data": "how old the data are, and packs of newer ones",
    "gui": "the window",
}
_INTERRUPTED: Final = 130
_GIVE_OUTPUT: Final = "Send it to a terminal, a pipe or a file with room"

_USAGE: Final = """kvplanner plans the GPU memory of {engines} before a server is started.

  kvplanner                          opens the window
  kvplanner plan MODEL --gpu 2xH100 [-- ENGINE FLAGS]
  kvplanner plan --gpu H100 -- vllm serve MODEL ...

Commands:
{commands}

kvplanner COMMAND --help tells more, with examples. Nothing goes online unless a model is named as hub:ORG/NAME.
Exit status: 0 fits, 1 does not fit, 2 bad input or cannot be told.
"""

_GUI_USAGE: Final = """usage: kvplanner gui [FILE | MODEL and what plan takes | vllm serve MODEL ...]
       kvplanner gui --screenshot OUT.png [--size 1280x800] [--scale 2] [--theme light|dark|contrast] [FILE | MODEL ...]

Opens the window with a plan (.kvplan.json), a model folder or file, a start-up log (.log, .txt, .out, .jsonl), or a
model and the arguments of kvplanner plan.

  --screenshot OUT.png  renders that state and exits; needs no display
  --size WxH            of the window or the picture, 680x420 or more
  --scale FACTOR        0.5 to 4: pixels of the picture for each of the window's (QT_SCALE_FACTOR scales both)
  --theme NAME          light, dark or contrast, instead of the system's
  --tab NAME            the tab to show: Explain, Start-up, Log …
  --safe-mode           with default settings, and without what was open before
  {flags}
                        what to plan, as kvplanner plan --help tells; then the engine's flags after --, or its
                        whole command line: kvplanner gui --gpu H100 vllm serve MODEL ...
"""


def _engines() -> str:
    """Which there are, as a list in a sentence."""
    from kvplanner.engine.registry import titles

    *first, last = (title for _, title in titles())
    return f"{', '.join(first)} and {last}"


def run(argv: Sequence[str], pdf: PdfMaker | None = None) -> int:
    """Runs a terminal command and returns the exit status; argv without the program's name.

    pdf: what makes a PDF of a report, None where nothing can.
    """
    if sys.stdout is None:
        return complain(BadInput("standard output is closed", "", _GIVE_OUTPUT))
    make_printable()
    try:
        status = _run(list(argv), pdf)
        with written():
            sys.stdout.flush()
    except PlannerError as error:
        return complain(error)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`| head`): nothing is left to say.
        give_up_output()
        return FITS
    except OutputFailed as error:
        give_up_output()
        return complain(BadInput(f"the output cannot be written: {error.strerror or error}", "", _GIVE_OUTPUT))
    except OSError as error:
        return complain(unreadable(str(error.filename or "a file"), error))
    return status


def plan_start_model() -> int:
    """The text plan of the model that the window starts with, for machines that cannot show one."""
    from kvplanner.request.start import START_MODEL

    return run(["plan", START_MODEL])


def gui_usage() -> str:
    """What `gui` takes."""
    import textwrap

    from kvplanner.request.flags import PLAN_FLAGS

    flags = textwrap.fill(" ".join(f"{f.name}\u00a0{f.metavar}" for f in PLAN_FLAGS), 112, subsequent_indent="  ")
    return _GUI_USAGE.format(flags=flags.replace("\u00a0", " "))


def _run(argv: list[str], pdf: PdfMaker | None = None) -> int:
    if argv and argv[0] == "help" and argv[1:] and argv[1] in COMMANDS:
        argv = [argv[1], "--help"]
    if not argv or argv[0] in ("-h", "--help", "help"):
        commands = "\n".join(f"  kvplanner {c:<12} {text}" for c, text in COMMANDS.items())
        say(_USAGE.format(commands=commands, engines=_engines()).rstrip())
        return 0
    if argv[0] in ("-V", "--version", "version"):
        import kvplanner

        say(f"kvplanner {kvplanner.__version__}")
        return 0
    command, rest = argv[0], argv[1:]
    if command == "gui":
        # Only its help comes here: the composition root opens the window.
        say(gui_usage().rstrip())
        return 0
    if command.startswith("-"):
        raise BadInput("a command is missing", "", f"Write kvplanner plan {' '.join(argv)[:80]}")
    if command not in COMMANDS:
        from difflib import get_close_matches

        near = tuple(get_close_matches(command, COMMANDS, n=2))
        plans = f"kvplanner plan {' '.join(argv)[:80]} plans a model or a command line"
        remedy = "kvplanner --help tells what each does"
        raise UnknownName(f"there is no command {command!r}", "", near, remedy if near else f"{plans}; {remedy}")
    module = import_module(f"kvplanner.cli.{command}")
    status: int = module.run(rest, pdf) if command == "report" else module.run(rest)
    return status
