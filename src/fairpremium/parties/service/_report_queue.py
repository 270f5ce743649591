"""Reports that come one by one, committed together: all that wait when a commit begins go into it."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Future

from sqlalchemy import Connection

from fairpremium.parties.protocol import Problem, Verified
from fairpremium.parties.store import Writer

from ._access import use_nonces
from ._compaction import SINGLES, compact
from ._context import ServiceContext
from ._reports import Sent, put_reports

__all__ = ["ReportQueue"]

_Waiting = tuple[Verified, Sent, "Future[Problem | None]"]


class ReportQueue:
    """Takes reports of many requests in few transactions.

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

    def put(self, verified: Verified, sent: Sent) -> Future[Problem | None]:
        """Queue a report; the future has the answer once it is on disk."""
        answer: Future[Problem | None] = Future()
        with self._lock:
            self._waiting.append((verified, sent, answer))
            is_first = len(self._waiting) == 1
        if is_first:
            batch = _Batch(self)
            self._writer.submit(batch.take).add_done_callback(batch.answer)
        return answer

    def take_all(self) -> list[_Waiting]:
        """Return what waits, and begin anew."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return [item for item in waiting if item[2].set_running_or_notify_cancel()]

    def count(self, sent: list[Sent]) -> None:
        """Remember that reports were taken; when there are many, make files of them."""
        self._taken.update((item.study, item.who.name) for item in sent)
        for place in [place for place, number in self._taken.items() if number >= SINGLES]:
            del self._taken[place]
            threading.Thread(target=self._compact, args=place, name="compact", daemon=True).start()

    def _compact(self, study: str, collector: str) -> None:
        compact(self.context, study, collector, self._writer.write, wait=True)


class _Batch:
    """The reports of one commit."""

    def __init__(self, queue: ReportQueue):
        self._queue = queue
        self._items: list[_Waiting] | None = None
        self._answers: list[Problem | None] = []

    def take(self, connection: Connection) -> None:
        """Take the reports; run again after a broken connection, it takes the same ones."""
        if self._items is None:
            self._items = self._queue.take_all()
        context = self._queue.context
        new = use_nonces(connection, context, [verified for verified, _, _ in self._items])
        fresh = [sent for (_, sent, _), is_new in zip(self._items, new, strict=True) if is_new]
        taken = iter(put_reports(connection, context, fresh))
        self._answers = [next(taken) if is_new else Problem("replayed") for is_new in new]

    def answer(self, done: Future[None]) -> None:
        """Answer all requests."""
        items = self._queue.take_all() if self._items is None else self._items
        error = done.exception()
        for i, (_, _, answer) in enumerate(items):
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(self._answers[i])
        if error is None:
            taken = [sent for (_, sent, _), answer in zip(items, self._answers, strict=True) if answer is None]
            self._queue.count(taken)
