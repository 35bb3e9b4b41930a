"""The setup panel: model, GPUs, engine, context and load, built from the engine's option declarations."""
