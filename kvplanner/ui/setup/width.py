"""How wide the form is: known before the form is made, since its ground shows first."""

from typing import Final

PANEL_WIDTH: Final = 330
