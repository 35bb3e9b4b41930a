"""The Launch tab: the command that starts the plan, in each form."""
