"""Weights on one rank: SGLang's placement, formats after loading, and what it keeps beside the parameters."""
