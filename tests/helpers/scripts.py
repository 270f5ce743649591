"""The scripts of the collection page in tests: run by Node or by Chromium, compared with Python, and with mutants."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from fairpremium.privacy import Channel, RandomizedResponse, draw_from_words

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "src" / "fairpremium" / "parties" / "collect" / "static"
CONFORMANCE = ROOT / "tests" / "parties" / "collect" / "conformance.mjs"
WIDTH = 8  # words per draw; a component throws away fewer than half of them


def run_in_node(name: str, *args: Any, script: Path = STATIC / "report.js") -> Any:
    """Call a function of conformance.mjs in Node, on report.js or on a script that stands for it."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node: apt-get install nodejs")
    done = subprocess.run(
        [node, str(CONFORMANCE), str(script)],
        input=json.dumps([name, *args]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run_in_page(page: Any, address: str, name: str, *args: Any) -> Any:
    """Call the same function in a page of a browser; `serve_scripts` gives the address."""
    page.goto(f"{address}/parties/collect/")
    return page.evaluate(
        """async ([report, conformance, name, args]) => {
            const module = await import(report);
            return (await import(conformance))[name](module, ...args);
        }""",
        [f"{address}/static/report.js", f"{address}/tests/conformance.mjs", name, list(args)],
    )


class _Files(SimpleHTTPRequestHandler):
    """Two folders: /static/ is the page's, /tests/ that of the tests; anything else is an empty page."""

    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}  # noqa: RUF012

    def translate_path(self, path: str) -> str:
        folder, _, name = path.lstrip("/").partition("/")
        return str({"static": STATIC, "tests": CONFORMANCE.parent}.get(folder, ROOT / "missing") / name)

    def send_head(self) -> Any:
        if self.path.startswith(("/static/", "/tests/")):
            return super().send_head()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        return None

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serve_scripts() -> Iterator[str]:
    """Serve report.js and conformance.mjs on this machine."""
    with serve_handler(_Files) as address:
        yield address


@contextmanager
def serve_folder(folder: Path) -> Iterator[str]:
    """Serve a folder as any web server does."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with serve_handler(partial(Quiet, directory=str(folder))) as address:
        yield address


@contextmanager
def serve_handler(handler: Any) -> Iterator[str]:
    """Serve with a handler of the standard library on a free port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def channels() -> dict[str, Channel]:
    """Channels of every kind, with small totals, totals near 2**32, and all kinds of labels."""
    sex = RandomizedResponse(["F", "M"], keep=0.8)
    general = Channel(
        [[0.5, 0.1, 0.2], [0.25, 0.7, 0.1], [0.15, 0.1, 0.6], [0.1, 0.1, 0.1]],
        groups=["a", "b", "c"],
        reports=["w", "x", "y", "z"],
    )
    return {
        "two groups": sex,
        "seven groups": RandomizedResponse(range(7), epsilon=1.0),
        "booleans": RandomizedResponse([False, True], epsilon=0.1),
        "hardly private": RandomizedResponse(["yes", "no", "né(e) 女"], epsilon=21.0),
        "many words thrown away": RandomizedResponse.from_integers(["F", "M"], 2**30 + 1, 2**30),
        "largest total": RandomizedResponse.from_integers([1, 2], 2**32 - 1, 1),
        "tuples": RandomizedResponse([("F", 1), ("F", 2), ("M", 1)], epsilon=1.0),
        "general": general,
        "thirds": Channel([[1 / 3, 0.2], [2 / 3, 0.8]], groups=["low", "high"], reports=["r0", "r1"]),
        "product": Channel.product(sex, RandomizedResponse([False, True, "?"], epsilon=0.5)),
        "product of three": Channel.product(sex, general, RandomizedResponse([(1, "x"), (2, "y")], epsilon=2.0)),
    }


def make_case(channel: Channel, n: int, rng: np.random.Generator) -> tuple[dict[str, Any], list[int]]:
    """Draw n reports from random words in Python: the case for conformance.mjs, and the positions of the reports.

    A third of the words are close to the ends of what a component accepts, where an off-by-one would show.
    """
    codes = rng.integers(0, len(channel.groups), n)
    words = rng.integers(0, 2**32, (n, WIDTH))
    words[:, -len(channel.components) :] %= 2**31  # accepted by every component, so that no row is used up
    edges = [0, *np.cumsum(channel.components[0]._weight_rows, axis=0).ravel().tolist()]
    total = channel.components[0].total
    edges += [2**32 - 2**32 % total, 2**32 - 1]
    near = rng.choice(edges, n) + rng.integers(-2, 2, n)
    chosen = rng.random(n) < 1 / 3
    words[chosen, 0] = near[chosen] % 2**32
    groups = [channel.groups[code] for code in codes]
    reports = draw_from_words(channel, groups, words)
    case = {
        "descriptor": channel.descriptor(),
        "groups": base64.b64encode(codes.astype("<u2").tobytes()).decode(),
        "words": base64.b64encode(words.astype("<u4").tobytes()).decode(),
        "width": WIDTH,
    }
    return case, channel.encode(list(reports)).tolist()


def positions(answer: str) -> list[int]:
    """The positions that conformance.mjs answers."""
    return np.frombuffer(base64.b64decode(answer), dtype="<u2").tolist()
