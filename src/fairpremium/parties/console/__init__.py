"""Pages for operators and auditors."""

from ._console import add_console

__all__ = ["add_console"]
