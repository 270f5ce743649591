"""The rows that fit learns from: roles of columns, and reports joined from a file of their own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd

from fairpremium.cli._channel_file import Described, find_channel
from fairpremium.cli._command import option_panel
from fairpremium.cli._tables import as_text, read_table, require_columns, require_filled, require_numbers
from fairpremium.models import describe_texts

column_option = option_panel("Columns")


@dataclass(frozen=True)
class Roles:
    """The options that name the columns that are not features, and the file of the reports."""

    outcome: Annotated[str, column_option(help="Column with the losses.")]
    sensitive: Annotated[str, column_option(help="Column with the reports.")] = "report"
    weight: Annotated[str | None, column_option(help="Column with the exposure or volume.")] = None
    reports: Annotated[Path | None, column_option(help="File with the reports, joined by --key.")] = None
    key: Annotated[str | None, column_option(help="Column that identifies a policy.")] = None

    def __post_init__(self) -> None:
        """Refuse a column with two roles, and reports that cannot be joined."""
        named: dict[str, str] = {}
        for role, name in self.columns.items():
            if name in named:
                raise ValueError(f"Column {name!r} cannot be both --{named[name]} and --{role}.")
            named[name] = role
        if self.reports is not None and self.key is None:
            raise ValueError("--reports needs --key, the column that both files share.")

    @property
    def columns(self) -> dict[str, str]:
        """The columns that are given, by role."""
        found = {"outcome": self.outcome, "sensitive": self.sensitive, "weight": self.weight, "key": self.key}
        return {role: name for role, name in found.items() if name is not None}

    def require_free(self, names: list[str]) -> None:
        """Refuse columns that have a role already."""
        for role, name in self.columns.items():
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
    joined: dict[str, Any] | None = None


def load_data(path: Path, roles: Roles, features: list[str] | None) -> Data:
    """Read the portfolio and the reports, which are a column of it or a file of their own."""
    reports = roles.reports
    own = [name for role, name in roles.columns.items() if reports is None or role != "sensitive"]
    frame = read_table(path, require=own, text={roles.sensitive, roles.key})
    joined = None
    if reports is None:
        column = frame[roles.sensitive]
    elif roles.sensitive in frame.columns:
        raise ValueError(
            f"Both {path} and {reports} could hold the reports: {path} has a column {roles.sensitive!r} too. "
            "Leave out --reports, or name the other file's column with --sensitive."
        )
    else:
        column, joined = _join(frame, path, reports, str(roles.key), roles.sensitive)
    source = reports or path
    return Data(
        X=_features(frame, features, roles, path),
        y=require_numbers(frame, roles.outcome, path),
        reports=column,
        weight=None if roles.weight is None else require_numbers(frame, roles.weight, path),
        described=find_channel(source, roles.sensitive),
        reports_path=source,
        joined=joined,
    )


def _join(frame: pd.DataFrame, path: Path, reports: Path, key: str, sensitive: str) -> tuple[pd.Series, dict[str, Any]]:
    """Return the report of each row of the portfolio, missing where there is none, and the counts."""
    table = read_table(reports, require=[key, sensitive], text={key, sensitive})
    keys, wanted = (
        require_filled(as_text(one[key], place), place, "a key") for one, place in ((table, reports), (frame, path))
    )
    repeated = int(keys.duplicated().sum())
    if repeated:
        raise ValueError(f"Column {key!r} of {reports} repeats a key in {repeated} rows; expected one report per key.")
    place = pd.Index(keys).get_indexer(pd.Index(wanted))
    if (place < 0).all():
        raise ValueError(f"No key of {path} occurs in {reports}. Do both files use the same {key!r}?")
    column = table[sensitive].reset_index(drop=True).reindex(place).reset_index(drop=True)
    matched = int((place >= 0).sum())
    unused = len(table) - len(set(place[place >= 0].tolist()))
    return column, {"matched": matched, "rows": len(frame), "unused_reports": unused}


def _features(frame: pd.DataFrame, names: list[str] | None, roles: Roles, path: Path) -> pd.DataFrame:
    if names is not None:
        roles.require_free(names)
        require_columns(list(frame.columns), names, path)
        return frame[names]
    found = [name for name in frame.columns if name not in roles.columns.values()]
    if not found:
        raise ValueError(f"{path} has no column left to be a feature.")
    for name in found:
        if not pd.api.types.is_numeric_dtype(frame[name]):
            looks = describe_texts(frame[name].value_counts().to_dict())
            if looks is not None:
                raise ValueError(
                    f"Column {name!r} of {path} has {looks}. Name it with --key if it is one, choose the features with "
                    "--features, or say what it is with --terms."
                )
    return frame[found]
