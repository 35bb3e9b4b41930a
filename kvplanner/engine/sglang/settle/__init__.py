"""From options to settings, in the engine's order: capacity, graphs, the fraction, back ends, page size."""
