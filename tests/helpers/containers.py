"""A Containerfile without a container engine: its steps are executed in roots made by debootstrap.

Every command runs in namespaces of its own for mounts and processes: when it ends, its mounts and all that it started
are gone, so that a root can be deleted like any folder. Package sources are those of this machine, read at run time.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from helpers.processes import descendants

PROGRAMS = {"debootstrap": "debootstrap", "unshare": "util-linux", "apt-get": "apt"}
_PATIENCE = 600.0
_APT = ("apt/sources.list", "apt/sources.list.d", "apt/apt.conf", "apt/apt.conf.d", "apt/trusted.gpg.d", "apt/keyrings")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Arguments: the root, whether it is read-only, then SOURCE:TARGET for every further mount, `--`, and the command.
_ENTER = """
set -eu
root=$1 read_only=$2; shift 2
mount --bind "$root" "$root"
[ "$read_only" = no ] || mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
[ "$read_only" = no ] || mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
while [ "$1" != -- ]; do mount --bind "${1%%:*}" "$root${1#*:}"; shift; done
shift
exec chroot "$root" "$@"
"""


def require_programs() -> None:
    """Skip the test where roots cannot be made."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a Debian root: run the tests as root")
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            pytest.skip(f"no {program}: apt-get install {package}")
    probe = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("no namespaces for mounts and processes here: allow unshare, or run the tests on a whole machine")


def make_root(folder: Path) -> None:
    """Make the smallest Debian of this machine's own release, from its own package sources."""
    query = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages"]
    codename = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    assert codename, "this machine is no release of Debian"
    targets = [line.split() for line in _check(query).splitlines()]
    mirror = next(uri for uri, name in targets if name == codename[1])
    _check(["unshare", "--mount", "debootstrap", "--variant=minbase", codename[1], str(folder), mirror])
    for name in _APT:
        source, target = Path("/etc") / name, folder / "etc" / name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy(source, target)
    shutil.copytree("/usr/share/keyrings", folder / "usr/share/keyrings", dirs_exist_ok=True)
    for name in ("resolv.conf", "hosts"):
        shutil.copy(f"/etc/{name}", folder / "etc" / name)


def _check(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@dataclass
class Image:
    """What a Containerfile makes: a root, and how its program is started."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": _PATH})
    user: str = "0:0"
    folder: str = "/"
    volume: str = ""
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    healthcheck: list[str] = field(default_factory=list)

    def start(
        self, *command: str, read_only: bool = False, mounts: Mapping[str, str] | None = None, **environment: str
    ) -> subprocess.Popen[str]:
        """Start a command as the image's user, without any privilege if that is not root.

        - `mounts`: Folders or files of this machine, and where they appear.
        """
        user, _, group = self.user.partition(":")
        who = ["setpriv", "--reuid", user, "--regid", group, "--clear-groups"]
        if user != "0":
            who += ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        variables = [f"{name}={value}" for name, value in {**self.environment, **environment}.items()]
        enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _ENTER, "enter", str(self.root)]
        enter += ["yes" if read_only else "no", *(f"{source}:{target}" for source, target in (mounts or {}).items())]
        call = [*enter, "--", *who, "env", "-i", "-C", self.folder, *variables, *command]
        return subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        with self.start(*command, **options) as process:
            try:
                out, err = process.communicate(timeout=_PATIENCE)
            finally:
                kill(process)
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a command with all that it started: a change of user undoes what --kill-child has set."""
    for pid in descendants(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.kill()


def build_image(containerfile: Path, context: Path, debian: Path, folder: Path) -> Image:
    """Execute a Containerfile whose first stage is on Debian; each stage has a root of its own below `folder`.

    - `context`: The folder that COPY copies from.
    - `debian`: The root that takes the place of the image of Debian.
    """
    stages: dict[str, Image] = {}
    image = Image(debian)
    for name, rest in _instructions(containerfile.read_text(encoding="utf-8")):
        if name == "FROM":
            source, _, title = rest.partition(" AS ")
            before = Image(debian) if source.startswith("debian:") else stages[source]
            image = _copy_image(before, folder / f"stage-{len(stages)}")
            stages[title or "last"] = image
        elif name == "COPY":
            *sources, target = rest.split()
            origin = context
            if sources[0].startswith("--from="):
                origin = stages[sources.pop(0).removeprefix("--from=")].root
            _copy(origin, sources, image.root, target)
        elif name == "RUN":
            done = image.run("sh", "-c", rest, mounts=_pip_places(image.root), **_proxies())
            assert done.returncode == 0, f"RUN {rest}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        elif name == "ENV":
            variable, _, value = rest.partition("=")
            image.environment[variable] = value
        elif name == "USER":
            image.user = rest
        elif name == "WORKDIR":
            image.folder = rest
        elif name == "VOLUME":
            (image.volume,) = json.loads(rest)
        elif name == "ENTRYPOINT":
            image.entrypoint = json.loads(rest)
        elif name == "CMD":
            image.command = json.loads(rest)
        elif name == "HEALTHCHECK":
            image.healthcheck = json.loads(rest.partition("CMD ")[2])
        elif name not in ("ARG", "EXPOSE"):
            raise ValueError(
                f"Got {name} in {containerfile.name}, but expected an instruction that this test executes."
            )
    return image


def _instructions(text: str) -> list[tuple[str, str]]:
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines]


def _copy_image(image: Image, root: Path) -> Image:
    _check(["cp", "-a", "--reflink=auto", f"{image.root}/.", str(root)])
    return Image(root, environment=dict(image.environment), user=image.user, folder=image.folder)


def _copy(origin: Path, sources: list[str], root: Path, target: str) -> None:
    place = root / target.lstrip("/")
    for name in sources:
        source = origin / name.lstrip("/")
        if source.is_dir():
            shutil.copytree(source, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (place if target.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
            shutil.copy(source, place / source.name if target.endswith("/") else place)


def _proxies() -> dict[str, str]:
    return {name: os.environ[name] for name in _PROXIES if name in os.environ}


def _pip_places(root: Path) -> dict[str, str]:
    """Give a root this machine's settings of pip; return the local places that they name, which must be mounted."""
    settings: dict[str, str] = {}
    for line in _check([sys.executable, "-m", "pip", "config", "list"]).splitlines():
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = value.strip("'\"")
    text = "".join(f"{name} = {value}\n" for name, value in settings.items())
    (root / "etc" / "pip.conf").write_text(f"[global]\n{text}", encoding="utf-8")
    places = {}
    for word in " ".join(settings.values()).replace("file://", "").split():
        place = Path(word.removesuffix("/simple"))  # an index lies beside the files that it names
        if not word.startswith("/") or not place.exists():
            continue
        target = root / place.relative_to("/")
        if place.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        if target.exists():  # a file of certificates: once Debian's are there
            places[str(place)] = str(place)
    return places
