"""Dialogs and the help viewer."""
