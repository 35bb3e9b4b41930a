"""How checkpoints are quantised: schemes of every form, and which tensors they cover."""
