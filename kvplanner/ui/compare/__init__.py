"""The Compare tab: pinned plans beside the one that is edited, and one setting over its range."""
