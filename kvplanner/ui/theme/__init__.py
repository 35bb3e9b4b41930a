"""Colours, style and ink, light and dark."""
