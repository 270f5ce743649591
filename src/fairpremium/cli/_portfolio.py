"""The rows that fit learns from: roles of columns, and reports joined from a file of their own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd

from fairpremium.cli._channel_file import Described, find_channel
from fairpremium.cli._command import option_panel
from fairpremium.cli.tables import TableFormat, as_text, read_table, require_columns, require_filled, require_numbers

column_option = option_panel("Columns")
OutcomeOption = Annotated[
    str,
    column_option(help="Column with losses per unit of volume; with --exposure their totals (claim counts, amounts)."),
]
WeightOption = Annotated[str | None, column_option(help="Column with the volume that the losses were divided by.")]
ExposureOption = Annotated[
    str | None, column_option(help="Column with the exposure, such as years, if the outcome is a total over it.")
]


@dataclass(frozen=True)
class Roles:
    """The options that name the columns that are not features, and the file of the reports."""

    outcome: OutcomeOption
    sensitive: Annotated[str, column_option(help="Column with the reports.")] = "report"
    weight: WeightOption = None
    exposure: ExposureOption = None
    reports: Annotated[Path | None, column_option(help="File with the reports, joined by --key.")] = None
    key: Annotated[str | None, column_option(help="Column that identifies a policy.")] = None
    second_report: Annotated[
        str | None,
        column_option(help="Column with a second report of the same person, drawn with fresh noise; may have gaps."),
    ] = None
    channel_key: Annotated[
        str | None,
        column_option(help="Column that says which source a report is from, if several --channel are given."),
    ] = None

    def __post_init__(self) -> None:
        """Refuse a column with two roles, and reports that cannot be joined."""
        named: dict[str, str] = {}
        for role, name in self.columns.items():
            if name in named:
                raise ValueError(f"Column {name!r} cannot be both --{named[name]} and --{role}.")
            named[name] = role
        check_volumes(self.weight, self.exposure)
        if self.reports is not None and self.key is None:
            raise ValueError("--reports needs --key, the column that both files share.")

    @property
    def columns(self) -> dict[str, str]:
        """The columns that are given, by role."""
        names = ("outcome", "sensitive", "second_report", "weight", "exposure", "key", "channel_key")
        return {role.replace("_", "-"): name for role in names if (name := getattr(self, role)) is not None}

    @property
    def texts(self) -> set[str | None]:
        """The columns that are read as text: reports and keys."""
        return {self.sensitive, self.second_report, self.key, self.channel_key}

    @property
    def perils(self) -> dict[str, tuple[str, str]]:
        """Columns with the number and the amount of claims by peril, where they take the place of the outcome."""
        return {}

    def beside_reports(self, portfolio: Sequence[str]) -> list[str]:
        """Return the columns to take from the file of the reports; the portfolio may say itself whose they are."""
        wanted = [self.sensitive, self.second_report, None if self.channel_key in portfolio else self.channel_key]
        return [name for name in wanted if name is not None]

    def require_free(self, names: list[str]) -> None:
        """Refuse columns that have a role already."""
        for role, name in self.columns.items():
            if name in names:
                raise ValueError(f"Column {name!r} is --{role} already; expected others here.")


def check_volumes(weight: str | None, exposure: str | None) -> None:
    """Refuse two volumes."""
    if weight is not None and exposure is not None:
        raise ValueError(
            f"Got --weight {weight} and --exposure {exposure}, but expected one of them: --exposure if the outcome is "
            "a total over it, --weight if it was divided by it."
        )


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
    exposure: pd.Series | None = None
    claims: tuple[pd.DataFrame, pd.DataFrame] | None = None  # numbers and amounts by peril
    channel_key: pd.Series | None = None  # which source a report is from
    second: pd.Series | None = None  # a second report of the same person

    @property
    def volume(self) -> dict[str, Any]:
        """The weight or the exposure, as functions take them."""
        return {"sample_weight": self.weight, "exposure": self.exposure}


def _losses(frame: pd.DataFrame, roles: Roles, path: Path) -> pd.Series:
    """Return the outcome; zeros where a command can do without, and none was named."""
    if not roles.outcome:
        return pd.Series(np.zeros(len(frame)), index=frame.index)
    return require_numbers(frame, roles.outcome, path)


def load_data(path: Path, roles: Roles, features: list[str] | None, files: TableFormat) -> Data:
    """Read the portfolio and the reports, which are a column of it or a file of their own."""
    reports = roles.reports
    of_reports = (
        () if reports is None else ("sensitive", "second-report", "channel-key")
    )  # columns that the file of the reports may have
    own = [name for role, name in roles.columns.items() if role not in of_reports]
    frame = read_table(path, files, require=own, text=roles.texts)
    joined = None
    if reports is None:
        joint = frame
    elif roles.sensitive in frame.columns:
        raise ValueError(
            f"Both {path} and {reports} could hold the reports: {path} has a column {roles.sensitive!r} too. "
            "Leave out --reports, or name the other file's column with --sensitive."
        )
    else:
        joint, joined = _join(frame, path, files, roles)
    source = reports or path
    perils = roles.perils
    claims = [pd.DataFrame({p: require_numbers(frame, pair[i], path) for p, pair in perils.items()}) for i in (0, 1)]
    return Data(
        X=_features(frame, features, roles, path),
        y=_losses(frame, roles, path) if not perils else claims[1].sum(axis=1),
        reports=joint[roles.sensitive],
        weight=None if roles.weight is None else require_numbers(frame, roles.weight, path),
        described=find_channel(source, roles.sensitive),
        reports_path=source,
        joined=joined,
        exposure=None if roles.exposure is None else require_numbers(frame, roles.exposure, path),
        claims=(claims[0], claims[1]) if perils else None,
        channel_key=None if roles.channel_key is None else as_text(joint[roles.channel_key], path),
        second=None if roles.second_report is None else joint[roles.second_report],
    )


def _join(frame: pd.DataFrame, path: Path, files: TableFormat, roles: Roles) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the report of each row of the portfolio with its source, missing where there is none, and the counts.

    The source of a report is a column of the portfolio, or else of the file of the reports.
    """
    reports, key = roles.reports, str(roles.key)
    assert reports is not None
    columns = roles.beside_reports(list(frame.columns))
    table = read_table(reports, files, require=[key, *columns], text={key, *columns})
    keys, wanted = (
        require_filled(as_text(one[key], place), place, "a key") for one, place in ((table, reports), (frame, path))
    )
    repeated = int(keys.duplicated().sum())
    if repeated:
        raise ValueError(f"Column {key!r} of {reports} repeats a key in {repeated} rows; expected one report per key.")
    place = pd.Index(keys).get_indexer(pd.Index(wanted))
    if (place < 0).all():
        raise ValueError(f"No key of {path} occurs in {reports}. Do both files use the same {key!r}?")
    found = table[columns].reset_index(drop=True).reindex(place).reset_index(drop=True)
    if roles.channel_key is not None and roles.channel_key not in columns:
        found[roles.channel_key] = frame[roles.channel_key].to_numpy()
    matched = int((place >= 0).sum())
    unused = len(table) - len(set(place[place >= 0].tolist()))
    return found, {"matched": matched, "rows": len(frame), "unused_reports": unused}


def _features(frame: pd.DataFrame, names: list[str] | None, roles: Roles, path: Path) -> pd.DataFrame:
    if names is not None:
        roles.require_free(names)
        require_columns(list(frame.columns), names, path)
        return frame[names]
    found = [name for name in frame.columns if name not in roles.columns.values()]
    if not found:
        raise ValueError(f"{path} has no column left to be a feature.")
    from fairpremium.models import describe_texts

    for name in found:
        if not pd.api.types.is_numeric_dtype(frame[name]):
            looks = describe_texts(frame[name].value_counts().to_dict())
            if looks is not None:
                raise ValueError(
                    f"Column {name!r} of {path} has {looks}. Name it with --key if it is one, choose the features with "
                    "--features, or say what it is with fit --terms."
                )
    return frame[found]
