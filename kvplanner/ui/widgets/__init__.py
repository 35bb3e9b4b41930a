"""Small widgets that any view may use."""
