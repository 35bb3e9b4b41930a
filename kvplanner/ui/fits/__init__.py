"""What fits: the catalogue on this machine, or the machines of this model."""
