"""Encoders beside a language model, by whose they are."""
