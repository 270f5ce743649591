"""The words of the audit report: what each table shows, what is not guaranteed, what the terms mean.

They stand beside the templates of the page, in ``templates/report.toml``.
"""

import functools
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from . import drawing

PRICE_NAMES = {"premiums": "premium", **drawing.PRICE_NAMES}


@functools.cache
def _words() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("templates", "report.toml").read_text(encoding="utf-8"))


def describe_measure(name: str) -> dict[str, str]:
    """Return the label of a measure of discrimination, and the form of its numbers."""
    return dict(_words()["measures"][name])


def describe_section(name: str) -> dict[str, Any]:
    """Return title, explanation and columns of a section."""
    section = _words()["sections"][name]
    columns = []
    for column in section["columns"]:
        key, _, limits = column.partition(" ")
        columns.append({**_words()["columns"][key], "limits": limits == "+-"})
    return {"title": section["title"], "text": section["text"], "columns": columns}


def limits(has_model: bool, privacy: Mapping[str, Any] | None) -> list[str]:
    """Return what is not guaranteed."""
    words = _words()["limits"]
    found = list(words["always"])
    if privacy is not None:
        found += [words["estimated_channel"], words["privacy"]] if privacy["estimated"] else [words["privacy"]]
    return found + (words["model"] if has_model else [])


def definitions(has_model: bool) -> list[list[str]]:
    """Return the terms of the audit report, each with its meaning."""
    found = _words()["definitions"] | (_words()["model_definitions"] if has_model else {})
    return [[term, meaning] for term, meaning in found.items()]
