"""llama-server's options and flags."""
