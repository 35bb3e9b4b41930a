"""The pools: what a token, a state and a request cost on a rank, and how many of each the budget holds."""
