"""The files of the page: what they are, the headers they are sent with, and copies for another web server."""

import base64
import hashlib
import os
import re
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

INDEX = "index.html"
_KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src {}; form-action 'none'; "
    "base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": f"{_POLICY.format(chr(39) + 'self' + chr(39))}; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-cache",  # kept, and asked for again before it is used: a changed script is seen at once
}
_HEAD = "<head>"
_SCRIPT = "report.js"
_OF_THE_PACKAGE = "package.json"  # tells npm what apps that embed the script get, and is no part of the page
_ADDRESS = re.compile(r"(https://[A-Za-z0-9.-]+|http://(localhost|127\.0\.0\.1|\[::1\]))(:[0-9]{1,5})?")


class PageFile(NamedTuple):
    """A file of the page: its content, its media type and its SHA-256."""

    content: bytes
    kind: str
    sha256: str


def load_page() -> dict[str, PageFile]:
    """Return the files of the page by their paths."""
    return {path: _file(path, content) for path, content in sorted(_walk(page_folder(), ""))}


def page_folder() -> Traversable:
    """Return where the files of the page are."""
    return files(__package__).joinpath("static")


def script_digest(name: str = _SCRIPT) -> str:
    """Return the SHA-256 of the script that draws, ``report.js``, or of another one, as ``sha256sum`` prints it."""
    return load_page()[name].sha256


def script_integrity(name: str = _SCRIPT) -> str:
    """Return the same as the attribute ``integrity`` of a page that embeds the script.

    Examples
    --------
    >>> script_integrity().startswith("sha256-")
    True
    """
    return "sha256-" + base64.b64encode(bytes.fromhex(script_digest(name))).decode()


def write_page(folder: str | os.PathLike[str], service: str) -> dict[str, str]:
    """Write the files of the page for another web server than the third party's, and return their SHA-256.

    Parameters
    ----------
    folder : str or path
        Made if it does not exist; what has another name in it stays.
    service : str
        Address of the third party's service, such as https://third.example. It is written into the page, together
        with a policy that lets the page talk to that address and to its own web server only.

    Notes
    -----
    All files but index.html are those of the package, byte for byte.
    """
    if not _ADDRESS.fullmatch(service):
        raise ValueError(
            f"Got service={service!r}, but expected an address such as https://third.example, without a path. http is "
            "for this machine only."
        )
    page = load_page()
    if INDEX not in page:
        raise FileNotFoundError("This installation has no page. Install the package anew, with all of its files.")
    target = Path(folder)
    written = {}
    for path, file in page.items():
        content = _for_service(file.content, service) if path == INDEX else file.content
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        written[path] = hashlib.sha256(content).hexdigest()
    return written


def _for_service(index: bytes, service: str) -> bytes:
    """Write the address of the service, and the policy that allows it, into the page."""
    text = index.decode()
    if text.count(_HEAD) != 1:
        raise ValueError(f"Got an {INDEX} without one {_HEAD}, but expected one.")
    policy = _POLICY.format(f"'self' {service}")
    lines = [
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
        f'<meta name="fairpremium-service" content="{escape(service)}">',
    ]
    return text.replace(_HEAD, "\n".join([_HEAD, *lines]), 1).encode()


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    if not folder.is_dir():
        return []
    found = []
    for entry in folder.iterdir():
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            found += _walk(entry, f"{path}/")
        elif entry.name != _OF_THE_PACKAGE and entry.name.rpartition(".")[2] in _KINDS:
            found.append((path, entry.read_bytes()))
    return found


def _file(path: str, content: bytes) -> PageFile:
    return PageFile(content, _KINDS[path.rpartition(".")[2]], hashlib.sha256(content).hexdigest())
