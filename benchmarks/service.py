"""What the service takes: reports and a portfolio in bulk, single reports while many wait for a fit, and its memory.

One service process with its SQLite file, on loopback; its clients run on the same machine and are timed apart. Usage:

    python benchmarks/service.py [--rows 5000000] [--rates 500 2000] [--seconds 20] [--pollers 200] [--quick]

Results go to benchmarks/results/service.json and service.md; with --quick, which takes seconds, only to the screen.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fairpremium.parties import Feature, FitSpec, KnownChannel, PortfolioSpec, StudySpec
from fairpremium.parties._collector import Collector
from fairpremium.parties._house import Party
from fairpremium.parties._insurer import Insurer
from fairpremium.parties._keys import SigningKey, new_key, read_key, write_key
from fairpremium.parties._messages import PartTaken, Portfolio, Report, ReportsTaken
from fairpremium.parties._parts import write_portfolio_part, write_report_part
from fairpremium.parties._signatures import sign_request
from fairpremium.parties._third_party import ThirdParty
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
    parser.add_argument("--rates", type=int, nargs="+", default=[500, 2000], help="single reports offered per second")
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
        args.rows, args.rates, args.seconds, args.pollers = 20_000, [50], 2.0, 20
    result = measure(args)
    print(table(result))
    if not args.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "service.json").write_text(json.dumps(result, indent=1) + "\n")
        (RESULTS / "service.md").write_text(table(result))
    for name in ("reports", "portfolio"):
        if result[name]["share_of_disk"] < 0.3 and not args.quick:
            print(f"!! {name}: {result[name]['share_of_disk']:.0%} of what the disk takes, less than 30 %")
    problems = judge(result)
    for problem in problems:
        print(f"!! {problem}")
    sys.exit(1 if problems else 0)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run everything against one service."""
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        home = Path(name)
        prepare(home)
        with serving(home) as (url, pid), watching(pid) as memory:
            ask_for_fits(home, url)
            result = {
                "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, CPython "
                f"{platform.python_version()}",
                "rows": args.rows,
                "reports": bulk(home, url, pid, args.rows, "reports"),
                "portfolio": bulk(home, url, pid, args.rows, "portfolio"),
                "load": [load(home, url, pid, args, rate) for rate in args.rates],
            }
        result["memory"] = memory
        result["intact"] = count(home, args, result)
    return result


def judge(result: dict[str, Any]) -> list[str]:
    """What is wrong."""
    found = [f"{row['errors']} requests failed: {row['answers']}" for row in result["load"] if row["errors"]]
    if result["memory"]["web_mib"] >= 1024:
        found.append(f"the web process took {result['memory']['web_mib']} MiB")
    if not result["intact"]:
        found.append("the log or the number of reports is wrong")
    return found


# --- the service -----------------------------------------------------------------------------------------------------


def prepare(home: Path) -> None:
    """Register the parties, and open a study."""
    party = ThirdParty(home / "house")
    for name, role in ROLES.items():
        write_key(home / f"{name}.key", new_key())
        party.add_key(read_key(home / f"{name}.key").public_key, party=name, role=role)  # type: ignore[arg-type]
    attribute = KnownChannel(channel=CHANNEL.descriptor())
    operator = Party("op", "operator")
    for study in ("bulk", "single"):
        spec = StudySpec(title=study, attribute=attribute, collectors=("app",), insurers=INSURERS)
        party.put_study(operator, study, spec)
        party.open_study(operator, study)
    party.close()


@contextmanager
def serving(home: Path) -> Any:
    """A service without workers: fits wait, and so do those who ask for them."""
    command = [sys.executable, "-m", "fairpremium", "serve", "--folder", str(home / "house"), "--port", "0"]
    with subprocess.Popen([*command, "--workers", "0", "--json"], stdout=subprocess.PIPE) as service:
        try:
            yield json.loads(service.stdout.readline())["service"], service.pid  # type: ignore[union-attr]
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait(60)


@contextmanager
def watching(pid: int) -> Any:
    """Sample the resident memory of the web process and of its children, which check files."""
    peak = {"web_mib": 0, "children_mib": 0, "samples": 0}
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            peak["web_mib"] = max(peak["web_mib"], resident(pid))
            peak["children_mib"] = max(peak["children_mib"], sum(map(resident, children(pid))))
            peak["samples"] += 1

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def resident(pid: int) -> int:
    """MiB of memory of a process, files that it has mapped included."""
    fields = read(Path(f"/proc/{pid}/statm")).split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") >> 20 if fields else 0


def children(pid: int) -> list[int]:
    """The processes that a process started."""
    lists = [read(task / "children") for task in Path(f"/proc/{pid}/task").iterdir()]
    return [int(child) for text in lists for child in text.split()]


def cpu_seconds(pid: int) -> float:
    """Time on a processor of a process and its children."""
    ticks = 0
    for one in (pid, *children(pid)):
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
    from fairpremium.parties._studies import count_reports

    party = ThirdParty(home / "house")
    bulk_rows = party.house.store.read(lambda c: count_reports(c, "bulk"))
    single = party.house.store.read(lambda c: count_reports(c, "single"))
    intact = party.verify_log().intact
    party.close()
    return intact and bulk_rows == args.rows and single == sum(row["taken"] for row in result["load"])


# --- in bulk ---------------------------------------------------------------------------------------------------------


def bulk(home: Path, url: str, pid: int, rows: int, what: str) -> dict[str, Any]:
    """Send parts as the clients do; before and after, write the same bytes to the same disk."""
    names = [f"x{j}" for j in range(FEATURES)]
    spec = PortfolioSpec(study="bulk", features=tuple(Feature(name=name) for name in names), outcome="loss")
    rng = np.random.default_rng(0 if what == "reports" else 1)
    step, path = PART_ROWS, "/v1/portfolios/p/parts"
    if what == "reports":
        step, path = BATCH_ROWS, "/v1/studies/bulk/report-parts"
    begin = time.perf_counter()
    bodies = []
    for start in range(0, rows, step):
        length = min(step, rows - start)
        if what == "reports":
            keys = np.frombuffer(rng.bytes(16 * length), dtype="V16")
            bodies.append(write_report_part(keys, np.where(rng.random(length) < 0.5, "F", "M"), CHANNEL))
        else:
            bodies.append(write_portfolio_part(draw_portfolio(rng, names, length), spec))
    seconds = {"client_writes_parquet": time.perf_counter() - begin}
    size, parts = sum(map(len, bodies)), len(bodies)
    disk = [write_plainly(home / "plain", body) for body in bodies]
    kind: Any = Collector if what == "reports" else Insurer
    with kind(url, read_key(home / ("app.key" if what == "reports" else f"{INSURERS[0]}.key"))) as client:
        if what == "portfolio":
            client.put("/v1/portfolios/p", spec, Portfolio)
        begin, busy, used = time.perf_counter(), time.process_time(), cpu_seconds(pid)
        files = ((f"{path}/{n}", body) for n, body in enumerate(bodies))
        for _ in client.put_parquets(files, ReportsTaken if what == "reports" else PartTaken):
            pass
        seconds["service"] = time.perf_counter() - begin
        seconds["client_cpu"], seconds["service_cpu"] = time.process_time() - busy, cpu_seconds(pid) - used
        if what == "portfolio":
            begin = time.perf_counter()
            client.post("/v1/portfolios/p/seal", Portfolio)
            seconds["seal"] = time.perf_counter() - begin
    disk += [write_plainly(home / "plain", body) for body in bodies]
    seconds["disk"] = sum(disk) / 2
    return {
        "megabytes": round(size / 1e6, 1),
        "parts": parts,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "rows_per_s": round(rows / seconds["service"]),
        "service_mb_per_s": round(size / 1e6 / seconds["service"], 1),
        "disk_mb_per_s": round(size / 1e6 / seconds["disk"], 1),
        "share_of_disk": round(seconds["disk"] / seconds["service"], 3),
        "load_average": round(os.getloadavg()[0], 1),
    }


def draw_portfolio(rng: np.random.Generator, names: list[str], rows: int) -> pa.Table:
    """Draw keys, features that do not compress, and losses."""
    columns = [rng.standard_normal(rows, dtype=np.float32) for _ in names]
    keys = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(rng.bytes(16 * rows))])
    return pa.table([keys, *columns, rng.gamma(1.0, 1000.0, rows)], names=["key", *names, "loss"])


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
            list(insurer.put_parquets(parts, PartTaken))
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

    async def poll(delay: float, insurer: SigningKey) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        await asyncio.sleep(delay)
        while not over.is_set():
            request = sign("GET", url, f"/v1/fits/waits?wait={WAIT:g}", b"", insurer)
            asked = time.perf_counter()
            answers[f"poll {await ask(reader, writer, request)}"] += 1
            overdue.append(time.perf_counter() - asked - WAIT)
        writer.close()

    waiting = [
        asyncio.create_task(poll(WAIT * i / max(pollers, 1) / 2, insurers[i % len(insurers)])) for i in range(pollers)
    ]
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


def table(result: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = [
        "# The service under load",
        "",
        f"Machine: {result['machine']}; clients and service share it. SQLite, one web process, loopback.",
        "",
        f"| in bulk, {result['rows']:,} rows | MB | seconds | rows/s | MB/s | disk, MB/s | share | "
        "CPU s: service, client | load |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, title in (("reports", "reports in batches"), ("portfolio", f"portfolio with {FEATURES} features")):
        row, seconds = result[name], result[name]["seconds"]
        lines.append(
            f"| {title} | {row['megabytes']} | {seconds['service']:.1f} | {row['rows_per_s']:,} | "
            f"{row['service_mb_per_s']} | {row['disk_mb_per_s']} | {row['share_of_disk']:.0%} | "
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
        "The disk's figure is that of writing the same bytes to files and waiting for each to be there, in the same "
        "run, just before and just after. Two parts at a time are on their way to the service: so clients send them.",
        "",
        "| one by one |" + " |" * len(rows),
        "| --- |" + " ---: |" * len(rows),
        *(f"| {title} | " + " | ".join(str(row[name]) for row in rows) + " |" for title, name in titles.items()),
        "",
        f"Most memory of the web process: {memory['web_mib']} MiB; of the processes that check files: "
        f"{memory['children_mib']} MiB.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
