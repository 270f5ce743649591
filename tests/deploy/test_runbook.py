"""The commands of the runbook, in the order of the page: real processes, nginx in front, a disk that runs full.

Comments of the page say what happens between the steps (`<!-- happens: ... -->`); this file does it.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from fairpremium.parties import new_key, new_secret
from fairpremium.parties.protocol import write_key, write_secret
from fairpremium.portfolios import zhang_liu_shi_2025
from helpers import containers, units
from helpers.certificates import Authority
from helpers.ports import free_port
from helpers.postgres import find_programs
from helpers.proxy import find_nginx, running_proxy

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guide" / "runbook.md"
STEP = re.compile(
    r"^(?P<only><!-- with PostgreSQL -->\n)?```bash\n(?P<commands>.*?)^```$|^<!-- happens: (?P<event>[^\n]*) -->$",
    re.MULTILINE | re.DOTALL,
)
KEYS = ("operator", "app", "acme", "acme-new", "acme-newer")
DISK = "900m"  # the reserve and some more
ROWS = 600

UPLOAD = "fairpremium insurer upload portfolio.csv --study motor --policy policy --outcome y --secret motor.secret"
FIT = "fairpremium insurer fit second --study motor --portfolio p2 --release randomized"
EVENTS = {
    "a study with a result": f"""
sleep 1.5  # a service that runs takes up new keys within a second
fairpremium study create motor --groups F,M --keep 0.8 --collector app --insurer acme --open --key operator.key
fairpremium collector submit people.csv --study motor --policy policy --column sex --secret motor.secret \\
    --reports reports.parquet --key app.key
{UPLOAD} --portfolio p1 --key acme.key
fairpremium insurer fit first --study motor --portfolio p1 --release randomized --key acme.key
fairpremium insurer fetch first -o bundle.zip --trust /var/lib/fairpremium/third-party/service.key.pub --key acme.key
""",
    "the folder is damaged": """
if [ "$DATABASE" = postgresql ]; then rm /var/lib/fairpremium/third-party/service.key; else
for file in /var/lib/fairpremium/third-party/fairpremium.sqlite*; do
    dd if=/dev/zero of="$file" bs=1024 seek=1 count=500 conv=notrunc status=none
done
fi
if fairpremium-admin log verify --folder /var/lib/fairpremium/third-party --bundle bundle.zip; then exit 9; fi
""",
    "clients work again": f"""
{UPLOAD} --portfolio p2 --key acme.key
fairpremium collector submit people.csv --study motor --policy policy --column sex --secret motor.secret \\
    --reports reports.parquet --key app.key
""",
    "both keys of acme work": """
sleep 1.5
fairpremium insurer show first --key acme.key
fairpremium insurer show first --key acme-new.key
""",
    "the disk is full": f"""
dd if=/dev/zero of=/var/lib/fairpremium/filler bs=64k status=none || true
if {UPLOAD} --portfolio p3 --key acme.key; then exit 9; fi
systemctl is-active fairpremium
""",
    "the disk is larger": "rm /var/lib/fairpremium/filler",
    "a worker dies": f"""
systemctl stop fairpremium-worker@1 fairpremium-worker@2
echo "FAIRPREMIUM_STOP_AT=fit.before_publish" >> /etc/fairpremium/service.conf
systemctl start fairpremium-worker@1
{FIT} --no-wait --key acme.key
until fairpremium insurer show second --json --key acme.key | grep -q '"state": "running"'; do sleep 0.5; done
systemctl kill fairpremium-worker@1
sed -i /STOP_AT/d /etc/fairpremium/service.conf
systemctl start fairpremium-worker@2
""",
    "the fit of the lost worker ends": f"{FIT} --key acme.key",
    "the leaked key is refused": """
sleep 1.5
if fairpremium insurer show first --key acme-new.key; then exit 9; fi
fairpremium insurer show first --key acme-newer.key
""",
}


def steps(database: str) -> list[tuple[str, str]]:
    """The steps of the page and what happens between them, as (where, commands); with PostgreSQL those to a restore."""
    text = PAGE.read_text(encoding="utf-8")
    if database == "postgresql":
        text = text[: text.index("## Rotate keys")]
    found = []
    for match in STEP.finditer(text):
        if match["only"] and database != "postgresql":
            continue
        line = text.count("\n", 0, match.start()) + 1
        found.append((f"line {line}", EVENTS[match["event"]] if match["event"] else match["commands"]))
    return found


def test_the_page_has_every_procedure():
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        "Start", "Stop", "Back up", "Upgrade", "Restore", "Rotate keys", "A full disk", "A lost worker", "A leaked key",
    ]  # fmt: skip
    assert {match["event"] for match in STEP.finditer(text)} - {None} == set(EVENTS)
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert all(re.search(r"^```bash$", section, re.MULTILINE) for section in sections)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request):
    """The kind of database, and the server if it needs one, with a database as deploy/postgres-roles.sql makes it."""
    if request.param == "sqlite":
        yield "sqlite", None
        return
    server = request.getfixturevalue("postgres")
    server.execute("CREATE DATABASE fairpremium TEMPLATE template0")
    yield "postgresql", server
    for name in ("fairpremium", "fairpremium_damaged"):
        server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def test_the_steps_of_the_runbook_work(tmp_path, database):
    kind, server = database
    containers.require_programs()
    find_nginx()
    inner, port = free_port(), free_port()
    authority = Authority(tmp_path / "tls")
    authority.issue("localhost")
    places = {name: tmp_path / name for name in ("state", "etc", "backups", "bin", "units", "run", "work")}
    for place in places.values():
        place.mkdir(mode=0o700)
    keys = {name: new_key() for name in KEYS}

    def localize(text: str) -> str:
        """Put other places, names and ports into a text."""
        changes = {
            "/usr/local/lib/fairpremium/bin/fairpremium": str(places["bin"] / "fairpremium"),
            "%S/fairpremium": str(places["state"]),
            "/var/lib/fairpremium": str(places["state"]),
            "/etc/fairpremium": str(places["etc"]),
            "/var/backups/fairpremium": str(places["backups"]),
            "/usr/local/src": str(places["work"] / "src"),
            "https://fair.example": f"https://localhost:{port}",
            "fair.example": f"localhost:{port}",
            "8350": str(inner),
            "ed25519-0123456789abcdef": keys["acme-new"].key_id,
        }
        for old, new in changes.items():
            text = text.replace(old, new)
        return text

    _install(places, localize, server)
    _write_parties(places["work"], keys)
    script = f"set -eu -o pipefail\nmount -t tmpfs -o size={DISK},mode=0700 tmpfs {places['state']}\n"
    for where, commands in steps(kind):
        script += f"echo '== {where}'\n{localize(commands)}\n"
    environment = {
        "PATH": f"{places['bin']}:{os.environ['PATH']}",
        "HOME": str(places["work"]),
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "DATABASE": kind,
        "UNITS": str(places["units"]),
        "UNITS_RUN": str(places["run"]),
        "UNITS_STATE": str(places["state"]),
        "FAIRPREMIUM_USER": pwd.getpwuid(os.geteuid()).pw_name,
        "FAIRPREMIUM_SERVICE": f"https://localhost:{port}",
        "FAIRPREMIUM_AUTHORITY": str(authority.path),
        "FAIRPREMIUM_COLLECTOR": str(places["work"] / "collector"),
    }
    enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", script]
    with running_proxy(tmp_path / "tls", f"127.0.0.1:{inner}", port):
        done = subprocess.run(
            enter, cwd=places["work"], env=environment, capture_output=True, text=True, timeout=900, check=False
        )
    logs = "\n".join(f"{path.parent.name}: {path.read_text()[-1500:]}" for path in places["run"].glob("*/log"))
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}\n{logs}"
    assert done.stdout.count("== line") == len(steps(kind))
    assert "Traceback" not in done.stderr
    assert not list(places["state"].iterdir())  # all of it was on the disk of its own


def _install(places: dict[str, Path], localize, server) -> None:
    """What deployment.md installs, with the program of this checkout."""
    program = f'#!/bin/sh\nPYTHONPATH={ROOT / "src"} exec {sys.executable} -P -m fairpremium "$@"\n'
    _script(places["bin"] / "fairpremium", program)
    _script(places["bin"] / "systemctl", f'#!/bin/sh\nexec {sys.executable} {units.__file__} "$@"\n')
    _script(places["bin"] / "fairpremium-admin", localize((ROOT / "deploy" / "fairpremium-admin").read_text()))
    for unit in (ROOT / "deploy" / "systemd").glob("*.service"):
        (places["units"] / unit.name).write_text(localize(unit.read_text(encoding="utf-8")), encoding="utf-8")
    conf = localize("FAIRPREMIUM_NAME=fair.example\n")
    if server is not None:
        where = f"127.0.0.1:{server.port}/fairpremium"
        conf += f"FAIRPREMIUM_DATABASE=postgresql://fairpremium@{where}?connect_timeout=10&sslmode=prefer\n"
        psql = f"{find_programs() / 'psql'} -X -h 127.0.0.1 -p {server.port} -U fairpremium -d postgres"
        _script(places["bin"] / "runuser", f'#!/bin/sh\nshift 4\nexec {psql} "$@"\n')  # -u postgres -- psql
    (places["etc"] / "service.conf").write_text(conf, encoding="utf-8")
    deploy = places["work"] / "src" / "fairpremium" / "deploy"
    deploy.mkdir(parents=True)  # test_clean_root.py and test_files.py run the real script
    _script(deploy / "install.sh", "#!/bin/sh\nexit 0\n")


def _script(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def _write_parties(folder: Path, keys: dict) -> None:
    """Keys, the secret of a study, people and a portfolio."""
    for name, key in keys.items():
        write_key(folder / f"{name}.key", key)
    write_secret(folder / "motor.secret", new_secret())
    book = zhang_liu_shi_2025(n=ROWS, rng=1, age_band=True)
    policy = [f"P{i}" for i in range(ROWS)]
    pd.DataFrame({"policy": policy, "sex": book.sensitive}).to_csv(folder / "people.csv", index=False)
    book.X.assign(policy=policy, y=book.y).to_csv(folder / "portfolio.csv", index=False)
