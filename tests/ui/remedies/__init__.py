"""Remedies in the window."""
