"""Reports that come one by one, committed together: all that wait when a commit begins go into it."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Future

from sqlalchemy import Connection

from fairpremium.parties.protocol import Problem
from fairpremium.parties.store import Writer

from ._access import use_nonces
from ._compaction import SINGLES, compact
from ._context import ServiceContext
from ._reports import SingleReport, put_reports

__all__ = ["ReportQueue"]

_Waiting = tuple[SingleReport, "Future[Problem | None]"]


class ReportQueue:
    """Takes reports of many signed requests in few transactions.

    Parameters
    ----------
    context : ServiceContext
    writer : Writer
    """

    def __init__(self, context: ServiceContext, writer: Writer):
        self.context = context
        self._writer = writer
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._taken: Counter[tuple[str, str]] = Counter()  # since the last compaction, by study and collector

    def put(self, report: SingleReport) -> Future[Problem | None]:
        """Queue a report; the future has the answer once it is on disk."""
        answer: Future[Problem | None] = Future()
        with self._lock:
            self._waiting.append((report, answer))
            is_first = len(self._waiting) == 1
        if is_first:
            commit = _Commit(self)
            self._writer.submit(commit.write).add_done_callback(commit.answer)
        return answer

    def take_all(self) -> list[_Waiting]:
        """Empty the queue, and return what waited."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return [item for item in waiting if item[1].set_running_or_notify_cancel()]

    def count(self, taken: list[SingleReport]) -> None:
        """Count reports that were taken; when there are many, start the compaction."""
        self._taken.update((report.study, report.who.name) for report in taken)
        for place in [place for place, number in self._taken.items() if number >= SINGLES]:
            del self._taken[place]
            arguments = (self.context, *place, self._writer.write)
            threading.Thread(target=compact, args=arguments, kwargs={"wait": True}, name="compact", daemon=True).start()


class _Commit:
    """The reports of one commit."""

    def __init__(self, queue: ReportQueue):
        self._queue = queue
        self._items: list[_Waiting] | None = None
        self._answers: list[Problem | None] = []

    def write(self, connection: Connection) -> None:
        """Take the reports; run again after a broken connection, it takes the same ones."""
        if self._items is None:
            self._items = self._queue.take_all()
        context, reports = self._queue.context, [report for report, _ in self._items]
        new = use_nonces(connection, context, [report.who.signed for report in reports if report.who.signed])
        taken = iter(put_reports(connection, context, [r for r, is_new in zip(reports, new, strict=True) if is_new]))
        self._answers = [next(taken) if is_new else Problem("replayed") for is_new in new]

    def answer(self, done: Future[None]) -> None:
        """Answer all requests."""
        items = self._queue.take_all() if self._items is None else self._items
        if (error := done.exception()) is not None:
            for _, future in items:
                future.set_exception(error)
            return
        for (_, future), answer in zip(items, self._answers, strict=True):
            future.set_result(answer)
        self._queue.count([report for (report, _), answer in zip(items, self._answers, strict=True) if answer is None])
