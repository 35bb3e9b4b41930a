"""Start-up in the engine's order: what each rank holds, where it fails, and what the replica serves."""
