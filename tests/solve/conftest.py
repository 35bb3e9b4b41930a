"""The terminal, for what is told of solvers."""

from tests.cli.conftest import terminal

__all__ = ["terminal"]
