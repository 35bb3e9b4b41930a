"""From a request to settings: what vLLM would settle on, and what it refuses."""
