"""The documentation runs: Python blocks are executed, command lines parsed, pages and navigation agree."""

from __future__ import annotations

import contextlib
import doctest
import hashlib
import io
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

import fairpremium
from fairpremium.cli._app import make_app
from fairpremium.portfolios import _loaders

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)(?P<options>[^\n]*)\n(?P<body>.*?)^(?P=indent)```\s*$",
    re.MULTILINE | re.DOTALL,
)
STOPS = {"|", ">", ">>", "&", "&&", ";"}
PYTHON = {"python", "py"}
SHELLS = {"bash", "sh", "shell", "console"}
APP = make_app()
CSV_TO_TARIFF = DOCS / "guide" / "csv-to-tariff.md"  # it reads a file that is not part of the project
GALLERY = runpy.run_path(str(DOCS / "gallery" / "build.py"))


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, languages: set[str], options: str = "") -> list[tuple[int, str]]:
    """The fenced blocks of a page in one of the languages, as (first line, code)."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        if match["language"] in languages and options in match["options"]:
            indent = len(match["indent"])
            body = "\n".join(line[indent:] for line in match["body"].splitlines()) + "\n"
            found.append((text.count("\n", 0, match.start("body")) + 1, body))
    return found


def commands_of(body: str) -> list[tuple[str, ...]]:
    """The `fairpremium ...` commands of a shell block, without pipes and redirections."""
    found = []
    for line in body.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if words[:1] == ["fairpremium"]:
            end = next((i for i, word in enumerate(words) if word in STOPS), len(words))
            found.append(tuple(words[1:end]))
    return found


def command_lines(page: Path) -> list[tuple[str, ...]]:
    """The commands of a page's shell blocks."""
    return [command for _, body in blocks(page, SHELLS) for command in commands_of(body)]


def with_output(page: Path, languages: set[str]) -> list[tuple[int, str, str]]:
    """The blocks of a page with the block ```text title="Output" that follows each of them, as (line, code, output)."""
    outputs = dict(blocks(page, {"text"}, 'title="Output"'))
    found: list[tuple[int, str, str]] = []
    for line, body in sorted([*blocks(page, PYTHON | SHELLS), *outputs.items()]):
        if line in outputs:
            found[-1] = (*found[-1][:2], body)
        else:
            found.append((line, body, ""))
    wanted = {line for line, _ in blocks(page, languages)}
    return [block for block in found if block[0] in wanted]


def run_blocks(page: Path, languages: set[str] = PYTHON, *, compare: bool = True) -> None:
    """Execute a page's Python blocks in order, in one namespace; tracebacks carry the page's line numbers.

    Commands are executed between them if `languages` has those of shells.
    """
    namespace: dict[str, object] = {"__name__": "__main__"}
    commands = {line: commands_of(body) for line, body in blocks(page, languages & SHELLS)}
    for line, body, output in with_output(page, languages):
        if line in commands:
            results = [CliRunner().invoke(APP, command, catch_exceptions=False) for command in commands[line]]
            assert not any(result.exit_code for result in results), [result.output for result in results]
            same(output if compare else "", "".join(result.stdout for result in results), page)
        elif ">>>" in body:
            test = doctest.DocTestParser().get_doctest(body, namespace, name_of(page), str(page), line)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
            assert runner.run(test, clear_globs=False).failed == 0, f"{name_of(page)}:{line}"
            namespace = test.globs
        else:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile("\n" * (line - 1) + body, str(page), "exec"), namespace)
            same(output if compare else "", printed.getvalue(), page)


def same(output: str, printed: str, page: Path) -> None:
    """What was printed is the output that the page shows, if it shows one."""
    assert not output or [row.rstrip() for row in printed.splitlines()] == output.splitlines(), name_of(page)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, PYTHON) and p != CSV_TO_TARIFF], ids=name_of)
def test_the_python_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_blocks(page)


def write_belgian_motor(path: Path) -> None:
    """Write a simulated book with the columns of the Belgian portfolio."""
    rng, n = np.random.default_rng(0), 6_000
    sex = rng.choice(["female", "male"], n, p=[0.3, 0.7])
    expo, bm = rng.uniform(0.1, 1, n).round(3), np.minimum(rng.geometric(0.25, n) - 1, 22)
    nclaims = rng.poisson(expo * np.exp(-1 + 0.1 * bm + 0.2 * (sex == "male")))
    pd.DataFrame({
        "expo": expo,
        "nclaims": nclaims,
        "amount": rng.gamma(0.5 * nclaims, 5000.0),
        "coverage": rng.choice(["TPL", "TPL+", "TPL++"], n),
        "ageph": rng.integers(18, 96, n),
        "sex": sex,
        "bm": bm,
        "power": rng.integers(20, 120, n) + 10 * (sex == "male"),
        "agec": rng.integers(0, 25, n),
        "fuel": rng.choice(["gasoline", "diesel"], n),
        "use": rng.choice(["private", "work"], n),
        "fleet": rng.choice(["0", "1"], n),
    }).to_parquet(path)  # fmt: skip


def run_csv_to_tariff(folder: Path, monkeypatch: pytest.MonkeyPatch, *, compare: bool) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_blocks(CSV_TO_TARIFF, PYTHON | SHELLS, compare=compare)


def test_from_a_csv_to_a_tariff_on_a_simulated_book(tmp_path, monkeypatch):
    """Every step runs on a table of the same columns, whose hash takes the place of the real one's."""
    path = tmp_path / "beMTPL97.parquet"
    write_belgian_motor(path)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(_loaders, "BELGIAN_MOTOR", replace(_loaders.BELGIAN_MOTOR, sha256=sha256))
    run_csv_to_tariff(tmp_path, monkeypatch, compare=False)
    files = {"model.json", "tariff.xlsx", "tariff.sql", "report.html", "renewal.csv"}
    assert files <= {each.name for each in tmp_path.iterdir()}


def test_from_a_csv_to_a_tariff_prints_what_the_page_shows(tmp_path, shared_data, monkeypatch):
    (tmp_path / "beMTPL97.parquet").symlink_to(shared_data / "beMTPL97.parquet")
    run_csv_to_tariff(tmp_path, monkeypatch, compare=True)


def refused(lines: list[tuple[str, ...]]) -> str:
    """What the command line says about the first line that it does not understand; empty if it understands all.

    --help is looked at before anything else runs, but only after command and option names have been parsed.
    """
    for words in lines:
        result = CliRunner().invoke(APP, [*words, "--help"])
        if result.exit_code:
            return f"{result.stderr}fairpremium {' '.join(words)}: exit code {result.exit_code}"
    return ""


@pytest.mark.parametrize("page", [p for p in PAGES if command_lines(p)], ids=name_of)
def test_the_commands_and_their_options_exist(page):
    assert not refused(command_lines(page))


def shape(text: str) -> list[list[str]]:
    """What every run prints: without numbers and brackets, which depend on the reports that were drawn."""
    return [re.sub(r"\(.*?\)|\d[\d.,]*", "", line).split() for line in text.strip().splitlines()]


def test_the_front_pages_work_on_the_files_of_the_demo(tmp_path):
    shown = {}
    for page in (ROOT / "README.md", DOCS / "index.md", DOCS / "start" / "compliance.md"):
        for _, body, output in with_output(page, SHELLS):
            shown |= {command: output or shown.get(command) for command in commands_of(body)}
    assert next(iter(shown)) == ("demo", "--out", "demo")
    for command, output in shown.items():
        call = [sys.executable, "-P", "-m", "fairpremium", *command]
        done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert not output or shape(output) == shape(done.stdout)


def test_broken_examples_are_noticed(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    page.write_text("```python\nx = 1\n```\n\n1. a\n\n    ```python\n    assert x == 1\n    ```\n", encoding="utf-8")
    run_blocks(page)
    page.write_text("```python\nx = 1\n```\n```python\nassert x == 2\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError):
        run_blocks(page)
    page.write_text("```python\n>>> 1 + 1\n3\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"page\.md:2"):
        run_blocks(page)
    page.write_text('```python\nprint(1)\n```\n```text title="Output"\n2\n```\n', encoding="utf-8")
    with pytest.raises(AssertionError, match=r"page\.md"):
        run_blocks(page)
    page.write_text("```bash\n$ fairpremium fit a \\\n    --keep 0.8 > x  # why\nls\n```\n", encoding="utf-8")
    assert command_lines(page) == [("fit", "a", "--keep", "0.8")]
    assert "--keeps" in refused([("fit", "a", "--keep", "0.8"), ("fit", "a", "--keeps", "0.8")])
    assert "exit code" in refused([("fitt", "a")])


def nav_pages(entry: object) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    values = entry.values() if isinstance(entry, dict) else entry
    return [page for value in values for page in nav_pages(value)]


def test_every_page_is_in_the_navigation_and_the_other_way_round():
    listed = nav_pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    present = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert sorted(listed) == sorted(present)


def test_every_package_has_a_reference_page():
    package = ROOT / "src" / "fairpremium"
    packages = {p.parent.name for p in package.glob("*/__init__.py")} - {"cli"}  # the guide has the commands
    described = "\n".join(p.read_text(encoding="utf-8") for p in (DOCS / "reference").glob("*.md"))
    missing = packages - set(re.findall(r"^::: fairpremium\.(\w+)", described, re.MULTILINE))
    assert not missing, f"no page in docs/reference describes {sorted(missing)}"


def test_the_reference_lists_what_can_be_imported():
    page = (DOCS / "reference" / "index.md").read_text(encoding="utf-8")
    table = page.split("| module |")[0]
    assert set(re.findall(r"`(\w+)`(?=[,| ].*\|.*\|)", table)) - {"fairpremium"} == set(fairpremium.__all__)


def test_the_readme_fits_on_a_screen():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 700


def test_the_glossary_names_code_that_exists():
    rows = re.findall(r"^\| .*\| (.*) \|$", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    names = [
        name for row in rows for name in re.findall(r"`([A-Za-z_.]+[a-zA-Z])`", row)
    ]  # no parameters, no attributes_
    assert len(names) >= 30
    for name in names:
        pkgutil.resolve_name(f"fairpremium.{name}")  # raises if it does not exist


@pytest.mark.parametrize("script", GALLERY["SCRIPTS"], ids=lambda script: script.stem)
def test_the_gallery_shows_its_scripts(script):
    # That the code runs and prints the output is what test_the_python_examples_run checks of every page.
    page = script.with_suffix(".md")
    ((_, output),) = blocks(page, {"text"}, 'title="Output"')
    build = "run make gallery"
    assert page.read_text(encoding="utf-8") == GALLERY["page"](script, output), build
    assert script.with_suffix(".svg").is_file(), build
    assert len(script.read_text(encoding="utf-8").splitlines()) < 60


def test_the_gallery_has_every_script():
    folder = DOCS / "gallery"
    assert {p.stem for p in folder.glob("*.py")} == {p.stem for p in GALLERY["SCRIPTS"]} | {"build"}
    assert (folder / "index.md").read_text(encoding="utf-8") == GALLERY["index"]()


LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s#]+)(?:#[^)]*)?\)|<img[^>]*src=\"([^\"]+)\"")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_files_lead_somewhere(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = [a or b for a, b in LINK.findall(text)]
    missing = [t for t in targets if not re.match(r"[a-z]+:", t) and not (page.parent / t).exists()]
    assert not missing, f"{name_of(page)} links to {missing}"
