#!/usr/bin/env python3
"""Make a data pack: newer models, GPUs and engine constants in one signed file, for machines without a network.

  build_pack.py key KEYFILE                     a new key; prints the fingerprint that users compare
  build_pack.py pack INPUT.json KEYFILE FOLDER  checks every record as kvplanner does, and writes NAME.kvpack

INPUT.json has name, made (YYYY-MM-DD), by, and any of models, gpus and constants: records as in resources/models and
resources/gpus (models also with family, license, released), constants as in resources/vllm_constants.json, by engine.
Run it with the environment of the program: .venv/bin/python packaging/build_pack.py
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from nacl.signing import SigningKey

from kvplanner import packfile, packs
from kvplanner.errors import PlannerError
from kvplanner.report.data import contents


def signed(body: dict[str, object], key: SigningKey) -> bytes:
    """The bytes of a pack's file."""
    data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    head = {
        "schema": packfile.SCHEMA,
        "key": bytes(key.verify_key).hex(),
        "signature": key.sign(data).signature.hex(),
    }
    return json.dumps(head).encode() + b"\n" + data


def new_key(path: Path) -> str:
    """Write a new key that only its owner can read, and return its fingerprint. Raises OSError where one is there."""
    key = SigningKey.generate()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(bytes(key).hex() + "\n")
    return packfile.fingerprint(bytes(key.verify_key).hex())


def make(source: Path, key_file: Path, folder: Path) -> Path:
    """Write the pack of `source` and return its path. Raises BadInput for a record that cannot be used."""
    key = SigningKey(bytes.fromhex(key_file.read_text(encoding="ascii").strip()))
    data = signed(json.loads(source.read_text(encoding="utf-8")), key)
    with tempfile.TemporaryDirectory() as scratch:
        tried = Path(scratch, source.name)
        tried.write_bytes(data)
        pack = packs.checked(tried)[0]
    target = folder / f"{pack.name}{packfile.SUFFIX}"
    target.write_bytes(data)
    print(f"{target.name}: {contents(pack)}, signed by {packfile.fingerprint(pack.key)}")
    return target


def main() -> int:
    """Returns 0 when done, 1 for a pack that cannot be made, 2 for other arguments."""
    args = sys.argv[1:]
    try:
        if args[:1] == ["key"] and len(args) == 2:
            print(f"fingerprint {new_key(Path(args[1]))}: publish it, and keep the file {args[1]} to yourself")
            return 0
        if args[:1] == ["pack"] and len(args) == 4:
            make(*map(Path, args[1:]))
            return 0
    except (PlannerError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print((__doc__ or "").strip(), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
