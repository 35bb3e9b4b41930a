"""What a package says of itself: the parts in it with versions and licences (SBOM), their texts, and checksums."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from system_libraries import SystemLibrary, system

# Distributions whose modules are in the application; Python itself comes on top.
_PARTS = (
    "PySide6_Essentials", "shiboken6", "pyqtgraph", "numpy", "nvidia-ml-py", "huggingface_hub", "psutil",
    "prometheus_client", "PyNaCl", "cffi", "anyio", "certifi", "click", "colorama", "filelock", "fsspec", "h11",
    "httpcore2", "httpx2", "idna", "packaging", "PyYAML", "tqdm", "truststore", "typing_extensions", "pyinstaller",
)  # fmt: skip
_WITHIN_PYSIDE = ("Qt 6 (LGPL-3.0-only)", "ICU 73 (Unicode-3.0)")
_TEXTS = ("LICEN", "COPYING", "NOTICE")


def parts() -> Iterator[metadata.Distribution]:
    """The distributions that the application holds, as they are installed here."""
    for name in sorted(_PARTS, key=str.lower):
        try:
            yield metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue


def licence(part: metadata.Distribution) -> str:
    """The licence that a distribution states, as SPDX where it does so."""
    about = part.metadata
    stated = next((str(about[field]) for field in ("License-Expression", "License") if field in about), "")
    if not stated or len(stated) > 80 or "\n" in stated:
        classes = about.get_all("Classifier") or []
        stated = " AND ".join(c.rpartition(" :: ")[2] for c in classes if c.startswith("License :: OSI")) or stated[:80]
    return stated.split("\n")[0]


def sbom(version: str, python: str, libraries: Iterable[SystemLibrary] = ()) -> str:
    """A CycloneDX 1.6 document: every part with version and licence. The same parts give the same bytes.

    libraries: of the building system, which lie in the application.
    """
    components: list[dict[str, Any]] = [
        {
            "type": "library", "name": part.metadata["Name"], "version": part.version,
            "purl": f"pkg:pypi/{part.metadata['Name'].lower().replace('_', '-')}@{part.version}",
            "licenses": [{"license": {"name": licence(part)}}],
        }
        for part in parts()
    ]  # fmt: skip
    components.append({"type": "platform", "name": "CPython", "version": python,
                       "licenses": [{"license": {"id": "PSF-2.0"}}]})  # fmt: skip
    qt = metadata.version("PySide6_Essentials")
    components += [
        {"type": "library", "name": "Qt", "version": qt, "licenses": [{"license": {"id": "LGPL-3.0-only"}}]},
        {"type": "library", "name": "ICU", "version": "73", "licenses": [{"license": {"id": "Unicode-3.0"}}]},
    ]
    components += [_of_system(library, system()) for library in libraries]
    about = {
        "type": "application",
        "name": "kvplanner",
        "version": version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    document = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": about},
                "components": components}  # fmt: skip
    return json.dumps(document, indent=1) + "\n"


def _of_system(library: SystemLibrary, distribution: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "library", "name": library.name, "hashes": [{"alg": "SHA-256", "content": library.sha256}],
    }  # fmt: skip
    if library.package:
        found |= {
            "version": library.version,
            "purl": f"pkg:deb/{distribution}/{library.package}@{library.version}",
            "licenses": [{"license": {"name": f"as stated in the copyright file of {library.package}"}}],
        }
    return found


def licences(own: str, libraries: Iterable[SystemLibrary] = ()) -> str:
    """The licence of kvplanner, then every text that the parts and the building system's libraries bring along."""
    rule = "\n\n" + "=" * 100 + "\n"
    texts = [own]
    for part in parts():
        head = f"{rule}{part.metadata['Name']} {part.version}: {licence(part)}\n"
        if part.metadata["Name"].lower().startswith("pyside6"):
            head += f"with {', '.join(_WITHIN_PYSIDE)}; the libraries lie as files of their own and can be replaced\n"
        texts.append(head)
        files = [f for f in part.files or () if f.name.upper().startswith(_TEXTS) and ".dist-info" in str(f)]
        texts += [f"\n-- {file.name}\n\n{_text(Path(str(file.locate())))}" for file in sorted(files, key=str)]
    alike: dict[str, list[str]] = {}
    for library in libraries:
        alike.setdefault(library.text, []).append(f"{library.name} of {library.package or 'the building system'}")
    texts += [f"{rule}{', '.join(names)}\n\n{text}" for text, names in alike.items()]
    return "".join(texts)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def checksums(files: Iterable[Path]) -> str:
    """Lines that `sha256sum --check` reads."""
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(files))


def add_checksums(folder: Path, files: Iterable[Path]) -> None:
    """Have a folder's SHA256SUMS hold these files beside those that others put there and that are there still."""
    sums = folder / "SHA256SUMS"
    before = sums.read_text(encoding="ascii").splitlines() if sums.exists() else []
    there = {folder / name for _, _, name in (line.partition("  ") for line in before) if (folder / name).is_file()}
    sums.write_text(checksums(there | set(files)), encoding="ascii")
