"""Models on this machine and on the Hub, read from headers alone: no tensor is loaded, nothing is unpickled."""
