"""What a fit is made of: its specification, the study, the rows of the portfolio, and the reports beside them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Connection, select

from fairpremium.labels import decode_labels
from fairpremium.parties.protocol import FitSpec, PortfolioSpec, StudySpec, channel_of, labels_of, read_keys
from fairpremium.parties.release import randomize_reports
from fairpremium.parties.store.schema import fits, portfolios

from ._context import ServiceContext
from ._leases import Lease
from ._portfolios import parts_of
from ._reports import reports_of, sources_of
from ._studies import spec_of, study_row

_DRAWN_AT_ONCE = 500_000
Codes = npt.NDArray[np.int32]
Keys = npt.NDArray[Any]


@dataclass(frozen=True)
class FitJob:
    """A fit that a worker has leased, with what it needs from the database."""

    lease: Lease
    spec: FitSpec
    study_id: str
    study: StudySpec
    secret: bytes
    portfolio: PortfolioSpec
    portfolio_sha256: str
    parts: tuple[Path, ...]
    rows: int
    log_seq: int
    asked_at: datetime

    @property
    def features(self) -> list[str]:
        """Names of the features of the model."""
        return [feature.name for feature in self.portfolio.features]

    @property
    def labels(self) -> tuple[Any, ...]:
        """Values that a report can have."""
        return labels_of(self.study.attribute)

    @property
    def report_column(self) -> str:
        """A name for the column of reports that no other column has."""
        taken = {*self.features, self.portfolio.outcome, self.portfolio.weight, self.portfolio.key}
        name = "report"
        while name in taken:
            name = f"_{name}"
        return name

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

    def split(self, table: pa.Table) -> tuple[pd.DataFrame, Any, Any]:
        """Return the features, the outcome and the weight (or None) of rows."""
        columns = (self.portfolio.outcome, self.portfolio.weight)
        y, weight = (None if c is None else table.column(c).to_numpy().astype(np.float64) for c in columns)
        return frame(table, self.features), y, weight

    def write_joined(self, reports: npt.NDArray[Any], folder: Path) -> None:
        """Write the parts with the reports beside the rows."""
        folder.mkdir()
        start, weight = 0, self.portfolio.weight
        names = [*self.features, self.portfolio.outcome, *([weight] if weight else [])]
        for n, table in enumerate(self.tables()):
            beside = pa.array(reports[start : start + len(table)].tolist())
            joined = table.select(names).append_column(self.report_column, beside)
            pq.write_table(joined, folder / f"{n:06d}.parquet", compression="none")
            start += len(table)


@dataclass(frozen=True)
class JoinedReports:
    """Reports beside the rows: keys and codes in the order of the parts, -1 where there is no report."""

    keys: Keys
    codes: Codes

    @property
    def matched(self) -> int:
        """Number of rows with a report."""
        return int((self.codes >= 0).sum())

    def randomize(self, job: FitJob, rows: Any = slice(None)) -> tuple[npt.NDArray[Any], Any]:
        """Return reports that may be shown, and the second channel: the reports themselves where rule 9 is off."""
        keys, codes, labels = self.keys[rows], self.codes[rows], job.labels
        if job.study.release is None:
            return decode_labels(codes, labels), None
        known, epsilon = channel_of(job.study.attribute), job.study.release.randomized_epsilon
        drawn = []
        for start in range(0, len(codes), _DRAWN_AT_ONCE):
            some = slice(start, start + _DRAWN_AT_ONCE)
            persons = [bytes(key) for key in keys[some]]
            reports = decode_labels(codes[some], labels)
            drawn.append(randomize_reports(persons, reports, known, epsilon, job.secret, groups=labels))
        return np.concatenate([piece.reports for piece in drawn]), drawn[0].second


def read_job(connection: Connection, context: ServiceContext, lease: Lease) -> FitJob:
    """Read what a fit needs from the database."""
    row = connection.execute(select(fits).where(fits.c.party == lease.party, fits.c.id == lease.fit)).one()
    study = study_row(connection, row.study)
    mine = (portfolios.c.party == lease.party, portfolios.c.id == row.portfolio)
    portfolio = connection.execute(select(portfolios).where(*mine)).one()
    parts = parts_of(connection, lease.party, row.portfolio)
    return FitJob(
        lease=lease,
        spec=FitSpec.model_validate_json(row.spec),
        study_id=row.study,
        study=spec_of(study),
        secret=bytes(study.secret),
        portfolio=PortfolioSpec.model_validate_json(portfolio.spec),
        portfolio_sha256=portfolio.sha256,
        parts=tuple(context.files.path(part.sha256) for part in parts),
        rows=sum(part.rows for part in parts),
        log_seq=row.log_seq,
        asked_at=datetime.fromtimestamp(row.created, UTC),
    )


def find_reports(context: ServiceContext, job: FitJob) -> JoinedReports:
    """Find the report of each row by its key; who reported to several collectors counts once, at the first of them."""

    def look(connection: Connection) -> list[Callable[[Keys], Codes]]:
        return [reports_of(connection, context, job.study_id, source) for source in sources_of(job.study)]

    with context.files.hold():  # what is open stays, should it be swept away
        look_ups = context.database.read(look)
    keys = np.concatenate([read_keys(path, job.portfolio.key) for path in job.parts])
    codes = np.full(len(keys), -1, dtype=np.int32)
    for look_up in look_ups:
        rest = np.flatnonzero(codes < 0)
        codes[rest] = look_up(keys[rest])
    return JoinedReports(keys, codes)


def frame(table: pa.Table, names: list[str]) -> pd.DataFrame:
    """Return columns as a data frame, categories as text."""
    columns = {}
    for name in names:
        values = table.column(name)
        if pa.types.is_dictionary(values.type):
            values = values.cast(pa.string())
        columns[name] = values.to_pandas()
    return pd.DataFrame(columns)
