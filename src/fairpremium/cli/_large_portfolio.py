"""Folders and large Parquet files, which the commands read piece by piece instead of at once."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from fairpremium.blocks import join_reports, open_source
from fairpremium.cli._channel_file import find_channel
from fairpremium.cli._portfolio import Data, Roles
from fairpremium.cli.tables import TableFormat, read_table, require_columns
from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer, count_labels
from fairpremium.privacy import Channel, RandomizedResponse

LARGE_BYTES = 64 << 20  # a Parquet file from this size on is read piece by piece


@dataclass(frozen=True)
class LargeData(Data):
    """A portfolio that stays on disk: `reports` holds the distinct reports, X the names of the features alone."""

    path: Path = field(kw_only=True)
    roles: Roles = field(kw_only=True)

    def fit(self, pricer: DiscriminationFreePricer | FrequencySeverityPricer) -> None:
        """Fit, reading the rows piece by piece."""
        labels = [label for label in self.reports if label is not None]
        if isinstance(pricer.channel, Channel) and labels and not any(isinstance(label, str) for label in labels):
            pricer.channel = _in_own_type(pricer.channel, labels)
        roles = self.roles
        given: dict[str, Any] = {
            "sensitive": roles.sensitive if roles.second_report is None else [roles.sensitive, roles.second_report],
            "channel_key": roles.channel_key, "features": list(self.X.columns),
        }  # fmt: skip
        if self.channel_key is not None and isinstance(pricer.channel, Mapping):
            known = {str(key): key for key in self.channel_key}  # keys were typed, and the column may hold numbers
            pricer.channel = {known.get(key, key): each for key, each in pricer.channel.items()}
        if isinstance(pricer, DiscriminationFreePricer):
            pricer.fit(self.path, y=roles.outcome, sample_weight=roles.weight, exposure=roles.exposure, **given)
        else:
            counts, amounts = ({name: pair[i] for name, pair in roles.perils.items()} for i in (0, 1))
            pricer.fit(self.path, counts, amounts, exposure=roles.exposure, **given)


def is_large(path: Path) -> bool:
    """Tell whether a file or folder is read piece by piece."""
    return path.is_dir() or (path.suffix.lower() == ".parquet" and path.is_file() and path.stat().st_size > LARGE_BYTES)


@contextmanager
def large_data(
    path: Path, roles: Roles, features: list[str] | None, output: Path, files: TableFormat
) -> Iterator[LargeData]:
    """Look at a large portfolio, after joining its reports into a temporary file beside the output if need be."""
    roles.require_free(features or [])
    reports = roles.reports
    if reports is None or roles.key is None:
        yield _look(path, roles, features, path)
        return
    with tempfile.TemporaryDirectory(dir=output.absolute().parent, prefix=".fairpremium-") as folder:
        stored = reports
        if reports.suffix.lower() != ".parquet":
            stored = Path(folder) / "reports.parquet"
            read_table(reports, files, text=roles.texts).to_parquet(stored, index=False)
        joined = Path(folder) / "portfolio.parquet"
        with open_source(path) as source:
            columns = roles.beside_reports(source.names)
        found = join_reports(path, stored, joined, key=roles.key, sensitive=columns)
        yield replace(_look(joined, roles, features, reports), joined=found._asdict())


def _look(path: Path, roles: Roles, features: list[str] | None, reports: Path) -> LargeData:
    with open_source(path) as source:
        own = roles.columns.values()
        require_columns(source.names, [*own, *(features or [])], path)
        chosen = [name for name in source.names if name not in own] if features is None else features
        labels = list(count_labels(source, roles.sensitive))
        second = None if roles.second_report is None else list(count_labels(source, roles.second_report))
        keys = (
            None if roles.channel_key is None else [k for k in count_labels(source, roles.channel_key) if k is not None]
        )
    file = min(reports.rglob("*.parquet")) if reports.is_dir() else reports
    return LargeData(
        X=pd.DataFrame(columns=chosen),
        y=pd.Series(dtype=float),
        reports=pd.Series(labels, dtype=object, name=roles.sensitive),
        weight=None,
        described=find_channel(file, roles.sensitive),
        reports_path=reports,
        channel_key=None if keys is None else pd.Series(keys, dtype=object, name=roles.channel_key),
        second=None if second is None else pd.Series(second, dtype=object, name=roles.second_report),
        path=path,
        roles=roles,
    )


def _in_own_type(channel: Channel, labels: list[Any]) -> Channel:
    """Turn groups that were typed as text into the numbers or booleans that the column holds."""
    known = {str(label): label for label in labels}
    if isinstance(channel, RandomizedResponse) and all(isinstance(group, str) for group in channel.groups):
        return RandomizedResponse([known.get(group, group) for group in channel.groups], keep=channel.keep)
    if channel.repeats[1:]:
        return Channel.repeated(*(_in_own_type(each, labels) for each in channel.repeats))
    return channel
