"""Makes ICU's data as small as an English interface needs: 32 MB of names and rules of all languages become 3 MB.

Qt links ICU for sorting, time zones and encodings. What is left serves those in English and at ICU's root, which the
application sets as its language; every other language falls back to the root. Where texts break Qt knows itself. Needs
icupkg (Debian: icu-devtools), which reads the data of other versions too, and gcc.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

_ENGLISH = re.compile(
    r"(?:(?!brkitr)[a-z]+/)?(?:root|en(?:_[A-Z0-9]+)*|res_index|pool|supplementalData|tzdbNames|ucadata)\.(?:res|icu)"
)
# At the top: the data that belong to no language, without tables of encodings and of prepared strings.
_COMMON = re.compile(
    r"(?:[a-z]+[A-Z][A-Za-z]+|metadata|plurals|icustd|icuver|zoneinfo64|units|ulayout|uemoji|nfkc|nfkc_cf|uts46"
    r"|cnvalias)\.(?:res|icu|nrm)"
)
_SYMBOL = re.compile(rb"(icudt\d+)_dat\0")


def trim(library: Path) -> int:
    """Rewrites libicudata.so in place; returns the bytes that were saved, 0 where the tools are missing.

    Raises CalledProcessError, and ValueError for a library that does not hold what ICU's does.
    """
    if shutil.which("icupkg") is None or shutil.which("gcc") is None:
        return 0
    before = library.read_bytes()
    name, data = _data_of(before)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        # The items are called after the file that they are in.
        whole, small = folder / f"{name}l.dat", folder / "small" / f"{name}l.dat"
        small.parent.mkdir()
        whole.write_bytes(data)
        listed = subprocess.run(["icupkg", "-l", whole], capture_output=True, text=True, check=True).stdout.split()
        gone = [i for i in listed if not (_ENGLISH.fullmatch(i) or _COMMON.fullmatch(i))]
        if len(gone) == len(listed):
            raise ValueError(f"{library} holds nothing that is known")
        (folder / "gone.txt").write_text("\n".join(gone) + "\n", encoding="ascii")
        subprocess.run(["icupkg", "-r", folder / "gone.txt", whole, small], check=True)
        source = folder / "data.s"
        source.write_text(
            f".section .rodata\n.balign 16\n.globl {name}_dat\n.type {name}_dat, %object\n{name}_dat:\n"
            f'.incbin "{small}"\n.size {name}_dat, . - {name}_dat\n.section .note.GNU-stack,"",%progbits\n',
            encoding="ascii",
        )
        made = folder / library.name
        link = ["-shared", "-nostdlib", "-Wl,--build-id=none", f"-Wl,-soname,{library.name}"]
        subprocess.run(["gcc", *link, "-o", made, source], check=True)
        library.write_bytes(made.read_bytes())
    return len(before) - library.stat().st_size


def _data_of(elf: bytes) -> tuple[str, bytes]:
    """ICU's name for its data and the data themselves, out of a 64-bit ELF library. Raises ValueError."""
    found = _SYMBOL.search(elf)
    # The head of a package: its size, the magic bytes, and that it is a common one ("CmnD").
    start = elf.find(b"CmnD") - 12
    if found is None or start < 0 or elf[start + 2 : start + 4] != b"\xda\x27":
        raise ValueError("no data of ICU")
    names, strings = _sections(elf)
    for value, size, at in names:
        if strings[at : strings.index(b"\0", at)] == found[1] + b"_dat":
            # The data lie in the first segment, whose addresses are places in the file.
            return found[1].decode(), elf[value : value + size]
    raise ValueError("no symbol of ICU's data")


def _sections(elf: bytes) -> tuple[list[tuple[int, int, int]], bytes]:
    """The dynamic symbols as (address, size, place of the name), and the text that holds the names."""
    table, size, count = struct.unpack_from("<Q", elf, 40)[0], *struct.unpack_from("<HH", elf, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * size) for i in range(count)]
    symbols = next(head for head in heads if head[1] == 11)
    text = heads[symbols[6]]
    rows = [struct.unpack_from("<IBBHQQ", elf, symbols[4] + i * 24) for i in range(symbols[5] // 24)]
    return [(row[4], row[5], row[0]) for row in rows], elf[text[4] : text[4] + text[5]]
