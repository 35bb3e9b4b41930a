"""Every number explained: its formula, inputs, range, and the questions that it raises."""
