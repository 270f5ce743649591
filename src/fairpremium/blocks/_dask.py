"""Partitions of a Dask data frame, worked on by the caller's cluster (or by Dask's own threads without one)."""

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from fairpremium.blocks._job import Job, Source
from fairpremium.blocks._threads import one_blas_thread


class DaskSource(Source):
    """A `dask.dataframe.DataFrame`.

    Results arrive one at a time, in the order of the partitions. Dask repeats the partitions of a worker that died, and
    a repeated partition gives the same numbers.
    """

    def __init__(self, frame: Any):
        self.frame = frame
        self.names = tuple(str(name) for name in frame.columns)
        self.schema = pa.Schema.from_pandas(frame._meta_nonempty, preserve_index=False)
        self._delayed: dict[tuple[str, ...], list[Any]] = {}
        self.counts = tuple(int(n) for n in self._compute([(rows, len) for rows in self._partitions(self.names[:1])]))
        if not sum(self.counts):
            raise ValueError("Got a Dask data frame with no rows, but expected some.")

    def run(self, jobs: Sequence[Job | None], columns: Sequence[str]) -> Iterator[Any]:
        """Give each partition its job."""
        partitions = self._partitions(tuple(columns))
        return self._compute(
            [(rows, partial(_work, job)) for rows, job in zip(partitions, jobs, strict=True) if job is not None]
        )

    def glance(self, columns: Sequence[str], size: int) -> pa.Table:
        """Return the first rows of some partitions."""
        chosen, rows = self._glance_at(size)
        partitions = self._partitions(tuple(columns))
        tables = self._compute([(partitions[i], lambda frame: _table(frame.head(rows))) for i in chosen])
        return pa.concat_tables(list(tables), promote_options="permissive")

    def _partitions(self, columns: tuple[str, ...]) -> list[Any]:
        if columns not in self._delayed:
            # simplified, so that only these columns are read; not optimised, which would change the partitions
            chosen = self.frame[list(columns)].simplify()
            self._delayed[columns] = list(chosen.to_delayed(optimize_graph=False))
        return self._delayed[columns]

    def _compute(self, work: list[tuple[Any, Any]]) -> Iterator[Any]:
        import dask
        from dask.delayed import delayed

        tasks = [delayed(function, pure=False, traverse=False)(rows) for rows, function in work]
        client = _client()
        if client is None:
            yield from dask.compute(*tasks)
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
            futures = client.compute(tasks)
        for i in range(len(futures)):
            result = futures[i].result()
            futures[i] = None  # lets the cluster forget it
            yield result


def _client() -> Any:
    """Return the caller's distributed client, or None if there is none."""
    try:
        from distributed import get_client

        return get_client()
    except (ImportError, ValueError):
        return None


def _work(job: Job, frame: Any) -> Any:
    with one_blas_thread():
        return job([_table(frame)])


def _table(frame: Any) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)
