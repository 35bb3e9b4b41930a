"""What unmodified llama.cpp computes for eleven models on imitated GPUs, and the planner's answers beside it."""
