"""What a model is: its layers, its tensors and the formats that they are stored in."""
