"""Commands of this program, run in processes of their own, and a service that always ends."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import typer

_PATIENCE = 300.0  # seconds for one command
_COMMAND = (sys.executable, "-P", "-m", "fairpremium")
_OURS = (
    "FAIRPREMIUM_SERVICE",
    "FAIRPREMIUM_KEY",
    "FAIRPREMIUM_AUTHORITY",
    "FAIRPREMIUM_SECRET",
    "FAIRPREMIUM_DATABASE",
    "FAIRPREMIUM_COLLECTOR",
    "FAIRPREMIUM_STORAGE_KEY",
    "FAIRPREMIUM_STORAGE_KEY_FILE",
)

Words = tuple[Any, ...]


class CommandRunner:
    """Commands of this program, each in a process of its own, and a service on a free port.

    - `quiet`: Say nothing; otherwise commands are shown before they run.
    - `log`: Where the service writes what it has to say; removed when it said nothing.
    - `collector`: The collector's folder, with its ledger and its memo key.

    Notes
    -----
    The service ends with this object, also after a failure or an interruption: it watches a pipe to this process that
    the system closes.
    """

    def __init__(self, *, quiet: bool, log: Path, collector: Path):
        self.quiet = quiet
        self.log = log
        self.commands: list[str] = []
        self._environment = {name: value for name, value in os.environ.items() if name not in _OURS}
        self._environment["FAIRPREMIUM_COLLECTOR"] = str(collector)
        self._service: subprocess.Popen[str] | None = None

    def __enter__(self) -> CommandRunner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop_service()

    def tell(self, sentence: str) -> None:
        """Say what comes next."""
        if not self.quiet:
            print(f"\n{sentence}", flush=True)

    def run(self, *commands: Words) -> list[dict[str, Any]]:
        """Run commands at the same time and return what each of them answered."""
        running: list[tuple[Words, subprocess.Popen[str]]] = []
        try:
            for words in commands:
                running.append((words, self._start(words)))
            return [_answer(words, process) for words, process in running]
        finally:
            for _, process in running:
                if process.poll() is None:
                    process.kill()
                    process.communicate()

    def serve(self, folder: Path, *options: str) -> str:
        """Start the service, wait until it listens, and return its address; later commands talk to it."""
        words = ("serve", "--folder", folder, *options)
        self._show(words)
        with self.log.open("w") as log:
            self._service = subprocess.Popen(
                [*_COMMAND, *map(str, words), "--port", "0", "--with-parent", "--json", "--log-level", "warning"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment,
            )  # fmt: skip
        assert self._service.stdout is not None
        line = self._service.stdout.readline()
        if not line:
            self._service.wait()
            _fail(words, self.log.read_text(encoding="utf-8"))
        address = str(json.loads(line)["service"])
        self._environment["FAIRPREMIUM_SERVICE"] = address
        return address

    def stop_service(self) -> None:
        """Stop the service in order, and the hard way if that takes too long."""
        service, self._service = self._service, None
        if service is None:
            return
        with service:
            service.terminate()
            try:
                service.wait(20)
            except subprocess.TimeoutExpired:
                service.kill()
        if not self.log.read_bytes():
            self.log.unlink()

    def _start(self, words: Words) -> subprocess.Popen[str]:
        self._show(words)
        return subprocess.Popen(
            [*_COMMAND, *map(str, words), "--json"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self._environment,
        )  # fmt: skip

    def _show(self, words: Words) -> None:
        self.commands.append(f"fairpremium {shlex.join(map(str, words))}")
        if not self.quiet:
            print(f"  $ {self.commands[-1]}", flush=True)


def _answer(words: Words, process: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        out, err = process.communicate(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        _fail(words, f"it took more than {_PATIENCE:g} seconds")
    if process.returncode:
        _fail(words, err or out)
    return dict(json.loads(out))


def _fail(words: Words, why: str) -> NoReturn:
    """End with exit code 1: what went wrong is not the user's mistake."""
    print(f"Error: fairpremium {shlex.join(map(str, words[:2]))}: {' '.join(why.split())}", file=sys.stderr)
    raise typer.Exit(1)
