"""Where the packaged programs start: kvplanner-gui opens the window, kvplanner does as its words say."""

import sys
from pathlib import Path

from kvplanner.__main__ import gui, main

sys.exit(gui() if Path(sys.argv[0]).stem == "kvplanner-gui" else main())
