"""The files of the page, the headers they are served with, and the same page as a folder for another web server."""

import base64
import hashlib
import html
import re
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import NamedTuple

_STATIC = files("fairpremium.parties.collect").joinpath("static")
_NAMES = (
    "index.html", "page.css", "page.js", "private-answer.js", "report.js", "icon.svg",
    "texts/de.json", "texts/en.json", "texts/es.json", "texts/fr.json",
)  # fmt: skip
_KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
}
_ADDRESS = re.compile(r"(https://[A-Za-z0-9.-]+|http://(localhost|127\.0\.0\.1|\[::1\]))(:[0-9]{1,5})?/?")
_SAME_ORIGIN = '<meta name="fairpremium-service" content="">'
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'{service}; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)

PAGE_HEADERS = {
    "Content-Security-Policy": _POLICY.format(service="") + "; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked for again each time, so that everybody gets the published script
}
"""Headers of every file of the page where the third party serves it."""


class PageFile(NamedTuple):
    """One file of the page."""

    content: bytes
    media_type: str


def page_files(service: str | None = None) -> dict[str, PageFile]:
    """Return the files of the page by their path below ``/collect/``.

    Parameters
    ----------
    service : str, optional
        Address of the third party, where another server has the page. None where the third party serves it itself.

    Returns
    -------
    files : dict of PageFile

    Examples
    --------
    >>> sorted(page_files())[:3]
    ['icon.svg', 'index.html', 'page.css']
    >>> sum(len(file.content) for file in page_files().values()) < 60_000
    True
    """
    found = {}
    for name in _NAMES:
        content = _STATIC.joinpath(name).read_bytes()
        found[name] = PageFile(content, _KINDS[name.rpartition(".")[2]])
    if service is not None:
        address = html.escape(_check_address(service))
        policy = html.escape(page_policy(service))
        text = found["index.html"].content.decode()
        assert text.count(_SAME_ORIGIN) == 1
        elsewhere = (
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            f'<meta name="fairpremium-service" content="{address}">'
        )
        found["index.html"] = PageFile(text.replace(_SAME_ORIGIN, elsewhere).encode(), _KINDS["html"])
    return found


def page_policy(service: str | None = None) -> str:
    """Return the content security policy of the page: nothing from elsewhere, requests to the service alone.

    Examples
    --------
    >>> "connect-src 'self' https://third-party.example;" in page_policy("https://third-party.example/")
    True
    """
    return _POLICY.format(service="" if service is None else f" {_check_address(service)}")


def write_page(folder: str | PathLike[str], service: str) -> list[Path]:
    """Write the page as plain files, for a web server of the collector.

    Parameters
    ----------
    folder : path
        Made if it does not exist; files of an earlier version are written over.
    service : str
        Address of the third party, which gets the reports.

    Returns
    -------
    paths : list of Path
    """
    paths = []
    for name, file in page_files(service).items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        paths.append(path)
    return paths


def script_digest() -> str:
    """Return the SHA-256 of ``report.js``, the script that draws, in hexadecimal digits as ``sha256sum`` prints it."""
    return hashlib.sha256(_STATIC.joinpath("report.js").read_bytes()).hexdigest()


def script_integrity() -> str:
    """Return the same as the attribute ``integrity`` of a page that embeds the script."""
    return "sha256-" + base64.b64encode(bytes.fromhex(script_digest())).decode()


def _check_address(service: str) -> str:
    """Return an address without a last slash, or say what one looks like."""
    if not isinstance(service, str) or not _ADDRESS.fullmatch(service):
        raise ValueError(
            f"Got service={service!r}, but expected an address like https://third-party.example, without a path. "
            "http is taken for this machine only."
        )
    return service.removesuffix("/")
