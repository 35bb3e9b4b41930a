"""Models that other programs keep on this machine, and the search for them."""
