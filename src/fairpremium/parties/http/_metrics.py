"""Metrics in the form of Prometheus: requests of this process, and what the database and the disk tell.

Reports, their withdrawal, other requests of collectors and the answers of people are left out: how often such requests
came tells when somebody reported.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from fairpremium import __version__
from fairpremium.parties.service import ThirdParty, measure_service

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_UNMATCHED = "unmatched"


class Metrics:
    """Counts the requests of this process, and writes all metrics."""

    def __init__(self, party: ThirdParty):
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the times at which this process first saw a label
        self._registry = CollectorRegistry()
        self._registry.register(_ServiceCollector(party))
        labels = ["method", "route", "status"]
        self._requests = Counter(
            "fairpremium_requests",
            "Requests that this process has answered, but for those of collectors and of people who answer.",
            labels,
            registry=self._registry,
        )
        self._seconds = Histogram(
            "fairpremium_request_seconds",
            "Time until the answer to a request had left, by class of status; a request may wait for a fit.",
            labels,
            registry=self._registry,
            buckets=BUCKETS,
        )

    def count(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count a request; one without a route has a made-up address."""
        known = (method if method in _METHODS else "other", route or _UNMATCHED)
        self._requests.labels(*known, str(status)).inc()
        self._seconds.labels(*known, f"{status // 100}xx").observe(seconds)

    def write(self) -> bytes:
        """Write all metrics as text."""
        return generate_latest(self._registry)


class _ServiceCollector(Collector):
    """Reads what is the same for every web process."""

    def __init__(self, party: ThirdParty):
        self._party = party

    def describe(self) -> list[Metric]:
        return []  # or the registry would read the database when it is made

    def collect(self) -> Iterator[Metric]:
        found, database = measure_service(self._party.context), self._party.context.database.dialect
        build = InfoMetricFamily("fairpremium_build", "Version of the service, and its database system.")
        build.add_metric([], {"version": __version__, "database": database})
        yield build
        yield _gauge("fits", "Fits by state.", "state", found.fits)
        yield _gauge("queue_length", "Fits that wait for a worker.", value=found.fits["queued"])
        yield _gauge(
            "queue_oldest_seconds", "How long the oldest waiting fit has waited; 0 if none.", value=found.oldest_wait
        )
        yield _gauge("workers", "Workers that gave a sign of life within the last minute.", value=found.workers)
        leases = {"held": found.leases_held, "expired": found.leases_expired}
        yield _gauge("leases", "Running fits whose worker is alive (held) or silent (expired).", "state", leases)
        yield _gauge("fit_attempts", "Attempts of all fits.", value=found.attempts)
        yield _gauge(
            "fit_attempts_lost",
            "Attempts that ended without a result: the lease was lost, or the process died.",
            value=found.attempts_lost,
        )
        yield _gauge("epoch", "Number of the present epoch of a study.", "study", found.epochs)
        yield _gauge(
            "service_key_age_seconds", "How long the service has signed with its key.", value=found.key_seconds
        )
        stored = {"database": found.database_bytes, "files": found.file_bytes, "portfolios": found.portfolio_bytes}
        yield _gauge("storage_bytes", "Room taken; database and files in steps of 64 MiB.", "what", stored)
        yield _gauge("disk_free_bytes", "Room left for files, in steps of 64 MiB.", value=found.free_bytes)


def _gauge(
    name: str, text: str, label: str = "", values: dict[str, int] | None = None, *, value: float | None = None
) -> Metric:
    """Return a metric with one value, or with one for each value of a label."""
    if values is None:
        return GaugeMetricFamily(f"fairpremium_{name}", text, value=value)
    family = GaugeMetricFamily(f"fairpremium_{name}", text, labels=[label])
    for key, number in values.items():
        family.add_metric([key], number)
    return family
