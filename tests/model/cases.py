"""Public configs that the program had never seen, by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CASES: dict[str, dict[str, Any]] = {
    row["name"]: row
    for row in map(json.loads, Path(__file__).with_name("config_cases.jsonl").read_text("utf-8").splitlines())
}
