"""The manual page and the shells' completions, made from the program's own arguments: neither can lag behind them."""

from __future__ import annotations

import sys
from argparse import Action, ArgumentParser
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from kvplanner import __version__  # noqa: E402 - after the folders that it lies in
from kvplanner.catalog import gpus, models  # noqa: E402 - after the folders that it lies in
from kvplanner.cli.main import COMMANDS  # noqa: E402 - after the folders that it lies in
from kvplanner.engine import registry  # noqa: E402 - after the folders that it lies in
from kvplanner.errors import PlannerError  # noqa: E402 - after the folders that it lies in

PARSERS: dict[str, ArgumentParser] = {
    command: import_module(f"kvplanner.cli.{command}").parser() for command in COMMANDS if command != "gui"
}
TABS = ("Explain", "Start-up", "Log", "Ways", "What fits", "Compare", "Launch")
# What the window takes besides what `plan` takes: flag, what follows it, what it does.
WINDOW: tuple[tuple[str, str, str], ...] = (
    ("--screenshot", "OUT.png", "renders the window and exits; needs no display"),
    ("--size", "WxH", "of the window or the picture"),
    ("--scale", "FACTOR", "pixels of the picture for each of the window's, 0.5 to 4"),
    ("--theme", "light|dark|contrast", "instead of the system's"),
    ("--tab", "NAME", f"the tab to show: {', '.join(TABS)}"),
    ("--safe-mode", "", "with default settings, and without what was open before"),
)
# What may follow a flag, and stand first behind a command.
VALUES: dict[str, tuple[str, ...]] = {
    "--theme": ("light", "dark", "contrast"),
    "--tab": tuple(tab for tab in TABS if " " not in tab),  # a shell would take two words for two choices
    "--engine": registry.names(), "--gpu": ("local", *(entry.id for entry in gpus.index())),
    **{
        action.option_strings[-1]: tuple(map(str, action.choices))
        for parser in PARSERS.values() for action in parser._actions if action.option_strings and action.choices
    },
}  # fmt: skip
ACTIONS: dict[str, tuple[str, ...]] = {
    command: tuple(map(str, action.choices))
    for command, parser in PARSERS.items() for action in parser._actions if action.choices and not action.option_strings
}  # fmt: skip
# Commands that take a model.
OF_MODELS = ("plan", "fits", "compare", "together", "sweep", "nodes", "report", "inspect", "models", "gui")
_HEAD = """.SH NAME
kvplanner \\- plan the GPU memory of an LLM server before it is started
.SH SYNOPSIS
.B kvplanner
[\\fIFILE\\fR]
.br
.B kvplanner plan
\\fIMODEL\\fR \\fB\\-\\-gpu\\fR \\fISPEC\\fR [\\fIOPTIONS\\fR] [\\fB\\-\\-\\fR \\fIENGINE FLAGS\\fR]
.br
.B kvplanner
\\fICOMMAND\\fR [\\fIOPTIONS\\fR]
.SH DESCRIPTION
Tells whether a model fits on given GPUs, where the memory goes, how much KV cache is left, and how many tokens and
users that is.
Nothing goes online unless a model is named as \\fBhub:\\fR\\fIORG/NAME\\fR.
Without a command, or with a file, the window opens; where there is no display, a plan is printed.
.SH COMMANDS
"""
FILES = ("--save", "--screenshot")
OPENED = ("kvplan.json", "gguf", "safetensors", "json")


def flags(parser: ArgumentParser) -> Iterator[tuple[str, str, str]]:
    """Each flag with what follows it ("" for nothing) and what it does."""
    for action in parser._actions:
        if action.option_strings:
            yield action.option_strings[-1], _metavar(action), (action.help or "").replace("%%", "%")


def _metavar(action: Action) -> str:
    if action.nargs == 0:
        return ""
    return str(action.metavar or "|".join(map(str, action.choices or ())) or action.dest.upper())


def of_command(command: str) -> tuple[tuple[str, str, str], ...]:
    """The flags of a command; those of the window are its own and those that say what to plan."""
    if command != "gui":
        return tuple(flags(PARSERS[command]))
    from kvplanner.request.flags import PLAN_FLAGS

    return (*WINDOW, *((flag.name, flag.metavar, flag.help) for flag in PLAN_FLAGS))


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def man_page(date: str) -> str:
    """The page kvplanner(1) in roff. date: of the release, "2026-11-29"."""
    lines = [f'.TH KVPLANNER 1 "{date}" "kvplanner {__version__}" "User Commands"', *_HEAD.splitlines()]
    for command, about in COMMANDS.items():
        lines += [f".SS kvplanner {command}", _roff(f"{about[0].upper()}{about[1:]}.")]
        for flag, follows, does in of_command(command):
            lines += [".TP", f"\\fB{_roff(flag)}\\fR" + (f" \\fI{_roff(follows)}\\fR" if follows else ""), _roff(does)]
    lines += [
        ".SH EXIT STATUS", ".TP", "0", "the plan fits", ".TP", "1", "it does not fit", ".TP", "2",
        "bad input, or it cannot be told", ".SH ENVIRONMENT", ".TP", ".B KVPLANNER_DATA_DIR",
        "where settings and sessions lie, instead of the desktop's place for them", ".TP",
        ".B HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_OFFLINE", "as the Hub's own client reads them", ".TP", ".B NO_COLOR",
        "no colours in the terminal", ".SH FILES", ".TP", ".I *.kvplan.json", "what was asked, to be opened again",
        ".SH EXAMPLES", ".nf", *map(_roff, _examples()), ".fi",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _examples() -> list[str]:
    text = (PARSERS["plan"].epilog or "").split("examples:")[1].split("\n\n")[0]
    return [line.strip() for line in text.strip().splitlines()]


def model_names() -> tuple[str, ...]:
    """What the catalogue's models are called: the last part of an id where that finds it, else the whole."""
    return tuple(sorted({_shortest(entry.id) for entry in models.index()}, key=str.lower))


def _shortest(one: str) -> str:
    last = one.rpartition("/")[2]
    try:
        return last if models.find(last).id == one else one
    except PlannerError:
        return one


def _kept(value: str) -> str:
    return value.replace("'", "'\\''")


def bash_completion() -> str:
    """For bash: commands, flags, their values, models whatever their case, and files that can be opened."""
    cases = "\n".join(
        f"        {command}) flags='{' '.join(flag for flag, _, _ in of_command(command))}' ;;" for command in COMMANDS
    )
    values = "\n".join(f"        {flag}) words='{' '.join(words)}' ;;" for flag, words in VALUES.items())
    actions = "\n".join(f"        {command}) words='{' '.join(words)}' ;;" for command, words in ACTIONS.items())
    return f"""# bash completion for kvplanner
_kvplanner_models='{" ".join(model_names())}'

_kvplanner() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} flags='' words='' name
    case "$before" in
{values}
        {"|".join(FILES)}) COMPREPLY=($(compgen -f -- "$word")); return ;;
    esac
    if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$word")); return; fi
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W '{" ".join(COMMANDS)} --help --version' -- "$word") $(compgen -f -- "$word"))
        return
    fi
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    case "${{COMP_WORDS[1]}}" in
{actions}
    esac
    case "$word" in
        -*) COMPREPLY=($(compgen -W "$flags" -- "$word")); return ;;
    esac
    if [ -n "$words" -a "$COMP_CWORD" -eq 2 ]; then COMPREPLY=($(compgen -W "$words" -- "$word")); return; fi
    COMPREPLY=($(compgen -f -- "$word"))
    case "${{COMP_WORDS[1]}}" in
        {"|".join(OF_MODELS)})
            for name in $_kvplanner_models; do
                if [[ -n $word && ${{name,,}} == "${{word,,}}"* ]]; then COMPREPLY+=("$name"); fi
            done ;;
    esac
}}
complete -o filenames -F _kvplanner kvplanner kvplanner-gui
"""


def zsh_completion() -> str:
    """For zsh, with what each flag does."""
    names = " ".join(f"'{name}'" for name in model_names())
    parts = ["#compdef kvplanner kvplanner-gui", "", "_kvplanner_models() {", "  local -a names", f"  names=({names})"]
    parts += ["  compadd -M 'm:{a-zA-Z}={A-Za-z}' -a names", "  _files", "}", ""]
    parts += ["_kvplanner() {", "  local -a commands", "  commands=("]
    parts += [f"    '{command}:{_kept(about)}'" for command, about in COMMANDS.items()]
    parts += ["  )", "  if (( CURRENT == 2 )); then", "    _describe command commands", "    _files", "    return"]
    parts += ["  fi", "  case $words[2] in"]
    for command in COMMANDS:
        parts += [f"    {command})", "      _arguments \\"]
        for flag, follows, does in of_command(command):
            about = _kept(does).replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
            value = f":{_kept(follows).replace(':', ' ')}:{_zsh_values(flag)}" if follows else ""
            parts.append(f"        '{flag}[{about}]{value}' \\")
        if command in ACTIONS:
            parts.append(f"        '2:what to do:({' '.join(ACTIONS[command])})' \\")
        rest = "model:_kvplanner_models" if command in OF_MODELS else "file:_files"
        parts += [f"        '*:{rest}'", "      ;;"]
    return "\n".join([*parts, "  esac", "}", "", '_kvplanner "$@"', ""])


def _zsh_values(flag: str) -> str:
    return f"({' '.join(VALUES[flag])})" if flag in VALUES else "_files" if flag in FILES else " "


def fish_completion() -> str:
    """For fish, with what each flag does."""
    none = "not __fish_seen_subcommand_from " + " ".join(COMMANDS)
    lines = [
        f"complete -c kvplanner -n '{none}' -a '{command}' -d '{_kept(about)}'" for command, about in COMMANDS.items()
    ]
    lines.append(f"set -g __kvplanner_models {' '.join(model_names())}")
    of_models = f"__fish_seen_subcommand_from {' '.join(OF_MODELS)}"
    lines.append(f"complete -c kvplanner -n '{of_models}' -a '$__kvplanner_models'")
    for command, words in ACTIONS.items():
        first = f"__fish_seen_subcommand_from {command}; and test (count (commandline -opc)) -eq 2"
        lines.append(f"complete -c kvplanner -n '{first}' -a '{' '.join(words)}'")
    for command in COMMANDS:
        seen = f"__fish_seen_subcommand_from {command}"
        for flag, follows, does in of_command(command):
            if not flag.startswith("--"):
                continue
            value = f" -x -a '{' '.join(VALUES[flag])}'" if flag in VALUES else " -r" if follows else ""
            lines.append(f"complete -c kvplanner -n '{seen}' -l {flag[2:]}{value} -d '{_kept(does)}'")
    return "\n".join(lines) + "\n"
