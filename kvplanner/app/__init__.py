"""The application's state without widgets: document, jobs, settings, session."""
