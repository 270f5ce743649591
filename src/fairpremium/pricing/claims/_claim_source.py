"""A portfolio with claims that is named rather than given; see `SourcePortfolio`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa

from fairpremium.blocks import Block, Reduction, Rows, Stream, person_codes
from fairpremium.corrections import ReportChannel
from fairpremium.families import Normal
from fairpremium.models import Design, check_weight
from fairpremium.pricing._source_portfolio import SourcePortfolio, is_small
from fairpremium.pricing._source_reader import PortfolioReader, ReportReader, read_numbers
from fairpremium.pricing.claims._claim_rows import ClaimLayout, Kind, check_claims


class ClaimSource(SourcePortfolio):
    """A source with roles for its columns: numbers and amounts of claims by peril, reports, exposure (optional)."""

    def __init__(
        self,
        X: Any,
        counts: Mapping[str, Any],
        amounts: Mapping[str, Any],
        sensitive: Any,
        exposure: Any,
        features: Sequence[str] | None,
        terms: str | None = None,
        channel_key: Any = None,
        cluster: Any = None,
    ):
        wanted = {
            "sensitive": sensitive if isinstance(sensitive, list) else [sensitive],
            "counts": counts.values(),
            "amounts": amounts.values(),
        }
        wanted["exposure"] = [] if exposure is None else [exposure]
        wanted["channel_key"] = [] if channel_key is None else [channel_key]
        wanted["cluster"] = [] if cluster is None else [cluster]
        for name, values in wanted.items():
            for value in values:
                if not isinstance(value, str):
                    raise TypeError(f"Got {name} with {type(value).__name__}, but expected names of columns of X.")
        first = next(iter(counts.values()))
        super().__init__(X, first, sensitive, None, features, terms, exposure, channel_key, cluster)
        self.counts, self.amounts = tuple(counts.values()), tuple(amounts.values())
        claims = {"counts": counts, "amounts": amounts}
        own = {f"{kind} of {peril}": name for kind, given in claims.items() for peril, name in given.items()}
        self._roles = {**own, **{role: name for role, name in self._roles.items() if role != "y"}}
        self.roles = list(self._roles.values())

    def stream(self, layout: ClaimLayout, channel: ReportChannel, *, thorough: bool) -> Stream:
        """Return the rows with their claims."""
        reports = self.reports(channel)
        reader = ClaimReader(layout, self.design, self.counts, self.amounts, reports, self.weight)
        return Stream(self.source, reader, self.source.counts, thorough=thorough, persons=self.persons)


@dataclass(frozen=True)
class ClaimReader:
    """Reads features and claims of some rows; it is sent to the workers."""

    layout: ClaimLayout
    design: Design
    counts: tuple[str, ...]  # names of columns, one of each per peril
    amounts: tuple[str, ...]
    reports: ReportReader
    exposure: str | None
    cluster: str | None = None  # None if it does not matter whose rows they are

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        own = [name for name in (self.exposure, self.cluster) if name is not None]
        return (*self.design.names, *self.counts, *self.amounts, *self.reports.columns, *own)

    def with_persons(self, column: str) -> Self:
        """Read whose rows they are, too."""
        return replace(self, cluster=column)

    @property
    def n_features(self) -> int:
        """Number of columns of X, those of the claims among them."""
        return self.layout.width

    def __call__(self, table: pa.Table) -> Rows:
        """Turn some rows of a table into numbers, after the same checks that a table in memory gets."""
        n = table.num_rows
        plain = PortfolioReader(self.design, self.amounts[0], self.reports, None, Normal())(table)
        counts, amounts = (
            [check_claims(read_numbers(table, name), f"column {name!r}", n) for name in names]
            for names in (self.counts, self.amounts)
        )
        exposure = None if self.exposure is None else read_numbers(table, self.exposure)
        volume = check_weight(None, n, exposure=exposure)
        person = None if self.cluster is None else person_codes(table, self.cluster)
        return self.layout.pack(plain.X, counts, amounts, volume, plain.report, person, " of a piece of the source")


@dataclass(frozen=True)
class PartReader:
    """Reads what one part sees of some rows."""

    reader: ClaimReader
    peril: int
    kind: Kind

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        return self.reader.columns

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return self.reader.layout.n_features

    def with_persons(self, column: str) -> Self:
        """Read whose rows they are, too."""
        return replace(self, reader=self.reader.with_persons(column))

    def __call__(self, table: pa.Table) -> Rows:
        """Turn some rows of a table into rows of the part; the severity's have claims."""
        return self.reader.layout.part(self.reader(table), self.peril, self.kind)


def part_of_stream(stream: Stream, peril: int, kind: Kind) -> Rows | Stream:
    """Return the rows of a part of a source, read into memory if they are few."""
    assert isinstance(stream.reader, ClaimReader)
    reader, layout = PartReader(stream.reader, peril, kind), stream.reader.layout
    counts = stream.counts
    if kind == "severity":
        found = stream.apply(Reduction(partial(_count_claims, layout=layout, peril=peril), 1 << 20))
        counts = tuple(int(next(found)[0]) if n else 0 for n in counts)
    thorough = stream.thorough or kind == "severity"
    rows = Stream(stream.source, reader, counts, thorough=thorough, persons=stream.persons)
    small = kind == "severity" and is_small(len(rows), layout.n_features)
    return rows.take(np.arange(len(rows))) if small else rows


def _count_claims(block: Block, layout: ClaimLayout, peril: int) -> tuple[Any, ...]:
    return (np.asarray(np.count_nonzero(layout.claims(block.X, peril)[0]), dtype=np.float64),)
