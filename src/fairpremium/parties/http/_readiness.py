"""Whether the service is ready, as it is seen from outside: looked at when somebody asks, but not too often."""

import asyncio
import time

from anyio.to_thread import run_sync
from sqlalchemy.exc import SQLAlchemyError

from fairpremium.parties.protocol import Problem
from fairpremium.parties.service import ThirdParty, log_event

_FRESH = 1.0  # seconds for which a look is good enough
_REASONS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (  # for the operational log
    (TimeoutError, "too-slow"),
    (SQLAlchemyError, "database"),
    (FileNotFoundError, "folder-missing"),
    (PermissionError, "folder-not-writable"),
    (OSError, "disk"),
)
_PATIENCE = 5.0  # seconds that a look may take


class Readiness:
    """Looks whether database and disk take writes."""

    def __init__(self, party: ThirdParty):
        self._party = party
        self._looked_at = float("-inf")
        self._problem = ""  # what was wrong at the last look
        self._looking = asyncio.Lock()

    async def check(self) -> None:
        """Raise the problem "unavailable" if the service cannot store what is sent to it."""
        async with self._looking:  # those who waited meanwhile find it done
            if time.monotonic() - self._looked_at > _FRESH:
                before, self._problem = self._problem, await self._look()
                self._looked_at = time.monotonic()
                if self._problem and self._problem != before:
                    log_event("ready.lost", problem=self._problem)
                elif before and not self._problem:
                    log_event("ready.back")
        if self._problem:
            raise Problem("unavailable")

    async def _look(self) -> str:
        """Write something, and return a word for the problem with that."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await run_sync(self._party.check_writes, abandon_on_cancel=True)
        except Problem as problem:
            return problem.code
        except Exception as error:  # of the database or the disk, whose messages may name things
            return next((word for kinds, word in _REASONS if isinstance(error, kinds)), "unavailable")
        return ""
