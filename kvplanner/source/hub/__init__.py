"""Models of the Hub, only on request, and its cache on this machine."""
