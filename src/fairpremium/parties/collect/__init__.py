"""The page on which a person answers: the report is drawn in the browser, and only the report is sent."""

from ._page import PAGE_HEADERS, PageFile, page_files, page_policy, script_digest, script_integrity, write_page

__all__ = [
    "PAGE_HEADERS",
    "PageFile",
    "page_files",
    "page_policy",
    "script_digest",
    "script_integrity",
    "write_page",
]
