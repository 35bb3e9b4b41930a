"""From a plan to words and rows, without Qt."""
