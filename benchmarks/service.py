"""What the service takes: reports and a portfolio in bulk, single reports while many wait for a fit, and its memory.

A service with its SQLite file, on loopback; its clients run on the same machine and are timed apart. Usage:

    python benchmarks/service.py [--rows 5000000] [--rounds 5] [--rates 500 1000 2000] [--seconds 20] [--pollers 200]
        [--quick]

Results go to benchmarks/results/service.json and service.md; with --quick, which takes seconds, only to the screen.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import json
import math
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fairpremium.parties import Feature, FitSpec, KnownChannel, PortfolioSpec, StudySpec
from fairpremium.parties.clients._collector import Collector
from fairpremium.parties.clients._insurer import Insurer
from fairpremium.parties.protocol._keys import new_key, read_key, write_key
from fairpremium.parties.protocol._messages import PartTaken, Portfolio, Report, ReportsTaken
from fairpremium.parties.protocol._portfolio_part import PORTFOLIO_TYPE as PARQUET
from fairpremium.parties.protocol._portfolio_part import write_portfolio_part
from fairpremium.parties.protocol._report_batch import BATCH_TYPE as REPORTS
from fairpremium.parties.protocol._report_batch import write_batches
from fairpremium.parties.protocol._signatures import sign_request
from fairpremium.parties.service._context import Party
from fairpremium.parties.service._third_party import ThirdParty
from fairpremium.privacy import RandomizedResponse

RESULTS = Path(__file__).resolve().parent / "results"
CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
FEATURES = 20
PART_ROWS, BATCH_ROWS = 500_000, 1_000_000
WAIT = 10.0  # seconds that a poll asks to wait
CONNECTIONS = 64
INSURERS = tuple(f"insurer-{i}" for i in range(20))  # a party may wait some times at once, not 200 times
ROLES = {"op": "operator", "app": "collector"} | dict.fromkeys(INSURERS, "insurer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of reports, and of the portfolio")
    parser.add_argument("--rounds", type=int, default=5, help="how often reports and portfolio are sent in bulk")
    parser.add_argument("--rates", type=int, nargs="+", default=[500, 1000, 2000], help="single reports per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long they are offered, at each rate")
    parser.add_argument("--pollers", type=int, default=200, help="clients that wait for a fit meanwhile")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder by default")
    parser.add_argument("--quick", action="store_true", help="a few seconds in all; nothing is written")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load:
        print(json.dumps(asyncio.run(_load(**json.loads(args.load)))))
        return
    if args.quick:
        args.rows, args.rounds, args.rates, args.seconds, args.pollers = 20_000, 1, [50], 2.0, 20
    result = measure(args)
    print(table(result))
    if not args.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "service.json").write_text(json.dumps(result, indent=1) + "\n")
        (RESULTS / "service.md").write_text(table(result))
    for name in ("reports", "portfolio"):
        share = median(result[name], "share_of_disk")
        if share < 0.3 and not args.quick:
            print(f"!! {name}: {share:.0%} of what the disk takes, less than 30 %")
    problems = judge(result)
    for problem in problems:
        print(f"!! {problem}")
    sys.exit(1 if problems else 0)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run everything against one service."""
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        home = Path(name)
        prepare(home, args.rounds)
        with serving(home) as (url, pid), watching(pid) as memory:
            ask_for_fits(home, url)
            result = {
                "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, CPython "
                f"{platform.python_version()}",
                "rows": args.rows,
                "reports": [bulk(home, url, pid, args.rows, "reports", i) for i in range(args.rounds)],
                "portfolio": [bulk(home, url, pid, args.rows, "portfolio", i) for i in range(args.rounds)],
                "load": [load(home, url, pid, args, rate) for rate in args.rates],
            }
        result["memory"] = memory
        result["intact"] = count(home, args, result)
    return result


def judge(result: dict[str, Any]) -> list[str]:
    """What is wrong."""
    found = [f"{row['errors']} requests failed: {row['answers']}" for row in result["load"] if row["errors"]]
    if result["memory"]["mib"] >= 1024:
        found.append(f"the service took {result['memory']['mib']} MiB")
    if not result["intact"]:
        found.append("the log or the number of reports is wrong")
    return found


# --- the service -----------------------------------------------------------------------------------------------------


def prepare(home: Path, rounds: int) -> None:
    """Register the parties, and open a study."""
    party = ThirdParty(home / "third-party")
    for name, role in ROLES.items():
        write_key(home / f"{name}.key", new_key())
        party.add_key(read_key(home / f"{name}.key").public_key, party=name, role=role)  # type: ignore[arg-type]
    attribute = KnownChannel(channel=CHANNEL.descriptor())
    operator = Party("op", "operator")
    for study in (*(f"bulk-{i}" for i in range(rounds)), "single"):
        spec = StudySpec(title=study, attribute=attribute, collectors=("app",), insurers=INSURERS)
        party.put_study(operator, study, spec)
        party.open_study(operator, study)
    party.close()


@contextmanager
def serving(home: Path) -> Any:
    """A service without workers: fits wait, and so do those who ask for them."""
    command = [sys.executable, "-m", "fairpremium", "serve", "--folder", str(home / "third-party"), "--port", "0"]
    with subprocess.Popen([*command, "--workers", "0", "--json"], stdout=subprocess.PIPE) as service:
        try:
            yield json.loads(service.stdout.readline())["service"], service.pid  # type: ignore[union-attr]
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait(60)


@contextmanager
def watching(pid: int) -> Any:
    """Sample the memory of all processes of the service together, files that they have mapped included."""
    peak = {"mib": 0, "samples": 0}
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            peak["mib"] = max(peak["mib"], sum(map(memory, family(pid))) >> 10)
            peak["samples"] += 1

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def memory(pid: int) -> int:
    """KiB of memory of a process; what several share counts in parts."""
    text = read(Path(f"/proc/{pid}/smaps_rollup")).partition("Pss:")[2]
    return int(text.split()[0]) if text else 0


def family(pid: int) -> list[int]:
    """A process and all that it started, or they."""
    lists = [read(task / "children") for task in Path(f"/proc/{pid}/task").glob("*")]
    return [pid, *(one for text in lists for child in text.split() for one in family(int(child)))]


def cpu_seconds(pid: int) -> float:
    """Time on a processor of a process and all that it started."""
    ticks = 0
    for one in family(pid):
        fields = read(Path(f"/proc/{one}/stat")).rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:13])) if fields else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def read(path: Path) -> str:
    """Read a file about a process, which may be gone."""
    try:
        return path.read_text()
    except OSError:
        return ""


def count(home: Path, args: argparse.Namespace, result: dict[str, Any]) -> bool:
    """Is all there that was taken, once, and is the log intact?"""
    from fairpremium.parties.service._studies import count_reports

    party = ThirdParty(home / "third-party")
    bulk_rows = party.context.database.read(lambda c: [count_reports(c, f"bulk-{i}") for i in range(args.rounds)])
    single = party.context.database.read(lambda c: count_reports(c, "single"))
    intact = party.verify_log().intact
    party.close()
    return intact and bulk_rows == [args.rows] * args.rounds and single == sum(row["taken"] for row in result["load"])


# --- in bulk ---------------------------------------------------------------------------------------------------------


def bulk(home: Path, url: str, pid: int, rows: int, what: str, i: int) -> dict[str, Any]:
    """Send parts as the clients do; before and after, write the same bytes to as many files, which stay too."""
    names = [f"x{j}" for j in range(FEATURES)]
    spec = PortfolioSpec(study=f"bulk-{i}", features=tuple(Feature(name=name) for name in names), outcome="loss")
    rng = np.random.default_rng([i, what == "reports"])
    begin = time.perf_counter()
    if what == "reports":
        keys = np.frombuffer(rng.bytes(16 * rows), dtype="V16")
        values, parts = np.where(rng.random(rows) < 0.5, "F", "M"), math.ceil(rows / BATCH_ROWS)
        bodies = list(write_batches(keys, values, CHANNEL.reports, CHANNEL, batches=parts))
    else:
        cuts = [*range(0, rows, PART_ROWS), rows]
        tables = (draw_portfolio(rng, names, stop - start) for start, stop in itertools.pairwise(cuts))
        bodies = [write_portfolio_part(table, spec) for table in tables]
    seconds = {"client_writes": time.perf_counter() - begin}
    size = sum(map(len, bodies))

    def files(path: str) -> Iterator[tuple[str, bytes]]:
        return ((f"{path}/{n}", body) for n, body in enumerate(bodies))

    plain = home / f"plain-{what}-{i}"
    plain.mkdir()
    disk = [write_plainly(plain / f"before-{n}", body) for n, body in enumerate(bodies)]
    kind: Any = Collector if what == "reports" else Insurer
    with kind(url, read_key(home / ("app.key" if what == "reports" else f"{INSURERS[0]}.key"))) as client:
        if what == "portfolio":
            client.put(f"/v1/portfolios/p{i}", spec, Portfolio)
        begin, busy, used = time.perf_counter(), time.process_time(), cpu_seconds(pid)
        if what == "reports":
            answers: Any = client.put_files(files(f"/v1/studies/bulk-{i}/report-parts"), REPORTS, ReportsTaken)
        else:
            answers = client.put_files(files(f"/v1/portfolios/p{i}/parts"), PARQUET, PartTaken)
        deque(answers, maxlen=0)
        seconds["service"] = time.perf_counter() - begin
        seconds["client_cpu"], seconds["service_cpu"] = time.process_time() - busy, cpu_seconds(pid) - used
        if what == "portfolio":
            begin = time.perf_counter()
            client.post(f"/v1/portfolios/p{i}/seal", Portfolio)
            seconds["seal"] = time.perf_counter() - begin
    disk += [write_plainly(plain / f"after-{n}", body) for n, body in enumerate(bodies)]
    seconds["disk"] = sum(disk) / 2
    seconds["bare"] = send_barely(plain, bodies)
    return {
        "megabytes": round(size / 1e6, 1),
        "parts": len(bodies),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "rows_per_s": round(rows / seconds["service"]),
        "service_mb_per_s": round(size / 1e6 / seconds["service"], 1),
        "disk_mb_per_s": round(size / 1e6 / seconds["disk"], 1),
        "bare_mb_per_s": round(size / 1e6 / seconds["bare"], 1),
        "share_of_bare": round(seconds["bare"] / seconds["service"], 3),
        "share_of_disk": round(seconds["disk"] / seconds["service"], 3),
        "load_average": round(os.getloadavg()[0], 1),
    }


def draw_portfolio(rng: np.random.Generator, names: list[str], rows: int) -> pa.Table:
    """Draw keys, features that do not compress, and losses."""
    columns = [rng.standard_normal(rows, dtype=np.float32) for _ in names]
    keys = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(rng.bytes(16 * rows))])
    return pa.table([keys, *columns, rng.gamma(1.0, 1000.0, rows)], names=["key", *names, "loss"])


def send_barely(folder: Path, bodies: list[bytes]) -> float:
    """Hash files, send them to another process that hashes and writes them, and wait, nothing else; in seconds."""
    code = """
import hashlib, os, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, buffer = listener.accept()[0], memoryview(bytearray(1 << 18))
for n, size in enumerate(map(int, sys.argv[2:])):
    file, digest = os.open(f"{sys.argv[1]}/bare-{n}", os.O_WRONLY | os.O_CREAT), hashlib.sha256()
    while size:
        count = connection.recv_into(buffer, min(size, len(buffer)))
        digest.update(buffer[:count])
        os.write(file, buffer[:count])
        size -= count
    os.fsync(file)
    os.close(file)
    connection.sendall(digest.digest())
"""
    command = [sys.executable, "-c", code, str(folder), *(str(len(body)) for body in bodies)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        port = int(other.stdout.readline())  # type: ignore[union-attr]
        with socket.create_connection(("127.0.0.1", port)) as connection:
            begin = time.perf_counter()
            for body in bodies:
                digest = hashlib.sha256(body).digest()
                connection.sendall(body)
                assert connection.recv(32, socket.MSG_WAITALL) == digest
            return time.perf_counter() - begin


def write_plainly(path: Path, body: bytes) -> float:
    """Write a file as fast as can be, and bring it to the disk; return the seconds that it took."""
    begin = time.perf_counter()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    view = memoryview(body)
    while view:
        view = view[os.write(file, view) :]
    os.fsync(file)
    os.close(file)
    return time.perf_counter() - begin


# --- one by one ------------------------------------------------------------------------------------------------------


def ask_for_fits(home: Path, url: str) -> None:
    """Let each insurer ask for a fit, which waits for a worker."""
    spec = PortfolioSpec(study="single", features=(Feature(name="x"),), outcome="y")
    parts = []
    for n in range(2):  # so that both processes that check files are there
        keys = pa.array([os.urandom(16) for _ in range(10)], pa.binary(16))
        table = pa.table({"key": keys, "x": np.arange(10.0), "y": np.arange(10.0)})
        parts.append((f"/v1/portfolios/q/parts/{n}", write_portfolio_part(table, spec)))
    for name in INSURERS:
        with Insurer(url, read_key(home / f"{name}.key")) as insurer:
            insurer.put("/v1/portfolios/q", spec, Portfolio)
            list(insurer.put_files(parts, PARQUET, PartTaken))
            insurer.post("/v1/portfolios/q/seal", Portfolio)
            insurer.fit("waits", FitSpec(study="single", portfolio="q"))


def load(home: Path, url: str, pid: int, args: argparse.Namespace, rate: int) -> dict[str, Any]:
    """Offer single reports at a fixed rate while others wait for a fit, from a process of their own."""
    options = {"url": url, "home": str(home), "rate": rate, "seconds": args.seconds, "pollers": args.pollers}
    used = cpu_seconds(pid)
    done = subprocess.run(
        [sys.executable, __file__, "--load", json.dumps(options)], stdout=subprocess.PIPE, check=True, text=True
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    result["service_cpu_s"] = round(cpu_seconds(pid) - used, 2)
    result["load_average"] = round(os.getloadavg()[0], 1)
    return result


def sign(method: str, url: str, path: str, body: bytes, key: Any) -> bytes:
    """Write a signed request as it goes over the wire."""
    headers = sign_request(method, url + path, {}, hashlib.sha256(body).digest(), key)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {url.partition('://')[2]}"]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


async def _load(url: str, home: str, rate: int, seconds: float, pollers: int) -> dict[str, Any]:
    """Send signed requests at their times, whether or not earlier ones were answered; count from those times."""
    host, port = url.partition("://")[2].split(":")
    app, insurers = read_key(Path(home) / "app.key"), [read_key(Path(home) / f"{name}.key") for name in INSURERS]
    body = Report(report="F", channel=CHANNEL.descriptor()).model_dump_json().encode()
    total = int(rate * seconds)
    begin = time.process_time()
    paths = [f"/v1/studies/single/reports/{os.urandom(16).hex()}" for _ in range(total)]
    ready = [sign("PUT", url, path, body, app) for path in paths]
    signing = time.process_time() - begin
    latencies: list[float] = []
    overdue: list[float] = []
    answers: Counter[str] = Counter()
    over = asyncio.Event()

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> str:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        await reader.readexactly(length)
        return head[9:12].decode()

    async def report(queue: asyncio.Queue[tuple[float, bytes] | None]) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        while (item := await queue.get()) is not None:
            due, request = item
            answers[f"report {await ask(reader, writer, request)}"] += 1
            latencies.append(time.perf_counter() - due)
        writer.close()

    async def poll(delay: float, number: int) -> None:
        insurer, address = insurers[number], f"127.0.1.{1 + number}"  # the connections of an address are limited
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=(address, 0))
        await asyncio.sleep(delay)
        while not over.is_set():
            request = sign("GET", url, f"/v1/fits/waits?wait={WAIT:g}", b"", insurer)
            asked = time.perf_counter()
            answers[f"poll {await ask(reader, writer, request)}"] += 1
            overdue.append(time.perf_counter() - asked - WAIT)
        writer.close()

    waiting = [asyncio.create_task(poll(WAIT * i / max(pollers, 1) / 2, i % len(insurers))) for i in range(pollers)]
    await asyncio.sleep(WAIT / 2 + 0.5)  # all of them wait now
    queue: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue()
    senders = [asyncio.create_task(report(queue)) for _ in range(min(CONNECTIONS, total))]
    busy, start = time.process_time(), time.perf_counter()
    for i, request in enumerate(ready):
        due = start + i / rate
        if (left := due - time.perf_counter()) > 0:
            await asyncio.sleep(left)
        queue.put_nowait((due, request))
    for _ in senders:
        queue.put_nowait(None)
    await asyncio.gather(*senders)
    took = time.perf_counter() - start
    busy = time.process_time() - busy
    over.set()
    await asyncio.gather(*waiting)
    fine = answers["report 200"]
    late = sorted(latencies)
    return {
        "offered_per_s": rate,
        "seconds": round(took, 2),
        "taken": fine,
        "taken_per_s": round(fine / took, 1),
        "p50_ms": round(1e3 * late[len(late) // 2], 1),
        "p99_ms": round(1e3 * late[int(0.99 * len(late))], 1),
        "pollers": pollers,
        "polls": answers["poll 200"],
        "poll_overdue_p99_ms": round(1e3 * float(np.quantile(overdue, 0.99)), 1) if overdue else None,
        "errors": sum(number for name, number in answers.items() if not name.endswith(" 200")),
        "answers": dict(answers),
        "client_cpu_s": round(busy, 2),
        "client_signing_s": round(signing, 2),
    }


# --- the table -------------------------------------------------------------------------------------------------------


def median(rounds: list[dict[str, Any]], name: str) -> float:
    """The median of a figure over the rounds."""
    return float(np.median([row[name] for row in rounds]))


def table(result: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = [
        "# The service under load",
        "",
        f"Machine: {result['machine']}; clients and service share it. SQLite, one web process, loopback.",
        "",
        f"| in bulk, {result['rows']:,} rows | MB | seconds | rows/s | MB/s | disk, MB/s | share | bare, MB/s | "
        "share | CPU s: service, client | load |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, title in (("reports", "reports in batches"), ("portfolio", f"portfolio with {FEATURES} features")):
        for row in result[name]:
            seconds = row["seconds"]
            lines.append(
                f"| {title} | {row['megabytes']} | {seconds['service']:.2f} | {row['rows_per_s']:,} | "
                f"{row['service_mb_per_s']:.0f} | {row['disk_mb_per_s']:.0f} | {row['share_of_disk']:.0%} | "
                f"{row['bare_mb_per_s']:.0f} | {row['share_of_bare']:.0%} | "
                f"{seconds['service_cpu']:.1f}, {seconds['client_cpu']:.1f} | {row['load_average']} |"
            )
    rows, memory = result["load"], result["memory"]
    titles = {
        "reports offered per second": "offered_per_s",
        "taken per second, each on disk before its answer": "taken_per_s",
        "p50, ms, from the moment a report was due": "p50_ms",
        "p99, ms": "p99_ms",
        "clients that wait for a fit meanwhile": "pollers",
        "p99 of how late their answers are, ms": "poll_overdue_p99_ms",
        "errors": "errors",
        "CPU s of the service": "service_cpu_s",
        "CPU s of the clients": "client_cpu_s",
        "load average": "load_average",
    }
    lines += [
        "",
        "The disk's figure is that of writing the same bytes to as many files, which stay, and waiting for each to be "
        "there, just before and just after. The bare figure is that of the least that must happen: hash a file, send "
        "it over the loopback, hash and write it, wait for it to be there. Memory that the machine has just used makes "
        "writing several times faster than memory that it has not, hence the differences between rounds.",
        "",
        "| one by one |" + " |" * len(rows),
        "| --- |" + " ---: |" * len(rows),
        *(f"| {title} | " + " | ".join(str(row[name]) for row in rows) + " |" for title, name in titles.items()),
        "",
        f"Most memory of all processes of the service together: {memory['mib']} MiB.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
