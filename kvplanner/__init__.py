"""kvplanner: plans an inference engine's GPU memory before the server is started."""

__version__ = "0.1.0"
