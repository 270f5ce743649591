"""The processes of the service that `soak.py` starts, breaks and measures."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 180.0  # seconds until a process that does not come up or end is a failure
SLACK = 2.0  # seconds around an outage in which an answer may still tell of it
PAGE = os.sysconf("SC_PAGE_SIZE")
COMMAND = [sys.executable, "-P", "-m", "fairpremium"]


class Node:
    """A web process or a worker, which can be stopped, killed and started again under the same address."""

    def __init__(self, name: str, words: list[str], variables: dict[str, str], log: Path, url: str = ""):
        self.name, self.url = name, url
        self._words, self._variables, self._log = words, variables, log
        self._process: subprocess.Popen[bytes] | None = None
        self._outages: list[tuple[float, float]] = []

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True, **faults: str) -> None:
        """Start the process; a web process is up when this returns, unless it is not waited for."""
        variables = self._variables | {f"FAIRPREMIUM_{name.upper()}_AT": value for name, value in faults.items()}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*COMMAND, *self._words, "--with-parent"],
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        if wait and self.url:
            assert self._process.stdout is not None
            if not self._process.stdout.readline():
                raise RuntimeError(f"{self.name} did not start; see {self._log}")

    def stop(self) -> None:
        """Ask the process to stop, and insist that it ends in order."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._end()
        if code and (self.url or code != -signal.SIGTERM):  # nobody waits until a worker is up
            raise RuntimeError(f"{self.name} was asked to stop and ended with {code}")

    def kill(self) -> None:
        """Kill the process."""
        assert self._process is not None
        self._process.kill()
        self._end()

    def _end(self) -> int:
        assert self._process is not None
        code = self._process.wait(PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        return code

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Remember that the process may fail meanwhile."""
        begin = time.monotonic()
        self._outages.append((begin, float("inf")))
        try:
            yield
        finally:
            self._outages[-1] = (begin, time.monotonic())

    def may_fail(self, at: float) -> bool:
        return any(begin - SLACK <= at <= end + SLACK for begin, end in self._outages)


class Service:
    """Two web processes and two workers on one folder: one of each runs all the time, the other one is broken.

    What runs all the time shows whether memory grows.
    """

    def __init__(self, home: Path, variables: dict[str, str]):
        self.folder, self.home, self._variables = home / "third-party", home, variables
        self.log = home / "service.log"
        self.webs = [self._web(name) for name in ("web, steady", "web, broken")]
        work = ["worker", "--folder", str(self.folder)]
        self.workers = [Node(name, work, variables, self.log) for name in ("worker, steady", "worker, broken")]
        self.nodes = [*self.webs, *self.workers]

    def _web(self, name: str) -> Node:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        words = ["serve", "--folder", str(self.folder), "--port", str(port), "--workers", "0", "--json"]
        return Node(name, words, self._variables, self.log, f"http://127.0.0.1:{port}")

    def run(self, *words: str | Path) -> Any:
        """Run a command of the operator, and return what it says."""
        done = subprocess.run(
            [*COMMAND, *map(str, words), "--json"], env=self._variables, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, words[:3]))} ended with {done.returncode}: {done.stderr[-500:]}")
        return json.loads(done.stdout)


class Gauge:
    """Samples the memory and the open files of the processes that run all the time."""

    def __init__(self, nodes: list[Node], every: float = 1.0):
        self.samples: dict[str, list[tuple[float, int, int]]] = {node.name: [] for node in nodes}
        self._nodes, self._every, self._stop = nodes, every, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Gauge:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            for node in self._nodes:
                lasting = [node.pid, *children_of(node.pid)]  # the processes of fits are further below
                sizes = [resident(pid) for pid in lasting]
                files = [open_files(pid) for pid in lasting]
                self.samples[node.name].append((time.monotonic(), sum(sizes), sum(files)))


def quarters(values: list[int]) -> tuple[float, float]:
    """The medians of the second and of the last quarter."""
    n = len(values)
    return median(values[n // 4 : n // 2]), median(values[3 * n // 4 :])


def median(values: list[int]) -> float:
    ordered = sorted(values)
    return float(ordered[len(ordered) // 2]) if ordered else float("nan")


def children_of(pid: int) -> list[int]:
    """The processes that a process started itself."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            found += [int(word) for word in (task / "children").read_text().split()]
        except OSError:
            continue
    return sorted(found)


def fits_below(worker: int) -> list[int]:
    """The processes of fits of a worker: they are forked by a process that the worker started."""
    return [fit for child in children_of(worker) for fit in children_of(child)]


def resident(pid: int) -> int:
    """Bytes of a process that are in memory; none of one that is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def open_files(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
    except OSError:
        return 0


class Disturbances:
    """Kills, upgrades, backups, rotations and full disks, one after the other."""

    def __init__(self, service: Service, load: Any, rng: Any, check_restored: Any):
        self.done: Counter[str] = Counter()
        self._service, self._load, self._rng, self._check_restored = service, load, rng, check_restored
        self._web, self._worker = service.webs[1], service.workers[1]
        self._kinds = {
            "kill of the web process": self._kill_web,
            "backup and restore": self._back_up,
            "kill of a worker": self._kill_worker,
            "upgrade": self._upgrade,
            "full disk": self._fill_disk,
            "rotation of the service's key": self._rotate_service,
            "kill during a start": self._kill_start,
            "kill of a fit": self._kill_fit,
            "rotation of a collector's key": self._rotate_party,
        }

    def __iter__(self) -> Iterator[str]:
        """Do one after the other, for ever: all kinds in turn, after the first time in another order each time."""
        kinds = list(self._kinds)
        while True:
            for kind in kinds:
                self._kinds[kind]()
                self.done[kind] += 1
                yield kind
            self._rng.shuffle(kinds)

    def _kill_web(self) -> None:
        with self._web.outage():
            self._web.kill()
            self._web.start()

    def _kill_worker(self) -> None:
        self._worker.kill()
        self._worker.start()

    def _kill_fit(self) -> None:
        until = time.monotonic() + 5.0
        while time.monotonic() < until:
            fits = [fit for worker in self._service.workers for fit in fits_below(worker.pid)]
            if fits:
                try:
                    os.kill(self._rng.choice(fits), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                return
            time.sleep(0.02)
        self.done["kill of a fit"] -= 1  # there was none

    def _upgrade(self) -> None:
        """Stop in order, and start, which checks the schema and migrates what is old."""
        with self._web.outage():
            self._web.stop()
            self._worker.stop()
            self._web.start()
            self._worker.start()

    def _kill_start(self) -> None:
        with self._web.outage():
            self._web.kill()
            self._web.start(wait=False)
            time.sleep(self._rng.uniform(0.2, 4.0))
            self._web.kill()
            self._web.start()

    def _fill_disk(self) -> None:
        """Let the disk be full after some commits, for some seconds."""
        with self._web.outage():
            self._web.stop()
            self._web.start(full="database.before_commit:20")
            before, until = self._load.answers[507], time.monotonic() + 10.0
            while self._load.answers[507] < before + 5 and time.monotonic() < until:
                time.sleep(0.1)
            self._web.stop()
            self._web.start()

    def _rotate_service(self) -> None:
        self._service.run("keys", "rotate", "service", "--folder", self._service.folder)

    def _rotate_party(self) -> None:
        self._load.rotate_key()

    def _back_up(self) -> None:
        number = self.done["backup and restore"]
        backup, restored = (self._service.home / f"{name}-{number}" for name in ("backup", "restored"))
        before = self._load.acknowledged()
        self._service.run("backup", "--folder", self._service.folder, "-o", backup)
        after = self._load.acknowledged()
        self._service.run("restore", backup, "--folder", restored)
        self._check_restored(backup, restored, before, after)
