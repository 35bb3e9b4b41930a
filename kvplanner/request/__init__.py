"""From words, files and command lines to a request."""
