"""Real processes of services and commands, many and quickly: a process that has imported everything forks them.

As a script this is that process. It reads lines of JSON, each a task for a new process, and answers with its number.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any

PATIENCE = 120.0  # seconds until a test gives up waiting; machines may be slow


class Zygote:
    """The process that forks, seen from the test."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "error", __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._one_at_a_time = threading.Lock()
        assert self._ask({"task": "hello"}) == os.getpid()

    def _ask(self, question: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._one_at_a_time:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def start(self, task: str, output: Path, faults: dict[str, str] | None = None, **options: Any) -> Task:
        """Start a process; `faults` are variables of the fault points without their prefix."""
        variables = {f"FAIRPREMIUM_{name.upper()}_AT": value for name, value in (faults or {}).items()}
        output.unlink(missing_ok=True)
        pid = self._ask({"task": task, "output": str(output), "variables": variables, "options": options})
        return Task(self, pid, output)

    def run(self, task: str, output: Path, faults: dict[str, str] | None = None, **options: Any) -> tuple[int, Any]:
        """Run a process to its end; return its exit code (minus the signal that ended it) and what it said."""
        process = self.start(task, output, faults, **options)
        code = process.wait()
        said = output.read_text(encoding="utf-8") if output.exists() else ""
        return code, json.loads(said) if said else None

    def command(self, words: list[str], streams: list[int | None], variables: Mapping[str, str]) -> int:
        """Start a command of the library; return its number.

        - `streams`: Open files of this process that its own three are to be; None is this process's.
        """
        question = {"task": "command", "owner": os.getpid(), "streams": streams, "variables": dict(variables)}
        pid = self._ask({**question, "options": {"words": words, "folder": str(Path.cwd())}})
        assert isinstance(pid, int)
        return pid

    def poll(self, pid: int) -> int | None:
        """The exit code of a process, None while it lives."""
        code = self._ask({"task": "poll", "pid": pid})
        assert code is None or isinstance(code, int)
        return code

    def close(self) -> None:
        """End the process, and all that it started."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Task:
    """A process."""

    def __init__(self, zygote: Zygote, pid: int, output: Path):
        self._zygote = zygote
        self.pid = pid
        self.output = output
        self.code: int | None = None

    def poll(self) -> int | None:
        """Its exit code, None while it lives."""
        if self.code is None:
            self.code = self._zygote.poll(self.pid)
        return self.code

    def wait(self) -> int:
        """Wait for its end."""
        wait_until(lambda: self.poll() is not None)
        assert self.code is not None
        return self.code

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal, if it lives."""
        if self.poll() is None:
            os.kill(self.pid, how)

    def said(self) -> Any:
        """Wait for what it says, and return that."""
        wait_until(lambda: self.output.exists() or self.poll() is not None)
        assert self.output.exists(), f"ended with {self.code}"
        return json.loads(self.output.read_text(encoding="utf-8"))


@cache
def shared_zygote() -> Zygote:
    """The process that forks for all tests of this process; it ends with it."""
    zygote = Zygote()
    atexit.register(zygote.close)
    return zygote


class Command:
    """``fairpremium`` in a process of its own, with what tests use of `subprocess.Popen`; text, and no exec.

    A fresh interpreter shows nothing more but what is imported when: the tests of the wheel run the commands in such.
    """

    def __init__(
        self,
        *words: object,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = subprocess.PIPE,
        stderr: int | None = subprocess.PIPE,
        env: Mapping[str, str] | None = None,
    ):
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        self.args = [str(word) for word in words]
        self.returncode: int | None = None
        theirs: list[int | None] = []
        ours = []
        for name, wanted in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
            if wanted == subprocess.PIPE:
                read, write = os.pipe()
                mine, other = (write, read) if name == "stdin" else (read, write)
                setattr(self, name, open(mine, "w" if name == "stdin" else "r", encoding="utf-8"))  # noqa: PTH123, SIM115
                theirs.append(other)
                ours.append(other)
            elif wanted == subprocess.DEVNULL:
                ours.append(os.open(os.devnull, os.O_RDWR))
                theirs.append(ours[-1])
            else:
                theirs.append(wanted)
        self._zygote = shared_zygote()
        self.pid = self._zygote.command(self.args, theirs, os.environ if env is None else env)
        for descriptor in ours:
            os.close(descriptor)

    def poll(self) -> int | None:
        """Its exit code, None while it lives."""
        if self.returncode is None:
            self.returncode = self._zygote.poll(self.pid)
        return self.returncode

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for its end."""
        wait_until(lambda: self.poll() is not None, timeout)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, how: int) -> None:
        """Send a signal, if it lives."""
        if self.poll() is None:
            os.kill(self.pid, how)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, input: str = "", timeout: float = PATIENCE) -> tuple[str | None, str | None]:
        """Write, read both of its streams to their ends, and wait."""
        if self.stdin is not None:
            with suppress(BrokenPipeError):
                self.stdin.write(input)
                self.stdin.close()
        with ThreadPoolExecutor(2) as pool:
            both = [None if stream is None else pool.submit(stream.read) for stream in (self.stdout, self.stderr)]
            try:
                out, err = (None if one is None else one.result(timeout) for one in both)
            except BaseException:
                self.kill()
                raise
        self.wait(timeout)
        return out, err

    def __enter__(self) -> Command:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self.wait(600.0)


def run_command(*words: object, input: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``fairpremium`` to its end, as `subprocess.run` does."""
    with Command(*words, stdin=subprocess.PIPE if input else subprocess.DEVNULL, **options) as process:
        out, err = process.communicate(input, timeout=600.0)
    assert process.returncode is not None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def wait_until(condition: Any, seconds: float = PATIENCE, every: float = 0.02) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(every)


def descendants(pid: int) -> list[int]:
    """The numbers of all processes below one, those that were started last at the end."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found, todo = [], [pid]
    while todo:
        below = sorted(parents.get(todo.pop(0), []))
        found += below
        todo += below
    return found


def state_of(pid: int) -> str:
    """The letter of a process's state, Z and nothing for one that is gone."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
    return "" if letter == "Z" else letter


# --- the process that forks ------------------------------------------------------------------------------------------


def _main() -> None:
    import altair  # noqa: F401 (imported for those that are forked)

    from fairpremium.cli import _app, parties  # noqa: F401
    from fairpremium.parties import backup, clients  # noqa: F401
    from fairpremium.parties.http import _app as _http  # noqa: F401
    from fairpremium.parties.service import _worker  # noqa: F401

    children: set[int] = set()
    codes: dict[int, int] = {}
    for line in sys.stdin:
        question = json.loads(line)
        if question["task"] == "hello":
            answer: Any = os.getppid()
        elif question["task"] == "poll":
            answer = codes.get(question["pid"])
            if answer is None:
                done, status = os.waitpid(question["pid"], os.WNOHANG)
                if done:
                    answer = codes[done] = os.waitstatus_to_exitcode(status)
                    children.discard(done)
        else:
            streams = _open_streams(question)
            answer = os.fork()
            if answer == 0:
                _begin(question, streams)
            children.add(answer)
            for descriptor in streams:
                if descriptor > 2:
                    os.close(descriptor)
        print(json.dumps(answer), flush=True)
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGKILL)


def _open_streams(question: dict[str, Any]) -> list[int]:
    """Open what becomes a new process's standard input, output and error: files of the process that asks."""
    flags = (os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND)
    wanted = question.get("streams")
    if wanted is None:
        return [os.open(os.devnull, os.O_RDWR), 2, 2]
    return [
        2 if number is None else os.open(f"/proc/{question['owner']}/fd/{number}", how)
        for number, how in zip(wanted, flags, strict=True)
    ]


def _begin(question: dict[str, Any], streams: list[int]) -> None:
    """Be a new process."""
    code = 1
    try:
        os.setsid()
        for target, descriptor in enumerate(streams):
            os.dup2(descriptor, target)
        for descriptor in streams:
            if descriptor > 2:
                os.close(descriptor)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        if question["task"] == "command":
            _command(question["variables"], **question["options"])
        else:
            os.environ.update(question["variables"])
            _TASKS[question["task"]](Path(question["output"]), **question["options"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with suppress(BrokenPipeError):
            sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _command(variables: dict[str, str], words: list[str], folder: str) -> None:
    """Run ``fairpremium``, with the warnings of a process that was started with no options."""
    import warnings

    from fairpremium.cli import main

    warnings.resetwarnings()
    for kind in (ResourceWarning, ImportWarning, PendingDeprecationWarning, DeprecationWarning):
        warnings.simplefilter("ignore", kind)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    os.umask(0o022)
    sys.argv = ["fairpremium", *words]
    main()


def _say(output: Path, what: Any) -> None:
    draft = output.with_name(f".{output.name}.{os.getpid()}")
    draft.write_text(json.dumps(what), encoding="utf-8")
    draft.replace(output)


def _limits(options: dict[str, Any]) -> Any:
    from quick_fits import AT_ONCE  # beside this script

    return replace(AT_ONCE, **options)


def _web(output: Path, folder: str, database: str | None, port: int = 0, name: str = "", **limits: Any) -> None:
    from fairpremium.parties.http._serve import serve
    from fairpremium.parties.service._settings import ServiceSettings

    hosts = (name,) if name else ()
    settings = ServiceSettings(
        folder=folder, database=database, port=port, hosts=hosts, collect=True, limits=_limits(limits)
    )
    serve(settings, workers=0, tell=lambda url: _say(output, url))


def _listen(
    output: Path, log: str | None, open_files: list[int] | None, limits: dict[str, Any], settings: dict[str, Any]
) -> None:
    """Serve with settings; the log goes into a file."""
    import resource

    from fairpremium.parties.http._serve import serve
    from fairpremium.parties.service._settings import ServiceSettings

    if log is not None:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    if open_files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files[0], open_files[1]))
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    serve(ServiceSettings(port=0, limits=_limits(limits), **given), workers=0, tell=lambda url: _say(output, url))


def _work(output: Path, folder: str, database: str | None, **limits: Any) -> None:
    from fairpremium.parties.service._worker import work

    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
    _say(output, os.getpid())
    work(folder, database=database, limits=_limits(limits), stop=lambda: bool(ended))


def _open(output: Path, folder: str, database: str | None) -> None:
    """Open a folder, perhaps for the first time."""
    from fairpremium.parties.service._third_party import ThirdParty

    party = ThirdParty(folder, database=database)
    _say(output, party.public_key)
    party.close()


def _request(
    output: Path, folder: str, database: str | None, key: str, request: list[Any], arm: dict[str, str]
) -> None:
    """Handle one request, as the service does; faults are armed when everything is open."""
    import httpx

    from fairpremium.parties.clients._client import AppTransport
    from fairpremium.parties.clients._signed_auth import SignedAuth
    from fairpremium.parties.http._app import create_app
    from fairpremium.parties.protocol import _portfolio_part as _parts
    from fairpremium.parties.protocol._keys import read_key
    from fairpremium.parties.service._settings import ServiceSettings

    _parts._Reader = _Reader  # type: ignore[assignment,misc]
    transport = AppTransport(
        create_app(ServiceSettings(folder=folder, database=database, collect=True, hosts=("third.party",)))
    )
    client = httpx.Client(base_url="http://third.party", auth=SignedAuth(read_key(key)), transport=transport)
    client.get("/v1/log")
    method, path, kind, body = request
    content = {"content": bytes.fromhex(body), "headers": {"Content-Type": kind}} if kind else {}
    os.environ.update({f"FAIRPREMIUM_{name.upper()}_AT": value for name, value in arm.items()})
    answers = []
    for _ in range(2 if arm.get("full") == "*:1" else 1):  # the same process must work again afterwards
        response = client.request(method, path, **content)
        answers.append([response.status_code, response.text])
        os.environ.pop("FAIRPREMIUM_FULL_AT", None)
    _say(output, answers)


class _Reader:
    """Reads files in this process: to start another one takes longer than all the rest."""

    def ask(self, line: bytes, limits: Any) -> int:
        from fairpremium.parties.protocol._parquet_check import answer_question

        return answer_question(json.loads(line), limits)

    def close(self) -> None:
        pass


def _fit(
    output: Path, folder: str, database: str | None, arm: dict[str, str], most: int = 1, charts: bool = True
) -> None:
    """Do waiting fits in this process, and say how many there were."""
    from quick_fits import numbers_alone

    from fairpremium.parties.service import _run_fit
    from fairpremium.parties.service._third_party import ThirdParty
    from fairpremium.parties.service._worker import work_once

    if not charts:
        _run_fit.render_report = numbers_alone
    party = ThirdParty(folder, database=database, limits=_limits({}))
    os.environ.update({f"FAIRPREMIUM_{name.upper()}_AT": value for name, value in arm.items()})
    count = 0
    while count < most and work_once(party.context):
        count += 1
    _say(output, count)


def _clean(output: Path, folder: str, database: str | None, arm: dict[str, str]) -> None:
    """Delete what is not needed any more, as a worker does."""
    from fairpremium.parties.service._housekeeping import clean
    from fairpremium.parties.service._third_party import ThirdParty

    party = ThirdParty(folder, database=database)
    os.environ.update({f"FAIRPREMIUM_{name.upper()}_AT": value for name, value in arm.items()})
    clean(party.context)
    _say(output, "done")


def _backup(output: Path, folder: str, database: str | None, target: str, arm: dict[str, str]) -> None:
    """Make a backup, and say how many entries its log has, or why there is none."""
    from fairpremium.parties.backup import BackupError, make_backup

    os.environ.update({f"FAIRPREMIUM_{name.upper()}_AT": value for name, value in arm.items()})
    try:
        _say(output, make_backup(folder, target, database=database).manifest.entries)
    except BackupError as error:
        _say(output, str(error))


def _restore(output: Path, folder: str, database: str | None, backup: str, arm: dict[str, str]) -> None:
    """Restore a backup, and say the same."""
    from fairpremium.parties.backup import BackupError, restore_backup

    os.environ.update({f"FAIRPREMIUM_{name.upper()}_AT": value for name, value in arm.items()})
    try:
        _say(output, restore_backup(backup, folder, database=database).manifest.entries)
    except BackupError as error:
        _say(output, str(error))


def _report(
    output: Path, folder: str, database: str | None, study: str, collector: str, reports: list[Any], descriptor: Any
) -> None:
    """Put reports one by one, straight into the folder, and say what came of each."""
    from fairpremium.parties import Problem
    from fairpremium.parties.protocol._messages import Report
    from fairpremium.parties.service._context import Party
    from fairpremium.parties.service._third_party import ThirdParty

    party = ThirdParty(folder, database=database)
    answers = []
    for key, value in reports:
        try:
            message = Report(report=value, channel=descriptor)
            party.put_report(Party(collector, "collector"), study, bytes.fromhex(key), message)
            answers.append("taken")
        except Problem as problem:
            answers.append(problem.code)
    _say(output, answers)


_TASKS = {
    "web": _web,
    "listen": _listen,
    "work": _work,
    "open": _open,
    "request": _request,
    "fit": _fit,
    "report": _report,
}
_TASKS |= {"clean": _clean, "backup": _backup, "restore": _restore}

if __name__ == "__main__":
    _main()
