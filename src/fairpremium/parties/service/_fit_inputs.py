"""What a fit is made of: its specification, the study, the rows of the portfolio, and the reports beside them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Connection, select

from fairpremium.labels import decode_labels
from fairpremium.models import Design
from fairpremium.parties.protocol import (
    Attribute,
    FitSpec,
    PortfolioSpec,
    Problem,
    StudySpec,
    channel_of,
    choose_attributes,
    labels_of,
    names_of,
    one_attribute,
    read_keys,
)
from fairpremium.parties.release import (
    Claims,
    MatchCount,
    ReleasedReports,
    combine_draws,
    count_matches,
    join_columns,
    join_pieces,
    randomize_reports,
    without_protection,
)
from fairpremium.parties.store.schema import epochs, fits, portfolios
from fairpremium.pricing import SourcePortfolio, is_source
from fairpremium.privacy import Channel

from ._context import ServiceContext
from ._epochs import epoch_key
from ._leases import Lease
from ._portfolios import parts_of
from ._studies import spec_of, study_row
from .reports import open_snapshot, sources_of

_DRAWN_AT_ONCE = 500_000
_COUNTED_ROWS = 1_000_000
_MOST_FEATURES = 2000  # as a portfolio may have at most
Codes = npt.NDArray[np.int32]
Keys = npt.NDArray[Any]


@dataclass(frozen=True)
class FitJob:
    """A fit that a worker has leased, with what it needs from the database.

    - `secret`: Of the study; hashes the keys of rows.
    - `draw_key`: Of the epoch; draws the second randomization and the noise.
    """

    lease: Lease
    spec: FitSpec
    study_id: str
    study: StudySpec
    secret: bytes = field(repr=False)
    draw_key: bytes = field(repr=False)
    portfolio: PortfolioSpec
    portfolio_sha256: str
    parts: tuple[Path, ...]
    rows: int
    epoch: int
    epoch_at: datetime
    log_seq: int
    asked_at: datetime

    @property
    def features(self) -> list[str]:
        """Names of the features of the model."""
        return [feature.name for feature in self.portfolio.features]

    @property
    def attribute(self) -> Attribute:
        """What the prices are to be free of: the attribute of the study, or those of several that the fit names."""
        return choose_attributes(self.study.attribute, self.spec.attributes)

    @property
    def names(self) -> tuple[str | None, ...]:
        """Names of these attributes, in the order of the study; that of a study with one is called None."""
        asked = self.spec.attributes
        return tuple(name for name in names_of(self.study.attribute) if asked is None or name in asked)

    @property
    def channel(self) -> Channel | None:
        """The known channel of the reports."""
        return channel_of(self.attribute)

    @property
    def labels(self) -> tuple[Any, ...]:
        """Values that a report can have; combinations of those of several attributes."""
        return labels_of(self.attribute)

    @property
    def report_column(self) -> str:
        """A name for the column of reports that no other column has."""
        taken = {*self.features, *self.portfolio.losses, self.portfolio.key}
        name = "report"
        while name in taken:
            name = f"_{name}"
        return name

    @property
    def needs_check(self) -> bool:
        """Whether rows and terms are looked at before anything is paid, with whatever release."""
        return self.spec.claims is not None or self.spec.terms is not None

    def check_terms(self, X: Any) -> None:
        """Refuse terms that make more features than a portfolio may have, before they are made.

        - `X`: The features, or a source with the columns of the portfolio and of the reports.
        """
        terms = self.spec.terms
        if terms is None:
            return
        if is_source(X):
            with SourcePortfolio(X, self.portfolio.losses[0], self.report_column, None, self.features, terms) as found:
                count = found.design.n_features
        else:
            count = Design.learn(X, terms).n_features
        if count > _MOST_FEATURES:
            raise Problem("cannot-fit", f"its terms make more than {_MOST_FEATURES} features")

    def tables(self) -> Iterator[pa.Table]:
        """Read the parts, one after the other."""
        for path in self.parts:
            yield pq.read_table(path)

    def take(self, rows: npt.NDArray[np.int64]) -> pa.Table:
        """Return some rows of the parts, given by their sorted positions."""
        found, start = [], 0
        for table in self.tables():
            here = rows[(rows >= start) & (rows < start + len(table))] - start
            found.append(table.take(pa.array(here)))
            start += len(table)
        return pa.concat_tables(found)

    @property
    def roles(self) -> tuple[Any, str | None]:
        """Name the columns with the outcome, or the claims, and with their volume (or None)."""
        spec = self.portfolio
        if not spec.claims:
            return spec.outcome, spec.weight
        counts, amounts = ({p.name: getattr(p, which) for p in spec.claims} for which in ("count", "amount"))
        return Claims(counts, amounts), spec.exposure

    def split(self, table: pa.Table) -> tuple[pd.DataFrame, Any, Any]:
        """Return the features, the outcome or the claims, and their volume (or None), of rows."""
        losses, volume = self.roles

        def numbers(name: str | None) -> Any:
            return None if name is None else table.column(name).to_numpy().astype(np.float64)

        if isinstance(losses, Claims):
            y: Any = Claims(*({peril: numbers(name) for peril, name in columns.items()} for columns in losses))
        else:
            y = numbers(losses)
        return frame(table, self.features), y, numbers(volume)

    def write_joined(self, reports: npt.NDArray[Any], labels: Sequence[Any], folder: Path) -> None:
        """Write the parts with the reports beside the rows; `labels` are the values that a report can have."""
        folder.mkdir(mode=0o700)
        start, names = 0, [*self.features, *self.portfolio.losses]
        kind = pa.array(list(labels)).type  # declared, so that files in which nobody reported are like all others
        for n, table in enumerate(self.tables()):
            beside = pa.array(reports[start : start + len(table)].tolist(), type=kind)
            joined = table.select(names).append_column(self.report_column, beside)
            path = folder / f"{n:06d}.parquet"
            path.touch(mode=0o600)  # it may have reports as they are stored
            pq.write_table(joined, path, compression="none")
            start += len(table)


class ShownReports(NamedTuple):
    """Reports that may be shown: after the second draw, or the stored ones where rule 9 is off.

    - `reports`: Of all attributes of the fit together; None where one is missing.
    - `each`: Of each of several attributes by name.
    """

    reports: ReleasedReports
    each: dict[str, ReleasedReports]


@dataclass(frozen=True)
class JoinedReports:
    """Reports beside the rows: keys and codes in the order of the parts, -1 where there is no report.

    - `codes`, shape (n, attributes): Of each attribute of the fit.
    - `labels`: Of each attribute.
    """

    keys: Keys
    codes: Codes
    labels: tuple[tuple[Any, ...], ...]

    def reports(self, rows: Any = slice(None)) -> npt.NDArray[Any]:
        """Return the stored reports; those of several attributes as tuples, None where one of them is missing."""
        return join_columns(
            [decode_labels(codes, labels) for codes, labels in zip(self.codes[rows].T, self.labels, strict=True)]
        )

    def show(self, job: FitJob, rows: Any = slice(None)) -> ShownReports:
        """Return the reports that may be shown."""
        if job.names == (None,):
            return ShownReports(self._show_one(job, 0, None, job.channel, rows), {})
        firsts = [known for name in job.names if (known := channel_of(one_attribute(job.study.attribute, name)))]
        each = {
            str(name): self._show_one(job, j, name, first, rows)
            for j, (name, first) in enumerate(zip(job.names, firsts, strict=True))
        }
        if len(each) == 1:
            return ShownReports(next(iter(each.values())), each)
        if job.study.release is None:
            return ShownReports(without_protection(self.reports(rows), job.channel), each)
        return ShownReports(combine_draws(list(each.values()), firsts), each)

    def count_matches(self, job: FitJob) -> dict[str | None, MatchCount]:
        """Estimate how many rows have a report of each attribute, from the second draw that rule 9 asks for.

        Of a large portfolio evenly spaced rows are counted: some parts of it may have reports, others none.
        """
        rows = slice(None, None, -(-job.rows // _COUNTED_ROWS))
        return {name: count_matches(self._show_one(job, j, name, None, rows)) for j, name in enumerate(job.names)}

    def _show_one(self, job: FitJob, j: int, name: str | None, first: Channel | None, rows: Any) -> ReleasedReports:
        """Draw the reports of one attribute once more, or return the stored ones of a study without rule 9."""
        keys, codes, labels = self.keys[rows], self.codes[rows, j], self.labels[j]
        if job.study.release is None:
            return without_protection(decode_labels(codes, labels), first)
        drawn = []
        for start in range(0, len(codes), _DRAWN_AT_ONCE):
            some = slice(start, start + _DRAWN_AT_ONCE)
            persons = [bytes(key) for key in keys[some]]
            reports = decode_labels(codes[some], labels)
            epsilon = job.study.release.randomized_epsilon
            about: dict[str, Any] = {"groups": labels, "attribute": name, "epoch": job.epoch}
            drawn.append(randomize_reports(persons, reports, first, epsilon, job.draw_key, **about))
        return join_pieces(drawn, first, groups=labels)


def read_job(connection: Connection, context: ServiceContext, lease: Lease) -> FitJob:
    """Read what a fit needs from the database."""
    row = connection.execute(select(fits).where(fits.c.party == lease.party, fits.c.id == lease.fit)).one()
    study = study_row(connection, row.study)
    mine = (portfolios.c.party == lease.party, portfolios.c.id == row.portfolio)
    portfolio = connection.execute(select(portfolios).where(*mine)).one()
    parts = parts_of(connection, lease.party, row.portfolio)
    this = (epochs.c.study == row.study, epochs.c.number == row.epoch)
    epoch = connection.execute(select(epochs.c.closed, epochs.c.salt).where(*this)).one()
    return FitJob(
        lease=lease,
        spec=FitSpec.model_validate_json(row.spec),
        study_id=row.study,
        study=spec_of(study),
        secret=bytes(study.secret),
        draw_key=epoch_key(bytes(study.secret), epoch.salt),
        portfolio=PortfolioSpec.model_validate_json(portfolio.spec),
        portfolio_sha256=portfolio.sha256,
        parts=tuple(context.files.path(part.sha256) for part in parts),
        rows=sum(part.rows for part in parts),
        epoch=row.epoch,
        epoch_at=datetime.fromtimestamp(epoch.closed, UTC),
        log_seq=row.log_seq,
        asked_at=datetime.fromtimestamp(row.created, UTC),
    )


def find_reports(context: ServiceContext, job: FitJob) -> JoinedReports:
    """Find the reports of each row by its key; who reported to several collectors counts once, at the first of them.

    Every key is looked up at every collector, whoever reported to another one: the insurer sees how long it takes. Of
    several attributes each is looked for by itself: a person can have told one collector the one, another the other.
    """

    def look(connection: Connection) -> list[list[Callable[[Keys], Codes]]]:
        return [
            [open_snapshot(connection, context, job.study_id, job.epoch, s) for s in sources_of(job.study, name)]
            for name in job.names
        ]

    with context.files.hold():  # what is open stays, should it be swept away
        look_ups = context.database.read(look)
    keys = np.concatenate([read_keys(path, job.portfolio.key) for path in job.parts])
    codes = np.full((len(keys), len(look_ups)), -1, dtype=np.int32)
    for j, sources in enumerate(look_ups):
        for look_up in reversed(sources):
            found = look_up(keys)
            codes[:, j] = np.where(found < 0, codes[:, j], found)
    labels = tuple(labels_of(one_attribute(job.study.attribute, name)) for name in job.names)
    return JoinedReports(keys, codes, labels)


def per_unit(losses: Any, volume: Any, *, of: str | None = None) -> Any:
    """Return losses per unit of volume: an outcome is so already; of claims it is their amount, or `of` "counts".

    Of several perils amounts are added, and the number of claims is that of the first.
    """
    if not isinstance(losses, Claims):
        return losses
    totals = next(iter(losses.counts.values())) if of == "counts" else np.sum(list(losses.amounts.values()), axis=0)
    return totals if volume is None else totals / volume


def frame(table: pa.Table, names: list[str]) -> pd.DataFrame:
    """Return columns as a data frame, categories as text."""
    columns = {}
    for name in names:
        values = table.column(name)
        if pa.types.is_dictionary(values.type):
            values = values.cast(pa.string())
        columns[name] = values.to_pandas()
    return pd.DataFrame(columns)
