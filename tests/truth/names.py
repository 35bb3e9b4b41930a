"""What the reports' loose model names mean: catalogue id, and the weight format where it is not the file's own."""

from __future__ import annotations

from typing import Final

READ_AS: Final[dict[str, tuple[str, str | None]]] = {
    "meta-llama/Meta-Llama-3-8B": ("meta-llama/Meta-Llama-3-8B-Instruct", None),
}
