"""A real browser for tests: the system's Chromium, driven by playwright; all that a page asks for is recorded."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCREENSHOTS = ROOT / "build" / "screenshots"
AXE = ROOT / ".venv" / "node_modules" / "axe-core" / "axe.min.js"
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
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=_arguments())
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_profile(browser: Any, folder: Path) -> Iterator[Any]:
    """A browser that writes its profile into a folder, as that of a person does."""
    context = browser.browser_type.launch_persistent_context(
        folder, executable_path=find_chromium(), args=_arguments(), locale="en-GB"
    )
    try:
        yield context
    finally:
        context.close()


def _arguments() -> list[str]:
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [*root, *_QUIET]


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


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve an app on a free port of this machine, as `fairpremium serve` does."""
    import uvicorn

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def find_barriers(page: Any) -> list[Any]:
    """What axe-core finds against WCAG 2.1 AA or its own good practices, as (rule, elements)."""
    if not AXE.is_file():
        pytest.skip("no axe-core: make test installs it; or npm install --prefix .venv --no-save axe-core")
    page.evaluate(AXE.read_text(encoding="utf-8") + "\n;0")
    return page.evaluate(
        """async () => {
            const runOnly = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"];
            const { violations } = await axe.run(document, { runOnly });
            return violations.map(({ id, nodes }) => [id, nodes.map(node => node.html)]);
        }"""
    )


def keep_screenshot(page: Any, name: str) -> Path:
    """Write a picture of the whole page to build/screenshots."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    path = SCREENSHOTS / f"{name}.png"
    page.screenshot(path=path, full_page=True)
    return path
