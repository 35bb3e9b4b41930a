"""What a plan of vLLM says in words, and the figures behind it."""
