"""The rows that fit learns from: roles of columns, and reports joined from a file of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fairpremium.cli._channels import Described, find_channel
from fairpremium.cli._files import (
    as_text,
    read_columns,
    read_table,
    require_columns,
    require_numbers,
)

_MANY_LEVELS = 20


@dataclass(frozen=True)
class Roles:
    """The names of the columns that are not features."""

    outcome: str
    sensitive: str
    weight: str | None
    key: str | None

    def __post_init__(self) -> None:
        """Refuse a column with two roles."""
        named: dict[str, str] = {}
        for role, name in vars(self).items():
            if name in named:
                raise ValueError(f"Column {name!r} cannot be both --{named[name]} and --{role}.")
            if name is not None:
                named[name] = role

    def require_free(self, names: list[str]) -> None:
        """Refuse columns that have a role already."""
        for role, name in vars(self).items():
            if name in names:
                raise ValueError(f"Column {name!r} is --{role} already; expected others here.")


@dataclass(frozen=True)
class Data:
    """What fit learns from."""

    X: pd.DataFrame
    y: pd.Series
    reports: pd.Series  # as the file has them
    weight: pd.Series | None
    described: Described | None
    reports_path: Path
    joined: dict[str, Any] | None = field(default=None)


def load_data(path: Path, roles: Roles, features: list[str] | None, reports: Path | None) -> Data:
    """Read the portfolio and the reports, which are a column of it or a file of their own."""
    if reports is not None and roles.key is None:
        raise ValueError("--reports needs --key, the column that both files share.")
    text = {roles.sensitive} | ({roles.key} if roles.key else set())
    frame = read_table(path, text=text)
    own = [roles.outcome, roles.weight, roles.key, *([roles.sensitive] if reports is None else [])]
    require_columns(frame, own, path)
    joined = None
    if reports is None:
        column, source = frame[roles.sensitive], path
    else:
        if roles.sensitive in frame.columns:
            raise ValueError(
                f"Both {path} and {reports} could hold the reports: {path} has a column {roles.sensitive!r} too. "
                "Leave out --reports, or name the other file's column with --sensitive."
            )
        column, joined = _join(frame, path, reports, roles)
        source = reports
    return Data(
        X=_features(frame, features, roles, path),
        y=require_numbers(frame, roles.outcome, path),
        reports=column,
        weight=None if roles.weight is None else require_numbers(frame, roles.weight, path),
        described=find_channel(source, roles.sensitive),
        reports_path=source,
        joined=joined,
    )


def _join(frame: pd.DataFrame, path: Path, reports: Path, roles: Roles) -> tuple[pd.Series, dict[str, Any]]:
    """Return the report of each row of the portfolio, missing where there is none, and the counts."""
    key = str(roles.key)
    if reports.is_file():
        require_columns(pd.DataFrame(columns=read_columns(reports)), [key, roles.sensitive], reports)
    table = read_table(reports, text={key, roles.sensitive})
    require_columns(table, [key, roles.sensitive], reports)
    keys, wanted = as_text(table[key], reports), as_text(frame[key], path)
    for column, place in ((keys, reports), (wanted, path)):
        if column.isna().any():
            raise ValueError(
                f"Column {key!r} of {place} is empty in {int(column.isna().sum())} rows; expected a key in each."
            )
    repeated = int(keys.duplicated().sum())
    if repeated:
        raise ValueError(f"Column {key!r} of {reports} repeats a key in {repeated} rows; expected one report per key.")
    place = pd.Index(keys).get_indexer(pd.Index(wanted))
    if (place < 0).all():
        raise ValueError(f"No key of {path} occurs in {reports}. Do both files use the same {key!r}?")
    column = table[roles.sensitive].reset_index(drop=True).reindex(place).reset_index(drop=True)
    matched = int((place >= 0).sum())
    unused = len(table) - len(set(place[place >= 0].tolist()))
    return column, {"matched": matched, "rows": len(frame), "unused_reports": unused}


def _features(frame: pd.DataFrame, names: list[str] | None, roles: Roles, path: Path) -> pd.DataFrame:
    if names is not None:
        roles.require_free(names)
        require_columns(frame, names, path)
        return frame[names]
    found = [name for name in frame.columns if name not in vars(roles).values()]
    if not found:
        raise ValueError(f"{path} has no column left to be a feature.")
    for name in found:
        if not pd.api.types.is_numeric_dtype(frame[name]):
            levels = frame[name].nunique()
            if levels > _MANY_LEVELS and levels > len(frame) / 2:
                raise ValueError(
                    f"Column {name!r} of {path} has {levels} different texts in {len(frame)} rows, which looks like "
                    "a key and not like a feature. Name it with --key, or choose the features with --features."
                )
    return frame[found]
