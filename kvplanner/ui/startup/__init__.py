"""The Start-up view."""
