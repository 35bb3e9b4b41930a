"""Weights on one rank: sharding, formats, what stays and what loading needs."""
