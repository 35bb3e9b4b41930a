"""Folders, configs and safetensors files as one model."""
