"""The files of the page: how they are sent, and copies for another web server."""

from __future__ import annotations

import hashlib
import re

import pytest

from fairpremium.parties.collect import _page, load_page, write_page
from helpers import wire

FILES = {
    "index.html": b"<!doctype html>\n<html><head><title>Page</title></head><body></body></html>\n",
    "report.js": b"export const draw = 1;\n",
    "page.css": b"body { margin: 0 }\n",
    "texts/de.json": b"{}\n",
    "notes.md": b"not for a web server\n",
}


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A page of a few files."""
    for path, content in FILES.items():
        place = tmp_path / "static" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    monkeypatch.setattr(_page, "page_folder", lambda: tmp_path / "static")


def get(world, path, **headers):
    raw = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    return world.send(wire.Wire("GET", path.encode(), ((b"host", b"third.party"), *raw)))


def check_sent(world, files):
    """Every file is there, with a policy that lets nothing in from elsewhere."""
    for path, file in files.items():
        answer = get(world, f"/collect/{path}")
        assert (answer.status, answer.body) == (200, file.content)
        assert answer.headers["content-type"] == file.kind
        policy = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
        assert {policy[name] for name in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["etag"] == f'"{hashlib.sha256(file.content).hexdigest()}"'
        again = get(world, f"/collect/{path}", if_none_match=answer.headers["etag"])
        assert (again.status, again.body) == (304, b"")
        assert "set-cookie" not in answer.headers


def test_the_files_are_sent_as_they_are(page, tmp_path):
    files = load_page()
    assert set(files) == set(FILES) - {"notes.md"}
    with wire.World(tmp_path / "third-party", collect=True) as world:
        check_sent(world, files)
        assert get(world, "/collect/").body == FILES["index.html"]
        moved = get(world, "/collect")
        assert (moved.status, moved.headers["location"]) == (308, "collect/")
        for path in ("nothing.js", "../__init__.py", "..%2f__init__.py", "notes.md", "texts", "texts/", "v1/open"):
            assert get(world, f"/collect/{path}").status in (404, 405)


def test_the_files_of_this_package_are_sent_with_the_same_headers(tmp_path):
    with wire.World(tmp_path / "third-party", collect=True) as world:
        check_sent(world, load_page())


def test_a_copy_for_another_web_server_names_the_service(page, tmp_path):
    written = write_page(tmp_path / "public" / "answer", "https://third.example")
    assert set(written) == set(FILES) - {"notes.md"}
    for path, digest in written.items():
        content = (tmp_path / "public" / "answer" / path).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest
        assert (content == FILES[path]) == (path != "index.html")
    text = (tmp_path / "public" / "answer" / "index.html").read_text()
    assert '<meta name="fairpremium-service" content="https://third.example">' in text
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1].replace("&#x27;", "'")
    assert "connect-src 'self' https://third.example;" in policy
    assert policy.startswith("default-src 'none'; script-src 'self'")
    assert text.index("Content-Security-Policy") < text.index("<title>")
    assert write_page(tmp_path / "public" / "answer", "https://third.example") == written  # again, over itself


def test_a_package_without_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(_page, "page_folder", lambda: tmp_path / "static")
    assert load_page() == {}
    with pytest.raises(FileNotFoundError, match="no page"):
        write_page(tmp_path / "public", "https://third.example")
