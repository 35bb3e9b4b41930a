"""Data shipped with kvplanner; read through importlib.resources as kvplanner.resources."""
