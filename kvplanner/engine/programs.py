"""An engine's other commands as its server: "ollama run qwen3:8b", "llama-bench -m FILE -p 512,4096 -fa 1"."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kvplanner.engine.signature import Program

_VALUES: Final = re.compile(r"\d{1,9}(?:[,+x*-]\d{1,9})*")


def as_server(program: Program, words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The model that the words behind such a command name ("" for one named by a flag), and the words of a server.

    words: behind the command's own. Of a range or list of values the largest counts: memory is what is asked about.
    """
    if program.renamed:
        return "", (*program.words, *_translated(program, words))
    if program.talks:
        return next(_plain(program, words), ""), (*program.words, *_flags(program, words))
    return "", (*program.words, *_context(program, words), *_kept(program, words))


_YES: Final = frozenset({"1", "on", "t", "true", "y", "yes"})


def variables_of(program: Program, environment: Mapping[str, str]) -> Iterator[str]:
    """The program's own flags that variables stand for."""
    flags = {
        flag.lstrip("-").upper(): flag
        for flag in (*(flag for flag, _ in program.renamed), *(flag for flag, _, _ in program.toggles))
    }
    for name, value in environment.items() if program.variables else ():
        if value and name.upper() in flags:
            yield f"{flags[name.upper()]}={value}"


def _translated(program: Program, words: Sequence[str]) -> Iterator[str]:
    """A server's words for those of a program that spells every flag its own way."""
    renamed, toggles = dict(program.renamed), {flag: (on, off) for flag, on, off in program.toggles}
    rest = deque(words)
    repository, pattern, file = program.of_repository
    if repository and any(word.partition("=")[0] == repository for word in words):
        renamed[pattern] = file
    while rest:
        word = rest.popleft()
        spelled, equals, inline = word.partition("=")
        flag = f"--{spelled[2:].replace('-', '_')}" if spelled.startswith("--") else spelled
        if flag not in renamed and flag not in toggles and flag not in program.dropped:
            yield word
            continue
        values = [inline] if equals else []
        while rest and not equals and (not values or flag in program.joined) and not _is_flag(rest[0]):
            values.append(rest.popleft())
        value = ",".join(part.strip("[]() ") for part in values)
        if flag in toggles:
            on, off = toggles[flag]
            yield from on if value.lower() in _YES else off
        elif flag in renamed:
            value = value.replace("*", "-") if renamed[flag] == file else value
            yield from _worded(program, flag, value, renamed[flag])


def _is_flag(word: str) -> bool:
    """Whether a word is a flag, and no negative number."""
    return word.startswith("-") and not re.fullmatch(r"-\d+(?:\.\d+)?", word)


def _plain(program: Program, words: Sequence[str]) -> Iterator[str]:
    """The words that are no flag and no flag's value."""
    rest = iter(words)
    for word in rest:
        if word in program.dropped:
            next(rest, "")
        elif not word.startswith("-"):
            yield word


def _flags(program: Program, words: Sequence[str]) -> Iterator[str]:
    """The flags that are none of the command's own, so that they are refused or read as a server's."""
    for word in words:
        name = word.partition("=")[0]
        if word.startswith("-") and name not in program.dropped and name not in program.switches:
            yield word


def _kept(program: Program, words: Sequence[str]) -> Iterator[str]:
    """The words that a server takes too, of several values the largest."""
    sized = {*(flag for flags, _ in program.tests for flag in flags), *program.pairs, *program.depth}
    known = {flag for flags, _, _ in program.as_words for flag in flags}
    rest = iter(words)
    for word in rest:
        flag, equals, inline = word.partition("=")
        if flag in program.switches:
            continue
        if flag in program.dropped or flag in sized:
            _ = inline if equals else next(rest, "")
        elif flag in known:
            values = (inline if equals else next(rest, "")).split(",")
            yield from max((_worded(program, flag, value) for value in values), key=len)
        elif program.listed and not word.startswith("-") and _VALUES.fullmatch(word):
            yield str(_largest(word))
        else:
            yield word


def _worded(program: Program, flag: str, value: str, called: str = "") -> tuple[str, ...]:
    """A server's words for a flag with a value; the flag itself, or as it is called there, where values are alike."""
    for flags, given, words in program.as_words:
        if flag in flags and value == given:
            return words
    return called or flag, value


def _context(program: Program, words: Sequence[str]) -> tuple[str, ...]:
    """The context that the tests of a benchmark take, as the flag of a server."""
    if not program.tests:
        return ()
    asked = [_asked(words, flags, usual) for flags, usual in program.tests]
    pairs = [sum(map(int, re.findall(r"\d{1,9}", value))) for value in _values(words, program.pairs)]
    return "--ctx-size", str(max((*asked, *pairs, 1)) + _asked(words, program.depth, 0))


def _asked(words: Sequence[str], flags: Sequence[str], usual: int) -> int:
    found = [_largest(value) for value in _values(words, flags)]
    return max(found, default=usual)


def _values(words: Sequence[str], flags: Sequence[str]) -> Iterator[str]:
    for word, following in zip(words, (*words[1:], ""), strict=True):
        flag, equals, inline = word.partition("=")
        if flag in flags:
            yield inline if equals else following


def _largest(text: str) -> int:
    """Of "512,4096", or of a range "0-8192+512" or "1-64*2", the largest."""
    ends = [int(number) for part in text.split(",") for number in re.findall(r"\d{1,9}", re.split(r"[+*x]", part)[0])]
    return max(ends, default=0)
