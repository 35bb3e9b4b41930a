"""vLLM's own results as the judge of the cache rules."""
