"""A service under mixed load for simulated hours, with kills, upgrades, backups, rotations and full disks.

Two web processes and two workers share a folder with its SQLite file. Collectors, insurers, an operator and an auditor
work all the time, in simulated time. One web process and one worker are broken again and again; the others show whether
memory grows. At the end, all that was acknowledged must be there. Usage:

    python benchmarks/soak.py [--hours 24] [--speed 60] [--pause 10] [--seed 1] [--folder FOLDER] [--quick]

Results go to benchmarks/results/soak.json and soak.md; with --quick, which takes half a minute and is too short for
memory to tell anything, only to the screen. Exit code 1 if something was lost, failed or grew.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
RESULTS = HERE / "results"

from _soak_load import Load, Reports
from _soak_service import Disturbances, Gauge, Node, Service, quarters
from sqlalchemy import select

from fairpremium.parties import ThirdParty
from fairpremium.parties.clock import service_time
from fairpremium.parties.protocol import ENDED
from fairpremium.parties.service import referenced
from fairpremium.parties.service._housekeeping import clean
from fairpremium.parties.service._studies import count_reports
from fairpremium.parties.service.reports._reports import batches_of, singles_of
from fairpremium.parties.store.schema import fits, log, metadata

SHARE, MEGABYTES, FILES = 0.10, 20.0, 20  # by which memory may grow; and the number of open files
PENDING = 300.0  # seconds that fits may take to end after the load
ROW_BYTES = 200  # of a row in the database, beside its content: indexes, page ends
CHANGED = {"meta", "epochs", "log", "log_head", "nonces", "commits", "checkpoints"}  # by a restore


class Check(NamedTuple):
    """Something that must hold, and what was found."""

    name: str
    holds: bool
    found: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=24.0, help="simulated hours")
    parser.add_argument("--speed", type=float, default=60.0, help="simulated seconds per second")
    parser.add_argument("--pause", type=float, default=10.0, help="seconds between two disturbances, on average")
    parser.add_argument("--seed", type=int, default=1, help="of the load; noise is never seeded")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder by default")
    parser.add_argument("--quick", action="store_true", help="half an hour at twice the speed; nothing is written")
    args = parser.parse_args()
    if args.quick:
        args.hours, args.speed, args.pause = 0.5, 120.0, 1.0
    os.environ["FAIRPREMIUM_CLOCK_SPEED"] = f"{args.speed:g}:{int(time.time())}"
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="soak-") as name:
        result = run(Path(name), args)
    print(table(result))
    if not args.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "soak.json").write_text(json.dumps(result, indent=1) + "\n")
        (RESULTS / "soak.md").write_text(table(result))
    sys.exit(0 if all(check["holds"] for check in result["checks"]) else 1)


def run(home: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run the load and the disturbances, and check what is left."""
    rng = random.Random(args.seed)
    service = Service(home, dict(os.environ))
    load = Load(home, service, args.seed)
    load.register()
    restored = Restored()
    disturbances = Disturbances(service, load, rng, restored.check)
    broken = ""
    with running(service), Gauge([service.webs[0], service.workers[0]]) as gauge:
        begin, real = service_time(), time.monotonic()
        load.start()
        try:
            for kind in disturbances:
                hours = (service_time() - begin) / 3600
                print(f"{hours:6.2f} h  {kind}", file=sys.stderr, flush=True)
                if load.errors or (hours >= args.hours and disturbances.done.total() >= 2):
                    break
                time.sleep(args.pause * rng.uniform(0.5, 1.5))
        except (RuntimeError, AssertionError) as error:
            broken = f"after {disturbances.done.total()} of them: {error}"
        hours = (service_time() - begin) / 3600
        load.finish()
        waited = wait_for_fits(service.folder)
    party = ThirdParty(service.folder)
    try:
        checks = [
            Check("no disturbance failed", not broken, broken or f"{disturbances.done.total()} disturbances"),
            check_errors(load),
            check_reports(party, load),
            check_fits(party, load, waited),
            check_bundles(load),
            check_log(party, load),
            restored.result(),
            *(() if args.quick else check_growth(gauge)),
            *check_sizes(party, service.folder),
        ]
    finally:
        party.close()
    if not all(check.holds for check in checks):
        print(*service.log.read_text().splitlines()[-20:], sep="\n", file=sys.stderr)
    growth = {name: thin(samples, real, args.speed) for name, samples in gauge.samples.items()}
    return describe(args, hours, time.monotonic() - real, load, disturbances, checks) | {"growth": growth}


def thin(samples: list[tuple[float, int, int]], begin: float, speed: float) -> list[tuple[float, float, int]]:
    """Some of the samples: simulated hours, MB, open files."""
    some = samples[:: max(len(samples) // 60, 1)]
    return [(round((at - begin) * speed / 3600, 2), round(size / 1e6, 1), files) for at, size, files in some]


@contextmanager
def running(service: Service) -> Iterator[None]:
    """Start all processes, and stop them in order at the end."""
    started: list[Node] = []
    try:
        for node in service.nodes:
            node.start()
            started.append(node)
        yield
        for node in service.nodes:
            node.stop()
    except BaseException:
        for node in started:
            node.kill()
        raise


# --- what must hold --------------------------------------------------------------------------------------------------


def stored(party: ThirdParty, study: str, source: str) -> tuple[dict[bytes, int], int]:
    """The reports of a source, and how many the service counts."""

    def look(connection: Any) -> tuple[dict[bytes, int], int]:
        batches = [*batches_of(connection, party.context, study, source), singles_of(connection, study, source)]
        found: dict[bytes, int] = {}
        for batch in batches:
            found |= dict(zip(map(bytes, batch.keys.tolist()), batch.codes.tolist(), strict=True))
        return found, count_reports(connection, study, source)

    return party.context.database.read(look)


def check_errors(load: Load) -> Check:
    """Did a party see anything that must not be?"""
    found = Counter(load.errors)
    said = "; ".join(f"{text} ({count})" for text, count in found.most_common(5))
    excused = sum(load.excused.values())
    return Check(
        "no error but while a process was down or its disk full",
        not found,
        said or f"{sum(load.answers.values()):,} requests, {excused:,} of them failed in an outage",
    )


def check_reports(party: ThirdParty, load: Load) -> Check:
    """Is every acknowledged report there once, and none that was withdrawn?"""
    clean(party.context, older_than=-1.0)  # takes out what was withdrawn last
    lost = changed = extra = kept = doubled = total = withdrawn = 0
    for actor in load.collectors:
        for place, told in actor.told.items():
            found, count = stored(party, *place)
            lost += len(told.keys() - found.keys())
            changed += sum(found.get(key, code) != code for key, code in told.items())
            kept += len(found.keys() & actor.withdrawn[place])
            extra += len(found.keys() - told.keys() - actor.tried[place])
            doubled += count - len(found)
            total += len(told)
            withdrawn += len(actor.withdrawn[place])
    faults = {"lost": lost, "changed": changed, "not withdrawn": kept, "never sent": extra, "counted twice": doubled}
    said = f"{total:,} acknowledged, {withdrawn:,} withdrawn"
    return Check(
        "every acknowledged report is there once, or withdrawn",
        not any(faults.values()) and total > 0,
        said + "".join(f", {count} {name}" for name, count in faults.items() if count),
    )


def check_fits(party: ThirdParty, load: Load, waited: bool) -> Check:
    """Is every acknowledged fit there, and did each end once in a state that is allowed?"""

    def look(connection: Any) -> tuple[list[Any], Counter[tuple[str, str, str]]]:
        events: Counter[tuple[str, str, str]] = Counter()
        for row in connection.execute(select(log.c.party, log.c.event, log.c.body)):
            if row.event.startswith("fit."):
                events[row.party, json.loads(row.body)["fit"], row.event] += 1
        return connection.execute(select(fits.c.party, fits.c.id, fits.c.state, fits.c.attempt)).all(), events

    rows, events = party.context.database.read(look)
    states = {(row.party, row.id): row.state for row in rows}
    asked = {(actor.name, fit) for actor in load.insurers for fit in actor.asked}
    ends = {fit: sum(events[(*fit, f"fit.{state}")] for state in ENDED) for fit in states}
    faults = {
        "lost": len(asked - states.keys()),
        "never asked for": len(states.keys() - asked),
        "not ended": sum(state not in ENDED for state in states.values()),
        "failed": sum(state == "failed" for state in states.values()),
        "ended twice": sum(count > 1 for count in ends.values()),
    }
    again = sum(row.attempt > 1 for row in rows)
    told = ", ".join(f"{count} {state}" for state, count in sorted(Counter(states.values()).items()))
    return Check(
        "every fit ended once, in an allowed state",
        waited and not any(faults.values()) and "succeeded" in states.values(),
        f"{told}; {again} needed more than one attempt"
        + "".join(f", {count} {name}" for name, count in faults.items() if count),
    )


def check_bundles(load: Load) -> Check:
    """Were bundles fetched? One that does not verify is an error of its insurer."""
    count = sum(actor.done["bundle"] for actor in load.insurers)
    return Check("every bundle that was fetched verifies, and never changes", count > 0, f"{count} fetched and checked")


def check_log(party: ThirdParty, load: Load) -> Check:
    """Does the log continue all checkpoints that the auditor got?"""
    points = load.auditor.checkpoints
    found = party.verify_log(tuple(points))
    keys = len({point.key_id for point in points})
    said = f"{found.entries:,} entries, {len(points)} checkpoints by {keys} keys"
    return Check(
        "the log verifies from the first to the last checkpoint",
        found.intact and bool(points),
        said if found.intact else f"entry {found.first_bad}: {found.reason}",
    )


class Restored:
    """Backups that were restored into a fresh place."""

    def __init__(self) -> None:
        self.count = 0
        self.faults: Counter[str] = Counter()

    def check(self, backup: Path, restored: Path, before: Reports, after: Reports) -> None:
        """Compare a restored place with its backup, and with what was acknowledged before and not withdrawn since."""
        self.count += 1
        rows = [rows_of(folder / "fairpremium.sqlite") for folder in (backup, restored)]
        self.faults["tables differ"] += any(rows[0][name] != rows[1][name] for name in rows[0].keys() - CHANGED)
        self.faults["log differs"] += rows[1]["log"] != rows[0]["log"] + 1  # the restore
        party = ThirdParty(restored)
        try:
            self.faults["log broken"] += not party.verify_log().intact
            for place, told in before.items():
                found, _ = stored(party, *place) if told else ({}, 0)
                wanted = {key: code for key, code in told.items() if key in after[place]}
                self.faults["reports lost"] += sum(found.get(key) != code for key, code in wanted.items())
        finally:
            party.close()
        shutil.rmtree(backup)
        shutil.rmtree(restored)

    def result(self) -> Check:
        said = "".join(f", {count} times: {name}" for name, count in self.faults.items() if count)
        return Check(
            "every backup restores: log, tables, reports",
            self.count > 0 and not any(self.faults.values()),
            f"{self.count} restored{said}",
        )


def rows_of(path: Path) -> dict[str, int]:
    """The number of rows of each table."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in metadata.tables}
    finally:
        connection.close()


def check_growth(gauge: Gauge) -> Iterator[Check]:
    """Do the processes that run all the time take more and more?"""
    for name, samples in gauge.samples.items():
        second, last = (value / 1e6 for value in quarters([size for _, size, _ in samples]))
        yield Check(
            f"memory of the {name}",
            last <= second * (1 + SHARE) + MEGABYTES,
            f"{second:.0f} MB in the second quarter, {last:.0f} MB in the last",
        )
        second, last = quarters([files for _, _, files in samples])
        yield Check(
            f"open files of the {name}",
            last <= second * (1 + SHARE) + FILES,
            f"{second:.0f} in the second quarter, {last:.0f} in the last",
        )


def check_sizes(party: ThirdParty, folder: Path) -> Iterator[Check]:
    """Is there nothing in the folder but what something refers to, and in the database but its rows?"""
    live = party.context.database.read(referenced)
    there = {path.name: path.stat().st_size for path in party.context.files.folder.iterdir() if path.name != ".lock"}
    rest, missing = there.keys() - live, live - there.keys()
    yield Check(
        "the folder has the files that something refers to, and no others",
        not rest and not missing,
        f"{len(there)} files, {sum(there.values()) / 1e6:.1f} MB"
        + (f"; {len(rest)} too many, {len(missing)} missing" if rest or missing else ""),
    )
    path = folder / "fairpremium.sqlite"
    connection = sqlite3.connect(path)
    try:
        size, free = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count"))
        page = connection.execute("PRAGMA page_size").fetchone()[0]
        content = rows = 0
        for name, described in metadata.tables.items():
            columns = " + ".join(f"coalesce(length({column.name}), 0)" for column in described.columns)
            query = f"SELECT count(*), coalesce(sum({columns}), 0) FROM {name}"
            count, length = connection.execute(query).fetchone()
            rows, content = rows + count, content + length
    finally:
        connection.close()
    used, allowed = (size - free) * page, 2 * content + ROW_BYTES * rows + 500_000
    yield Check(
        "the size of the database is that of its rows",
        used <= allowed,
        f"{used / 1e6:.1f} MB with {rows:,} rows of {content / 1e6:.1f} MB; {free * page / 1e6:.1f} MB free in it",
    )


def wait_for_fits(folder: Path) -> bool:
    """Wait until all fits have ended."""
    party = ThirdParty(folder)
    try:
        until = time.monotonic() + PENDING
        open_fits = select(fits.c.id).where(fits.c.state.not_in(ENDED))
        while party.context.database.read(lambda c: c.execute(open_fits.limit(1)).first()) is not None:
            if time.monotonic() > until:
                return False
            time.sleep(0.5)
        return True
    finally:
        party.close()


# --- the table -------------------------------------------------------------------------------------------------------


def describe(
    args: argparse.Namespace,
    hours: float,
    seconds: float,
    load: Load,
    disturbances: Disturbances,
    checks: list[Check],
) -> dict[str, Any]:
    """All figures."""
    work: Counter[str] = Counter()
    for actor in load.actors:
        role = type(actor).__name__.removesuffix("Load").lower()
        for what, count in actor.done.items():
            work[f"{role}: {what}"] += count
    work["operator: study"] = load.operator.studies
    return {
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, CPython {platform.python_version()}",
        "load_average": round(os.getloadavg()[0], 1),
        "hours": round(hours, 2),
        "speed": args.speed,
        "minutes": round(seconds / 60, 1),
        "seed": args.seed,
        "requests": sum(load.answers.values()),
        "answers": {str(status or "none"): count for status, count in sorted(load.answers.items())},
        "work": dict(sorted(work.items())),
        "disturbances": dict(disturbances.done),
        "checks": [check._asdict() for check in checks],
    }


def table(result: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = [
        "# The service over hours",
        "",
        f"{result['hours']} simulated hours in {result['minutes']} minutes: the clock is {result['speed']:g} times as "
        f"fast. Machine: {result['machine']}, load average {result['load_average']}; SQLite, two web processes, two "
        f"workers, {result['requests']:,} requests.",
        "",
        "| what must hold | holds | found |",
        "| --- | --- | --- |",
        *(f"| {c['name']} | {'yes' if c['holds'] else '**NO**'} | {c['found']} |" for c in result["checks"]),
        "",
        "| disturbance | times |",
        "| --- | ---: |",
        *(f"| {name} | {count} |" for name, count in result["disturbances"].items()),
        "",
        "| what the parties did | times |",
        "| --- | ---: |",
        *(f"| {name} | {count:,} |" for name, count in result["work"].items()),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
