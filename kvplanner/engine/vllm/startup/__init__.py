"""Ranks and replicas through the stages of start-up, and where they fail."""
