"""What to change, beside the plan: found by a worker, applied in one step."""
