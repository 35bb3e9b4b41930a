"""What a plan of SGLang says, as data, and the figures behind it."""
