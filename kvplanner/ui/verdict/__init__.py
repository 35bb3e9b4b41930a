"""The verdict card."""
