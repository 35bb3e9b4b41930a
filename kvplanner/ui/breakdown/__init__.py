"""The breakdown table."""
