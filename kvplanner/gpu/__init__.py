"""What a machine is: its GPUs, their memory, and who else uses it."""
