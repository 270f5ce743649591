"""A real browser for tests: the system's Chromium, driven by playwright; all that a page asks for is recorded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
SIZES = {"desktop": (1200, 900), "phone": (390, 844)}
_QUIET = [
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def find_chromium() -> str:
    """The path of Chromium; the test is skipped where there is none."""
    named = os.environ.get("FAIRPREMIUM_CHROMIUM")
    found = next(
        filter(None, map(shutil.which, filter(None, [named, "chromium", "chromium-browser", "google-chrome"]))), None
    )
    if found is None:
        pytest.skip("no Chromium: apt-get install chromium, or name another one in FAIRPREMIUM_CHROMIUM")
    return found


@contextmanager
def open_browser() -> Iterator[Any]:
    """A fresh browser with an empty profile."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=[*root, *_QUIET])
        try:
            yield browser
        finally:
            browser.close()


def open_page(browser: Any, path: Path, size: str) -> tuple[Any, list[str], list[str]]:
    """Open a file; return the page, what it asked a network for, and what went wrong in it."""
    width, height = SIZES[size]
    page = browser.new_context(viewport={"width": width, "height": height}).new_page()
    requests: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(path.resolve().as_uri())
    page.wait_for_load_state("networkidle")
    away = [url for url in requests if not url.startswith(("file:", "data:", "blob:"))]
    return page, away, problems


def keep_screenshot(page: Any, name: str) -> Path:
    """Write a picture of the whole page to build/screenshots."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    path = SCREENSHOTS / f"{name}.png"
    page.screenshot(path=path, full_page=True)
    return path
