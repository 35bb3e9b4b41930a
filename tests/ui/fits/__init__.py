"""What fits, in the window."""
