"""The page on which people with an invitation answer: its files, and the two requests that it sends."""

from ._answers import add_collect
from ._page import load_page, script_digest, script_integrity, write_page

__all__ = ["add_collect", "load_page", "script_digest", "script_integrity", "write_page"]
