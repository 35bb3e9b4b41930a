"""Tests of the window; they need no display."""

import os

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
