"""The page on which people with an invitation answer: its files, and the two requests that it sends.

Each name is loaded when it is first used, so that the page can be written without the service.
"""

from typing import TYPE_CHECKING

from fairpremium.lazy import lazy_exports

if TYPE_CHECKING:
    from ._answers import *
    from ._page import *

__all__, __getattr__ = lazy_exports(
    __name__,
    {"_answers": "add_collect", "_page": "load_page script_digest script_integrity write_page"},
)
