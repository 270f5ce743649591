"""Every kind of command, on files of a few rows: what takes long there is starting, not work."""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import fairpremium
from fairpremium import RandomizedResponse
from fairpremium.portfolios import zhang_liu_shi_2025

ROWS = 2000  # fewer, and the third party refuses the fit
COMMAND = (sys.executable, "-P", "-m", "fairpremium")
ALONE = """
    list of commands: --help
    version: --version
    help of fit: fit --help
    plan: plan --groups 4 --epsilon 1 --rows 100000
    privatize: privatize people.csv --column sex --groups F,M --keep 0.8 -o drawn.csv
    fit, inverse: fit portfolio.csv {reported} --keep 0.8 --pooling 0 --correction inverse -o quick.json
    fit: fit portfolio.csv {reported} --keep 0.8 -o model.json
    fit, claims: fit portfolio.csv --claims n --amount paid --exposure years --keep 0.8 -o claims.json
    price: price model.json portfolio.csv -o premiums.csv
    price, Excel: price model.json portfolio.csv -o premiums.xlsx
    price, claims: price claims.json portfolio.csv -o claims.csv
    tariff: tariff model.json portfolio.csv -o tariff.xlsx
    audit, numbers: audit prices.csv --premium premium {reported} --keep 0.8 -o audit.json
    audit, page: audit prices.csv --premium premium {reported} --keep 0.8 -o audit.html
    audit, page with proxies: audit prices.csv --premium premium {reported} --keep 0.8 --features age,smoker -o a.html
    spectrum: spectrum model.json portfolio.csv {reported} -o spectrum.csv
    alternatives: alternatives model.json portfolio.csv {reported} -o alternatives.csv
    monitor: monitor prices.csv --period 2026-Q1 {watched} --keep 0.8
    monitor, chart: monitor prices.csv --period 2026-Q2 {watched} --keep 0.8 -o chart.svg
    card: card model.json -o card.html
    record: record model.json -o record.md
    keys new: keys new ops.key app.key acme.key
    keys secret: keys secret motor.secret
    keys storage: keys storage storage.key
    keys show: keys show ops.key
    keys add: keys add ops.key.pub --party ops --role operator
    keys add, collector: keys add app.key.pub --party app --role collector
    keys add, insurer: keys add acme.key.pub --party acme --role insurer
    account add: account add ada --role auditor --password-file password
    account list: account list
    collector page: collector page -o page --service https://third.party
"""
PARTIES = """
    study create: study create motor {declared} --open --question question.json --key ops.key
    study show: study show motor --key acme.key
    collector submit: collector submit people.csv {asked} --policy policy --column sex --reports sent.csv --key app.key
    collector invite: collector invite invited.csv {asked} --attribute sex -o links.csv --key app.key
    collector status: collector status --study motor --key app.key
    insurer upload: insurer upload priced.csv {asked} --portfolio p1 --policy policy --outcome y --key acme.key
    insurer fit: insurer fit first --study motor --portfolio p1 --key acme.key
    insurer show: insurer show first --key acme.key
    insurer fetch: insurer fetch first -o bundle.zip {trust} --key acme.key
    insurer erase: insurer erase p1 --key acme.key
    collector withdraw: collector withdraw P00011 {asked} --key app.key
    study close: study close motor --key ops.key
    log show: log show --key acme.key
    log verify, from outside: log verify --service {service} {trust} --state log.json
"""
AFTERWARDS = """
    insurer price: insurer price bundle.zip priced.csv -o bought.csv {trust} --policy policy
    card of a bundle: card bundle.zip {trust} -o bundle.html
    log verify: log verify --bundle bundle.zip
    worker: worker --once
    backup: backup -o backup
    restore: restore backup --folder restored
"""
OPTIONS = {
    "reported": "--outcome y --sensitive report",
    "watched": "--state monitor.json --premium premium --outcome y --person policy --sensitive report",
    "declared": "--groups F,M --keep 0.8 --collector app --insurer acme",
    "asked": "--study motor --secret motor.secret",
    "trust": "--trust third-party/service.key.pub",
}
REPEATED = ("plan", "fit", "price", "tariff", "audit", "spectrum", "alternatives", "monitor", "card", "record")
SAME_WORK = {"account add": "account password ada --password-file password"}  # a password is hashed, slowly by design
TWICE = """
import sys, time
from contextlib import redirect_stdout
from fairpremium.cli import main

for _ in range(2):
    start = time.process_time()
    try:
        with redirect_stdout(sys.stderr):
            main()
    except SystemExit as end:
        if end.code:
            raise
print(time.process_time() - start)
"""


def measure_commands(folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Run every kind of command in a folder, and return the processor time of each and, of that, its overhead.

    What a command takes again in the same process is its work, and the rest its overhead; starting the engine that
    draws charts is overhead, as it is done once. Commands that cannot be repeated have next to no work here, and all
    counts as overhead, or their work is that of a command that does the same. Bytecode is written before, as an
    installation does.
    """
    compileall.compile_dir(str(Path(fairpremium.__file__).parent), quiet=1)
    write_files(folder)
    whole = {name: processor_seconds(folder, words) for name, words in commands_of(ALONE)}
    work = {name: repeated_seconds(folder, words) for name, words in commands_of(ALONE) if words[0] in REPEATED}
    work |= {name: repeated_seconds(folder, words.split()) for name, words in SAME_WORK.items()}
    with Service(folder) as service:
        for name, words in commands_of(PARTIES, service=service.address):
            whole[name] = processor_seconds(folder, words, service.address)
    whole["serve"] = service.seconds
    whole |= {name: processor_seconds(folder, words) for name, words in commands_of(AFTERWARDS)}
    return whole, {name: seconds - work.get(name, 0.0) for name, seconds in whole.items()}


def commands_of(text: str, service: str = "") -> Iterator[tuple[str, list[str]]]:
    """The commands of a text, and their names."""
    for line in text.strip().splitlines():
        name, _, words = line.strip().partition(": ")
        yield name, words.format(**OPTIONS, service=service).split()


def processor_seconds(folder: Path, words: list[str], service: str = "") -> float:
    """Run a command to its end, and return what it and its processes took of the processor."""
    with subprocess.Popen(
        [*COMMAND, *words],
        cwd=folder,
        env=environment(service),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        said = process.stderr.read().decode()
        return ended(process, f"{' '.join(words)}: {said}")


def ended(process: subprocess.Popen[bytes], told: str) -> float:
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"fairpremium {told}")
    return used.ru_utime + used.ru_stime


def repeated_seconds(folder: Path, words: list[str]) -> float:
    """Run a command twice in one process, and return what the second time took of the processor."""
    command = [sys.executable, "-P", "-c", TWICE, *words]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=True)
    return float(done.stdout)


def environment(service: str = "") -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("FAIRPREMIUM_")}
    ours |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    ours["FAIRPREMIUM_COLLECTOR"] = "at-the-service" if service else "alone"  # ledgers of their own
    return ours | ({"FAIRPREMIUM_SERVICE": service} if service else {})


class Service:
    """The service of a folder with one worker; after it has ended, what starting and serving took of the processor."""

    def __init__(self, folder: Path):
        words = ("serve", "--port", "0", "--with-parent", "--collect", "--json", "--log-level", "error")
        self._process = subprocess.Popen(
            [*COMMAND, *words], cwd=folder, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.address = str(json.loads(self._process.stdout.readline())["service"])
        with Path(f"/proc/{self._process.pid}/stat").open() as file:
            fields = file.read().rpartition(")")[2].split()
        self.seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        ended(self._process, "serve")


def write_files(folder: Path) -> None:
    rng = np.random.default_rng(1)
    portfolio = zhang_liu_shi_2025(n=ROWS, rng=0)
    reports = RandomizedResponse(portfolio.groups, keep=0.8).privatize(portfolio.sensitive, rng=rng)
    table = portfolio.X.assign(policy=[f"P{i:05d}" for i in range(ROWS)])
    table.assign(sex=portfolio.sensitive)[["policy", "sex"]][10:].to_csv(folder / "people.csv", index=False)
    table[["policy"]][:10].to_csv(folder / "invited.csv", index=False)
    priced = table.assign(y=portfolio.y.round(2))
    priced.to_csv(folder / "priced.csv", index=False)
    claims = rng.poisson(0.8, ROWS)
    priced.assign(report=reports, premium=priced["y"].mean()).to_csv(folder / "prices.csv", index=False)
    table.drop(columns="policy").assign(
        report=reports,
        y=priced["y"],
        n=claims,
        paid=rng.gamma(2.0 * claims, 200.0).round(2),
        years=rng.uniform(0.5, 1, ROWS).round(3),
    ).to_csv(folder / "portfolio.csv", index=False)
    texts = {"en": {"question": "Your sex?", "groups": ["Female", "Male"], "purpose": "Fair prices."}}
    (folder / "question.json").write_text(json.dumps({"collector": "App Ltd", "texts": texts}))
    (folder / "password").write_text("correct horse battery staple\n")
