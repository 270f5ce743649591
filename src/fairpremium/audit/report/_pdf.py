"""An audit report as PDF, by WeasyPrint: no browser, and nothing from a network or another file."""

import importlib
from importlib.resources import files
from typing import Any, NoReturn

from fairpremium.errors import MissingExtraError


def check_pdf() -> Any:
    """Return WeasyPrint, or say how to get it, before any work is done."""
    try:
        return importlib.import_module("weasyprint")
    except ImportError as error:
        raise MissingExtraError(
            'A report in PDF needs weasyprint. Install it with: pip install "fairpremium[pdf]"'
        ) from error
    except OSError as error:  # it is there, and the library that sets its text is not
        raise MissingExtraError(
            "A report in PDF needs the library Pango. On Debian and Ubuntu: apt-get install libpango-1.0-0 "
            "libpangoft2-1.0-0"
        ) from error


def render_pdf(page: str) -> bytes:
    """Return an audit report as PDF: pages with a head and numbers, fonts embedded, tagged for screen readers.

    Parameters
    ----------
    page : str
        From `render_report`, or out of a bundle.

    Returns
    -------
    bytes

    Raises
    ------
    MissingExtraError
        If WeasyPrint, or the library Pango that it needs, is not installed.
    ValueError
        If the page refers to another file or an address: nothing is fetched.
    """
    check_pdf()
    urls = importlib.import_module("weasyprint.urls")
    try:
        content: bytes = lay_out(page).write_pdf(pdf_tags=True)
    except urls.FatalURLFetchingError as error:
        raise ValueError(f"Got a page that refers to {str(error)!r}, but expected one that stands alone.") from None
    return content


def lay_out(page: str) -> Any:
    """Return the printed pages as WeasyPrint's document, which knows what stands where."""
    weasyprint = check_pdf()
    style = files("fairpremium.audit").joinpath("templates", "paper.css").read_text(encoding="utf-8")
    paper = page.replace("</head>", f"<style>{style}</style></head>", 1)
    urls = importlib.import_module("weasyprint.urls")

    class NoFetcher(urls.URLFetcher):  # type: ignore[name-defined, misc]
        def fetch(self, url: str, headers: Any = None) -> NoReturn:
            raise urls.FatalURLFetchingError(url[:80])

    return weasyprint.HTML(string=paper, url_fetcher=NoFetcher()).render(pdf_tags=True)
