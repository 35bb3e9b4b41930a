"""What a start-up log says, beside the plan."""
