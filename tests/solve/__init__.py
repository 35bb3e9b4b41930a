"""Remedies, solvers and what fits."""
