"""Files around the library that can go stale: versions, pins, commands, traces of one machine."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import fairpremium

ROOT = Path(__file__).resolve().parents[1]
IGNORED_FOLDERS = {".git", ".venv", "site", "demo", "results", "build", "dist", "__pycache__"}

TRACES = {
    "a path of one machine": re.compile(r"(?<![\w.\-/])/(?:work|root|opt|home|Users)/\w|\b[A-Z]:\\Users"),
    "a package-registry address": re.compile(
        r"pypi\.org|pythonhosted\.org|index-url|pytorch\.org/whl|https?://\S*/simple/"
    ),
}


def project_files() -> list[Path]:
    """Tracked and not-ignored files but this one; without git, all files outside build folders."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode == 0:
        paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        paths = [p for p in ROOT.rglob("*") if not IGNORED_FOLDERS & set(p.relative_to(ROOT).parts)]
    return sorted(p for p in paths if p.is_file() and p != Path(__file__).resolve())


def text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="ignore")


@pytest.fixture(scope="module")
def metadata() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("kind", TRACES)
def test_no_file_carries_traces_of_one_machine(kind):
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in project_files()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if TRACES[kind].search(line)
    ]
    assert not found, f"{kind}:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("kind", "line", "is_trace"),
    [
        ("a path of one machine", "/work/main/x.csv", True),
        ("a path of one machine", "path='/home/ada/data'", True),
        ("a path of one machine", "docs/work/home.md and https://example.org/home/x", False),
        ("a package-registry address", "--extra-index-url x", True),
        ("a package-registry address", "https://mirror.example/simple/numpy", True),
        ("a package-registry address", "a simple price list", False),
    ],
)
def test_the_trace_check_sees_a_trace(kind, line, is_trace):
    assert bool(TRACES[kind].search(line)) is is_trace


def test_the_version_is_in_changelog_and_citation():
    version = re.escape(fairpremium.__version__)
    assert re.search(rf"^## \[{version}\]", text_of(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert re.search(rf"^version: \"?{version}\"?$", text_of(ROOT / "CITATION.cff"), re.MULTILINE)


def test_every_direct_dependency_is_pinned_to_a_version_it_accepts(metadata):
    pins = {}
    for line in text_of(ROOT / "constraints.txt").splitlines():
        if line and not line.startswith("#"):
            name, version = line.split("==")
            assert re.fullmatch(r"[0-9][0-9a-z.]*", version), f"{line}: not found elsewhere"
            pins[canonicalize_name(name)] = version
    wanted = [
        *metadata["dependencies"],
        *(r for group in metadata["optional-dependencies"].values() for r in group),
    ]
    for requirement in map(Requirement, wanted):
        name = canonicalize_name(requirement.name)
        if name != "fairpremium":
            assert name in pins, f"{name} is not in constraints.txt"
            assert requirement.specifier.contains(pins[name]), f"{requirement} excludes {pins[name]}"
    assert pins["torch"] == "2.13.0"


def test_the_extra_all_holds_every_feature(metadata):
    extras = metadata["optional-dependencies"]
    (everything,) = map(Requirement, extras["all"])
    assert everything.extras == set(extras) - {"all", "test", "docs", "bench"}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_make_target_in_the_text_exists(page):
    targets = set(re.findall(r"^([a-z]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z]+)", text_of(ROOT / page)))
    named |= set(re.findall(r"^make ([a-z]+)", text_of(ROOT / page), re.MULTILINE))
    assert named <= targets


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_two_commands_exist(target):
    assert re.search(rf"^{target}:", text_of(ROOT / "Makefile"), re.MULTILINE)


def test_the_demo_installs_no_heavy_extra():
    (line,) = re.findall(r"^EXTRAS_demo := (.*)$", text_of(ROOT / "Makefile"), re.MULTILINE)
    assert not {"neural", "spark", "distributed", "all"} & set(line.split(","))
