"""The commands behind the menus."""
