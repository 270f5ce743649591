"""Reports that come one by one, committed together: all that wait when a commit begins go into it."""

import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future

from sqlalchemy import Connection

from fairpremium.parties.protocol import Problem
from fairpremium.parties.store import Write, Writer

from .._access import use_nonces
from .._context import ServiceContext
from .._studies import source_of
from ._compaction import SINGLES, compact
from ._reports import SingleReport, put_reports

_Waiting = tuple[SingleReport, "Future[Problem | None]"]


class ReportQueue:
    """Takes reports of many signed requests in few transactions."""

    def __init__(self, context: ServiceContext, writer: Writer):
        self._context = context
        self._writer = writer
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._taken = CompactionTrigger(context, writer.write)

    def put(self, report: SingleReport) -> Future[Problem | None]:
        """Queue a report; the future has the answer once it is on disk."""
        answer: Future[Problem | None] = Future()
        with self._lock:
            self._waiting.append((report, answer))
            is_first = len(self._waiting) == 1
        if is_first:
            self._submit()
        return answer

    def _submit(self) -> None:
        """Let the writer take what waits when its next commit begins."""
        items: list[_Waiting] | None = None
        answers: list[Problem | None] = []

        def write(connection: Connection) -> None:  # after a broken connection it runs again, with the same reports
            nonlocal items, answers
            items = self._take_all() if items is None else items
            reports = [report for report, _ in items]
            new = use_nonces(connection, self._context, [report.who.signed for report in reports if report.who.signed])
            fresh = [report for report, is_new in zip(reports, new, strict=True) if is_new]
            taken = iter(put_reports(connection, self._context, fresh))
            answers = [next(taken) if is_new else Problem("replayed") for is_new in new]

        def answer(done: Future[None]) -> None:
            waiting = self._take_all() if items is None else items
            if (error := done.exception()) is not None:
                for _, future in waiting:
                    future.set_exception(error)
                return
            for (_, future), problem in zip(waiting, answers, strict=True):
                future.set_result(problem)
            taken = [report for (report, _), problem in zip(waiting, answers, strict=True) if problem is None]
            self._taken.count((report.study, source_of(report.who.name, report.attribute)) for report in taken)

        self._writer.submit(write).add_done_callback(answer)

    def _take_all(self) -> list[_Waiting]:
        """Empty the queue, and return what waited."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return [item for item in waiting if item[1].set_running_or_notify_cancel()]


class CompactionTrigger:
    """Counts single reports that were taken, and starts the compaction when there are many."""

    def __init__(self, context: ServiceContext, write: Write):
        self._context, self._write = context, write
        self._lock = threading.Lock()
        self._taken: Counter[tuple[str, str]] = Counter()  # since the last compaction, by study and source

    def count(self, places: Iterable[tuple[str, str]]) -> None:
        """Count reports by study and source."""
        with self._lock:
            self._taken.update(places)
            many = [place for place, number in self._taken.items() if number >= SINGLES]
            for place in many:
                del self._taken[place]
        for place in many:
            arguments = (self._context, *place, self._write)
            threading.Thread(target=compact, args=arguments, kwargs={"wait": True}, name="compact", daemon=True).start()
