"""Models on this machine and on the Hub."""
