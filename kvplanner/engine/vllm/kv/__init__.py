"""The KV cache: what a layer keeps, groups, blocks, and what fits."""
