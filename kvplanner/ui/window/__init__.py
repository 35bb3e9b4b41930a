"""The main window: what it is made of, and the application around it."""
