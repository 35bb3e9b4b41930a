"""The Local GPU panel: what this machine's GPUs hold, beside the plan."""
