"""The memory bars: a layout that knows no Qt, one painter for screen and files, and the widget."""
