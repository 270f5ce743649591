"""The Containerfile, executed in a clean Debian: the demo runs as its user, without privileges, on a read-only root."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from helpers import containers
from helpers.ports import free_port
from helpers.processes import wait_until

ROOT = Path(__file__).resolve().parents[2]
DATA = "/var/lib/fairpremium"


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    containers.require_programs()
    folder = tmp_path_factory.mktemp("image")
    containers.make_root(folder / "debian")
    return containers.build_image(ROOT / "deploy" / "Containerfile", ROOT, folder / "debian", folder)


@pytest.fixture
def volume(tmp_path, image):
    """A folder for the container's data, for its user alone."""
    folder = tmp_path / "volume"
    folder.mkdir(0o700)
    os.chown(folder, *map(int, image.user.split(":")))
    return {str(folder): image.volume}


def test_the_demo_runs_in_the_image(image, volume):
    done = image.run(*image.entrypoint, "demo", "--out", "demo", read_only=True, mounts=volume)
    assert done.returncode == 0, done.stderr
    assert "The log is intact" in done.stdout
    folder = Path(next(iter(volume))) / "demo"
    assert (folder / "premiums.csv").stat().st_size > 1000
    assert "<svg" in (folder / "report.html").read_text(encoding="utf-8")
    assert (folder / "premiums.csv").stat().st_uid == int(image.user.partition(":")[0])


def test_the_health_check_tells_whether_the_service_answers(image, volume):
    port = str(free_port())
    check = {"read_only": True, "mounts": volume, "FAIRPREMIUM_PORT": port}
    assert image.run(*image.healthcheck, **check).returncode == 1
    with image.start(*image.entrypoint, *image.command, "--port", port, read_only=True, mounts=volume) as service:
        try:
            wait_until(lambda: image.run(*image.healthcheck, **check).returncode == 0, every=0.5)
            assert image.run(*image.healthcheck, **check, FAIRPREMIUM_NAME="other.example").returncode == 1
        finally:
            containers.kill(service)
    assert image.run(*image.healthcheck, **check).returncode == 1  # nothing is left of it


def test_the_user_cannot_change_the_program_or_the_root(image, volume):
    for read_only, path in (
        (True, "/usr/x"),
        (True, "/etc/x"),
        (False, "/usr/local/lib/fairpremium/x"),
        (False, "/etc/x"),
    ):
        assert image.run("touch", path, read_only=read_only).returncode, path
    assert image.run("touch", f"{DATA}/x", "/tmp/x", read_only=True, mounts=volume).returncode == 0
    assert image.run("id", "-u").stdout.strip() == "10001"


def test_nothing_of_the_build_is_left_in_the_image(image):
    for name in ("source", "usr/local/lib/fairpremium/bin/pip", "var/lib/apt/lists/lock"):
        assert not (image.root / name).exists(), name


def test_no_mount_is_left_behind(image):
    mounted = Path("/proc/self/mounts").read_text(encoding="utf-8")
    assert str(image.root) not in mounted


def test_an_unknown_instruction_is_not_passed_over(tmp_path):
    (tmp_path / "Containerfile").write_text("SHELL /bin/bash\n", encoding="utf-8")
    with pytest.raises(ValueError, match="SHELL"):
        containers.build_image(tmp_path / "Containerfile", tmp_path, tmp_path, tmp_path)


@pytest.mark.parametrize("arguments", [[], ["program"], ["program", "nowhere"], ["other"]])
def test_the_script_refuses_what_it_does_not_know(arguments):
    done = subprocess.run([ROOT / "deploy" / "install.sh", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr
