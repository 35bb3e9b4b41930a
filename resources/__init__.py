"""Data shipped with kvplanner; installed as kvplanner.resources and read through kvplanner.files."""
