"""What no pool holds: the context before the baseline, and everything that must live in the slack."""
