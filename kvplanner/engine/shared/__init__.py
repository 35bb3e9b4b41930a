"""What several engines account for in the same way; knows no engine."""
