"""The Launch tab."""
