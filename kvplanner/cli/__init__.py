"""The terminal: the same core without Qt."""
