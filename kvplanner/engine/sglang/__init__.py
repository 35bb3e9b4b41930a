"""SGLang: the pools are sized from measured free memory; what breaks lives in the slack beside them."""

from typing import Final

TITLE: Final = "SGLang"
