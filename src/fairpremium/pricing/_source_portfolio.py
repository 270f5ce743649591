"""A portfolio that is named rather than given: columns of Parquet files, of a Dask or of a Spark data frame."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from fairpremium.arrays import Array
from fairpremium.blocks import Job, Persons, Rows, Source, Stream, open_source, source_kind
from fairpremium.corrections import ReportChannel
from fairpremium.families import Family
from fairpremium.models import (
    DATES_HELP,
    Column,
    Design,
    check_finite,
    check_one_volume,
    check_texts,
    check_volume,
    exposure_message,
    learn_design,
    levels_column,
    parse_terms,
)
from fairpremium.pricing._fit_arguments import is_known
from fairpremium.pricing._source_reader import PortfolioReader, ReportReader, read_numbers

_SMALL_CELLS = 4_000_000  # a portfolio with so few numbers is simply read into memory
_SMALL_ROWS = 30_000
_KNOT_ROWS = 100_000  # rows from which knots, centers and base bands are learned
_NOISE_ROWS = 200_000  # rows that a noise estimator sees
_MAX_LEVELS = 10_000
_TEXTS = (pt.is_string, pt.is_large_string, pt.is_string_view, pt.is_dictionary, pt.is_boolean)
_OPTIONAL = ("sample_weight", "exposure", "channel_key", "cluster")
_INDEX = re.compile(r"__index_level_\d+__")  # the name under which pandas stores a row index


def is_source(X: Any) -> bool:
    """Tell whether X names rows that live elsewhere, instead of being a table in memory."""
    return source_kind(X) is not None


class SourcePortfolio:
    """A source with roles for its columns: outcome, reports, volumes and persons (optional), and features.

    X is anything that `open_source` opens; `features` are the columns to price with, by default all without a role.
    Volumes are weights, or an exposure over which the outcome is a total.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        sensitive: Any,
        sample_weight: Any,
        features: Sequence[str] | None,
        terms: str | None = None,
        exposure: Any = None,
        channel_key: Any = None,
        cluster: Any = None,
    ):
        given = {"y": y, "sensitive": sensitive, "sample_weight": sample_weight, "exposure": exposure}
        given |= {"channel_key": channel_key, "cluster": cluster}
        if isinstance(sensitive, list | tuple) and sensitive:
            del given["sensitive"]
            given |= {f"sensitive[{j}]": name for j, name in enumerate(sensitive)}
            sensitive = tuple(sensitive)
        for name, value in given.items():
            if not isinstance(value, str) and not (name in _OPTIONAL and value is None):
                raise TypeError(f"Got {name} of type {type(value).__name__}, but expected the name of a column of X.")
        check_one_volume(sample_weight, exposure)
        self.X, self.y, self.sensitive, self._wanted = X, y, sensitive, features
        self.weight, self.is_total = (sample_weight, False) if exposure is None else (exposure, True)
        self.terms, self.key, self.cluster = terms, channel_key, cluster
        self._roles = {name: value for name, value in given.items() if value is not None}
        self.roles = list(self._roles.values())

    def __enter__(self) -> Self:
        columns = None if self._wanted is None else [*self.roles, *self._wanted]
        self.source: Source = open_source(self.X, columns)
        try:
            self.features = self._check_names(self._wanted)
            if self.is_total:
                self._check_exposure()
            self.design = self._learn_design()
        except BaseException:
            self.source.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()

    def _check_names(self, features: Sequence[str] | None) -> tuple[str, ...]:
        if isinstance(features, str):
            raise TypeError(f"Got features={features!r}, but expected a list of columns, such as [{features!r}].")
        names = self.source.names
        duplicated = sorted(name for name, count in Counter(names).items() if count > 1)
        if duplicated:
            raise ValueError(f"Got X with duplicate columns {duplicated}; expected each name once.")
        roles = self.roles
        absent = [name for name in [*roles, *(features or ())] if name not in names]
        if absent:
            raise ValueError(f"Got X without the columns {absent}; its columns are {list(names)}.")
        if len(set(roles)) < len(roles):
            raise ValueError(
                f"Got {roles} as outcome, reports, key, weight and cluster; expected a column of its own for each."
            )
        if features is None:
            found = tuple(name for name in names if name not in roles and not _INDEX.fullmatch(name))
        else:
            found = tuple(features)
            for role, name in self._roles.items():
                if name in found:
                    raise ValueError(f"Got features with {name!r}, which is {role} already; expected other columns.")
            twice = sorted(name for name, count in Counter(found).items() if count > 1)
            if twice:
                raise ValueError(f"Got features with {twice} more than once; expected each column once.")
        if self.terms is not None:
            parsed = parse_terms(self.terms)
            parsed.over(found)
            found = tuple(name for name in found if parsed.others or name in parsed.columns)
        if not found:
            raise ValueError("Got X with no column left to be a feature; expected at least one.")
        for name in found:
            kind = self.source.type_of(name)
            if not (_is_number(kind) or any(is_text(kind) for is_text in _TEXTS)):
                helps = f" {DATES_HELP}" if pt.is_temporal(kind) else ""
                raise TypeError(
                    f"Got column {name!r} of X with type {kind}; expected numbers, text, categories or booleans.{helps}"
                )
        return found

    def _learn_design(self) -> Design:
        """Learn the map from columns to features; text needs a pass over the rows, knots a look at some of them."""
        facts = {name: _SourceFacts(self, name) for name in self.features}
        texts = [name for name in self.features if not facts[name].is_number]
        self._counts = _count(self.source, texts)
        if self.terms is not None:
            return learn_design(self.terms, facts)
        for name in texts:
            check_texts(name, facts[name].counts())
        columns = (levels_column(n, dict(facts[n].counts())) if n in texts else Column(n) for n in self.features)
        return Design(tuple(columns), named=True)

    def counts_of(self, name: str) -> Counter[Any]:
        """Count the levels of a column; whole numbers are levels too."""
        if name not in self._counts:
            self._counts |= _count(self.source, [name])
        counts = self._counts[name]
        if counts[None]:
            raise ValueError(
                f"Got X with {counts[None]} missing values in column {name!r}; "
                "expected none. Give missing values a level of their own, such as 'missing'."
            )
        del counts[None]
        return counts

    @cached_property
    def some(self) -> pa.Table:
        """The features of some rows, evenly spaced, from which knots are learned."""
        n = sum(self.source.counts)
        index = np.unique(np.linspace(0, n - 1, min(n, _KNOT_ROWS)).astype(np.intp))
        raw = Stream(self.source, RawReader(self.features), self.source.counts)
        return pa.concat_tables([piece.table for piece in raw.pick(index)], promote_options="permissive")

    def _check_exposure(self) -> None:
        """Raise if an exposure is not positive, in one pass over its column, which knows the numbers of the rows."""
        kind, counts = self.source.type_of(self.weight), self.source.counts
        if not _is_number(kind):
            raise TypeError(f"Got exposure in column {self.weight!r} of X with type {kind}; expected numbers.")
        starts = accumulate(counts, initial=0)
        task, reader = _FindBadExposure(self.weight), RawReader((self.weight,))
        jobs = [Job(reader, task, start, None) if n else None for n, start in zip(counts, starts, strict=False)]
        found = [each for each in self.source.run(jobs, [self.weight]) if each is not None]
        bad = sum(number for number, *_ in found)
        if bad:
            first = next(each for each in found if each[0])
            raise ValueError(exposure_message(bad, sum(counts), *first[1:]))

    def preview(self, channel: Any, rng: np.random.Generator) -> tuple[Any, Any, Any, Any, Any]:
        """Return X, y, sensitive, weight and keys of what tells the channel: labels, or rows for noise estimators."""
        if is_known(channel):
            if not isinstance(self.sensitive, str):
                raise ValueError(
                    "Got several columns as sensitive without a channel, but expected one with the true attribute."
                )
            labels = [label for label in count_labels(self.source, self.sensitive) if label is not None]
            return None, None, labels, None, None
        sources = channel.values() if isinstance(channel, Mapping) else [channel]
        if not any(hasattr(each, "require_channel") for each in sources):
            return None, None, (), None, None
        n = sum(self.source.counts)
        index = np.sort(rng.choice(n, min(n, _NOISE_ROWS), replace=False))
        raw = Stream(self.source, RawReader((*self.features, *self.roles)), self.source.counts)
        table = pa.concat_tables([piece.table for piece in raw.pick(index)], promote_options="permissive")
        weight = None if self.weight is None else table.column(self.weight).to_numpy()
        y = table.column(self.y).to_numpy()
        if self.is_total:
            y, weight = check_volume(y, len(y), None, weight)
        keys = None if self.key is None else table.column(self.key)
        one = isinstance(self.sensitive, str)
        reports = table.column(self.sensitive) if one else table.select(list(self.sensitive))
        return table.select(list(self.features)), y, reports, weight, keys

    def rows(self, channel: ReportChannel, family: Family, *, thorough: bool) -> Rows | Stream:
        """Return the rows, read into memory if they are few; see `Stream` for `thorough`."""
        reports = self.reports(channel)
        reader = PortfolioReader(self.design, self.y, reports, self.weight, family, self.is_total)
        stream = Stream(self.source, reader, self.source.counts, thorough=thorough, persons=self.persons)
        return stream.take(np.arange(len(stream))) if is_small(len(stream), reader.n_features) else stream

    @cached_property
    def persons(self) -> Persons | None:
        """Whose the rows are; None if every row is a person of its own."""
        return None if self.cluster is None else Persons(self.source, self.cluster)

    def reports(self, channel: ReportChannel) -> ReportReader:
        """Return what reads the reports; the samples of noise estimators stay here."""
        return ReportReader(self.sensitive, self.key, replace(channel, estimator=None))


def is_small(rows: int, features: int) -> bool:
    """Tell whether rows are so few that they are simply read into memory."""
    return rows <= _SMALL_ROWS or rows * features <= _SMALL_CELLS


@dataclass(frozen=True)
class _SourceFacts:
    """What can be learned about a column of a source."""

    portfolio: SourcePortfolio
    name: str

    @property
    def is_number(self) -> bool:
        return _is_number(self.portfolio.source.type_of(self.name))

    def counts(self) -> Mapping[Any, int]:
        counts = self.portfolio.counts_of(self.name)
        if self.is_number and not all(float(level).is_integer() for level in counts):
            raise ValueError(
                f"Got column {self.name!r} of X with decimals, but expected whole numbers, which are levels."
            )
        return {int(level): n for level, n in counts.items()} if self.is_number else counts

    def sample(self) -> Array:
        values = np.asarray(self.portfolio.some.column(self.name).cast(pa.float64()).to_numpy(), dtype=np.float64)
        check_finite(values[:, None], [f"column {self.name!r}"], "X")
        return values


def count_labels(source: Source, column: str) -> Counter[Any]:
    """Count the distinct values of a column in one pass over it."""
    return _count(source, [column])[column]


def _count(source: Source, columns: list[str]) -> dict[str, Counter[Any]]:
    if not columns:
        return {}
    job = Job(RawReader(tuple(columns)), _CountLevels(tuple(columns)), 0, None)
    total: dict[str, Counter[Any]] = {name: Counter() for name in columns}
    for found in source.run([job if count else None for count in source.counts], columns):
        for name, counts in found.items():
            total[name] += counts
    return total


@dataclass(frozen=True)
class RawPiece:
    """Some rows as they are stored."""

    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def take(self, index: Any) -> RawPiece:
        """Return the rows at these positions."""
        return RawPiece(self.table.take(pa.array(index)))


@dataclass(frozen=True)
class RawReader:
    """Reads rows as they are stored."""

    columns: tuple[str, ...]
    n_features: int = 0

    def __call__(self, table: pa.Table) -> RawPiece:
        """Wrap some rows."""
        return RawPiece(table)


@dataclass(frozen=True)
class _CountLevels:
    """Count the levels of text columns."""

    columns: tuple[str, ...]

    def __call__(self, rows: Any, start: int) -> dict[str, Counter[Any]]:
        found = {}
        for name in self.columns:
            column = rows.table.column(name)
            if pt.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            counts = Counter({v["values"]: v["counts"] for v in pc.value_counts(column).to_pylist()})
            if len(counts) > _MAX_LEVELS:
                raise ValueError(
                    f"Got column {name!r} of X with more than {_MAX_LEVELS:,} different texts, which looks like a key "
                    "and not like a feature; choose the features with features=[...]."
                )
            found[name] = counts
        return found

    def join(self, a: dict[str, Counter[Any]], b: dict[str, Counter[Any]]) -> dict[str, Counter[Any]]:
        return {name: a[name] + b[name] for name in a}


@dataclass(frozen=True)
class _FindBadExposure:
    """Count the exposures that are not positive, and find the position and the value of the first."""

    column: str

    def __call__(self, rows: Any, start: int) -> tuple[int, int, float]:
        values = np.asarray(read_numbers(rows.table, self.column), dtype=np.float64)
        bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
        return (len(bad), start + int(bad[0]), float(values[bad[0]])) if len(bad) else (0, 0, 0.0)

    def join(self, a: tuple[int, int, float], b: tuple[int, int, float]) -> tuple[int, int, float]:
        first = a if a[0] else b
        return a[0] + b[0], *first[1:]


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))
