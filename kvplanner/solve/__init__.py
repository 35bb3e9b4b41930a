"""Plans made many times: what to change, how far a setting goes, what else would run."""
