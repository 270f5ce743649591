"""The part of systemctl that the runbook uses, where no systemd runs: it starts what the units of a folder say.

As a script: ``systemctl start|stop|restart|kill|is-active UNIT...``. The environment names the folder of the units
(UNITS), a folder for pids, credentials and output (UNITS_RUN), and what %S stands for (UNITS_STATE). Sandboxing is left
out; tests/deploy/test_files.py checks it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PATIENCE = 240.0


class Unit:
    """A unit of the folder."""

    def __init__(self, name: str):
        self.name = name.removesuffix(".service")
        template, at, self.instance = self.name.partition("@")
        text = (Path(os.environ["UNITS"]) / f"{template}{at}.service").read_text(encoding="utf-8")
        self._settings = [line.partition("=")[::2] for line in text.splitlines() if "=" in line and line[0] != "#"]
        self.folder = Path(os.environ["UNITS_RUN"]) / self.name
        self.folder.mkdir(exist_ok=True)

    def _get(self, name: str) -> Iterator[str]:
        places = {"%%": "%", "%S": os.environ["UNITS_STATE"], "%d": str(self.folder), "%i": self.instance}
        for key, value in self._settings:
            if key == name:
                yield re.sub("%.", lambda found: places[found[0]], value)

    def start(self) -> int:
        """Start it as systemd would; wait for a unit that does one thing."""
        if self.is_active():
            return 0
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ["UNITS_STATE"]}
        for setting in self._get("Environment"):
            name, _, value = setting.partition("=")
            environment[name] = value
        for path in self._get("EnvironmentFile"):
            for line in Path(path).read_text(encoding="utf-8").splitlines():
                if line and not line.startswith("#"):
                    environment[line.partition("=")[0]] = line.partition("=")[2]
        for setting in self._get("LoadCredential"):
            name, _, path = setting.partition(":")
            shutil.copy(path, self.folder / name)
            (self.folder / name).chmod(0o440)  # as an ACL for the service's user shows
            environment["CREDENTIALS_DIRECTORY"] = str(self.folder)
        (command,) = self._get("ExecStart")
        words = [
            word.replace("${FAIRPREMIUM_NAME}", environment.get("FAIRPREMIUM_NAME", ""))
            for word in shlex.split(command)
        ]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        if "oneshot" in self._get("Type"):
            code = process.wait()
            if code:
                sys.stderr.write((self.folder / "log").read_text(encoding="utf-8")[-2000:])
            return code
        (self.folder / "pid").write_text(str(process.pid))
        return 0

    def _pid(self) -> int:
        with suppress(OSError, ValueError):
            return int((self.folder / "pid").read_text())
        return 0

    def is_active(self) -> bool:
        """Does its process run?"""
        with suppress(OSError):
            return (
                self._pid() > 0 and Path(f"/proc/{self._pid()}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
            )
        return False

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end."""
        if self.is_active():
            os.kill(self._pid(), how)
        until = time.monotonic() + _PATIENCE
        while self.is_active():
            if time.monotonic() > until:
                return 1
            time.sleep(0.05)
        return 0


def main() -> int:
    """Do what systemctl does."""
    command, *names = sys.argv[1:]
    units = [Unit(name) for name in names]
    if command == "start":
        return max(unit.start() for unit in units)
    if command in ("stop", "restart"):
        codes = [unit.stop() for unit in units]
        return max(codes + [unit.start() for unit in units if command == "restart"])
    if command == "kill":
        return max(unit.stop(signal.SIGKILL) for unit in units)
    if command == "is-active":
        states = [unit.is_active() for unit in units]
        print("\n".join("active" if state else "inactive" for state in states))
        return 0 if all(states) else 3
    raise ValueError(f"Got systemctl {command}, but expected start, stop, restart, kill or is-active.")


if __name__ == "__main__":
    sys.exit(main())
