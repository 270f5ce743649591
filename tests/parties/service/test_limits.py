"""What the third party keeps to itself and within bounds: modes of files, storage, processes of fits and readers."""

import io
import multiprocessing
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks._service_attacks import LOOSE, Service
from fairpremium.parties.protocol import FitSpec
from fairpremium.parties.protocol import _portfolio_part as portfolio_part
from fairpremium.parties.protocol._safe_files import restrict_access
from fairpremium.parties.service import ServiceLimits, ThirdParty, _run_fit
from fairpremium.parties.service import _worker as worker_module
from fairpremium.parties.service.operations import Heartbeat
from fairpremium.privacy import PrivacyLedger
from helpers import wire


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


def test_a_folder_that_others_made_is_closed_to_others(tmp_path, caplog):
    folder = tmp_path / "third-party"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    program = "import os, sys; from fairpremium.parties.service import ThirdParty; os.umask(0o022)"
    command = f"{program}; ThirdParty(sys.argv[1]).close()"
    subprocess.run([sys.executable, "-c", command, str(folder)], check=True, capture_output=True)
    assert mode(folder) == 0o700
    assert (folder / "fairpremium.sqlite").exists()
    for path in folder.rglob("*"):
        allowed = 0o644 if path.name == "service.key.pub" else 0o700 if path.is_dir() else 0o600
        assert mode(path) == allowed, path


def test_files_of_a_fit_that_runs_are_for_their_owner(tmp_path, monkeypatch):
    """Whatever the umask: files of a large portfolio have the reports as they are stored, until they get noise."""
    seen = set()
    record = _run_fit.record_progress

    def look(*args):
        for path in tmp_path.rglob(".fit-*"):
            seen.update((each.relative_to(path.parent).name, mode(each)) for each in (path, *path.rglob("*")))
        return record(*args)

    monkeypatch.setattr(_run_fit, "record_progress", look)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"policy": [f"P{i}" for i in range(2400)], "x": rng.normal(size=2400)})
    before = os.umask(0)
    try:
        with Service(tmp_path / "third-party", limits=ServiceLimits(memory_rows=100)) as service:
            service.declare(rules=LOOSE)
            service.submit(frame["policy"], rng.choice(["F", "M"], 2400))
            service.upload(frame.assign(y=frame["x"] + rng.normal(size=2400)), "p1")
            assert service.fit("f1", "p1", release="gaussian", correction="inverse").state == "succeeded"
    finally:
        os.umask(before)
    names = {name for name, _ in seen}
    assert {"joined", "000000.parquet", "premiums.parquet"} <= names
    assert any(name.endswith(".json") for name in names)
    assert {rights & 0o077 for _, rights in seen} == {0}, seen


def test_a_database_that_others_can_read_is_closed_at_the_start(tmp_path, caplog):
    folder = tmp_path / "third-party"
    ThirdParty(folder).close()
    for path in (folder, folder / "fairpremium.sqlite"):
        path.chmod(0o755)
    ThirdParty(folder).close()
    assert mode(folder / "fairpremium.sqlite") == 0o700 & 0o755
    assert mode(folder) == 0o700
    assert "fairpremium.sqlite" in caplog.text


def test_all_files_of_a_folder_that_was_opened_are_closed_at_the_start(tmp_path, caplog):
    folder = tmp_path / "third-party"
    third_party = ThirdParty(folder)
    third_party.context.files.put(b"a part of a portfolio")
    Heartbeat(third_party.context).beat()
    third_party.close()
    (folder / "files" / ".fit-1").mkdir()
    (folder / "files" / ".fit-1" / "000000.parquet").touch()
    below = [path for name in ("files", "workers") for path in (folder / name).rglob("*")]
    assert len(below) >= 4
    for path in (folder, folder / "files", folder / "workers", *below):
        path.chmod(0o755 if path.is_dir() else 0o644)
    ThirdParty(folder).close()
    for path in folder.rglob("*"):
        assert mode(path) == (0o644 if path.name == "service.key.pub" else 0o700 if path.is_dir() else 0o600), path
    for told in ("third-party", "files", "files/*", "workers", "workers/*"):
        assert f"file={told}\n" in caplog.text
    caplog.clear()
    ThirdParty(folder).close()
    assert "file.restricted" not in caplog.text


def test_a_file_of_another_user_is_an_error_that_says_what_helps(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.touch(mode=0o644)

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr("os.chmod", refuse)
    with pytest.raises(PermissionError, match="run the command as its owner"):
        restrict_access(path)


def test_a_ledger_is_for_its_owner(tmp_path):
    path = tmp_path / "ledger.sqlite"
    path.touch(mode=0o644)
    path.chmod(0o644)
    with PrivacyLedger(path, budget=1.0):
        assert mode(path) == 0o600


def test_an_insurer_has_so_much_room_and_gets_it_back(tmp_path):
    spec = wire.portfolio_spec("motor")
    part = wire.portfolio_part(spec, 8, seed=1)
    with wire.World(tmp_path / "third-party", limits=ServiceLimits(stored_bytes=2 * len(part))) as world:
        world.declare()
        world.declare("marine", ("app2",), ("other",))

        def send(name, who="acme", study="motor"):
            body = wire.portfolio_spec(study).model_dump_json().encode()
            assert world.ask(who, "PUT", f"/v1/portfolios/{name}", body).status == 200
            return world.ask(who, "PUT", f"/v1/portfolios/{name}/parts/0", part, wire.PARQUET)

        assert [send(name).status for name in ("a", "b")] == [200, 200]
        refused = send("c")
        assert (refused.status, "storage" in refused.json()["title"]) == (409, True)
        assert send("a").status == 200  # what is there already takes no room
        assert send("d", "other", "marine").status == 200  # others have room of their own
        assert world.ask("acme", "DELETE", "/v1/portfolios/a").status in (200, 204)
        assert send("c").status == 200


def test_bundles_take_room_of_the_insurer(tmp_path):
    """The same fit under other names is free, and each has a bundle of its own."""
    part = wire.portfolio_part(wire.portfolio_spec(), 8, seed=1)
    with wire.World(tmp_path / "third-party", limits=ServiceLimits(stored_bytes=len(part) + 1000)) as world:
        world.declare()
        world.portfolio("acme", "p")

        def ask(name):
            spec = FitSpec(study="motor", portfolio="p")
            return world.ask("acme", "PUT", f"/v1/fits/{name}", spec.model_dump_json().encode())

        for name in ("f1", "f2"):
            assert ask(name).status == 200
            world.succeed(name.encode() * 300)
        refused = ask("f3")
        assert (refused.status, "storage" in refused.json()["title"]) == (409, True)
        assert ask("f1").status == 200  # what was asked for before
        body = wire.portfolio_spec().model_dump_json().encode()
        assert world.ask("acme", "PUT", "/v1/portfolios/q", body).status == 200
        assert world.ask("acme", "PUT", "/v1/portfolios/q/parts/0", part, wire.PARQUET).code == "quota"
        assert world.ask("acme", "DELETE", "/v1/portfolios/p").status in (200, 204)  # and the bundles of its fits
        assert world.ask("acme", "PUT", "/v1/portfolios/q/parts/0", part, wire.PARQUET).status == 200


def test_a_portfolio_has_so_many_rows(tmp_path):
    with wire.World(tmp_path / "third-party", limits=ServiceLimits(portfolio_rows=12)) as world:
        world.declare()
        world.portfolio("acme", "p", seal=False, rows=8)

        def send(n, rows):
            part = wire.portfolio_part(wire.portfolio_spec(), rows, seed=5)
            return world.ask("acme", "PUT", f"/v1/portfolios/p/parts/{n}", part, wire.PARQUET)

        refused = send(1, 5)
        assert (refused.status, "rows of a portfolio" in refused.json()["title"]) == (409, True)
        assert send(1, 4).status == 200
        assert world.ask("acme", "POST", "/v1/portfolios/p/seal").json()["rows"] == 12


_SEAL = """
import resource, sys
from fairpremium.parties.service import ThirdParty
from fairpremium.parties.service._context import Party
party, who = ThirdParty(sys.argv[1]), Party("acme", "insurer")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(party.seal_portfolio(who, "p").rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
party.close()
"""


def test_sealing_takes_no_memory_of_the_web_process(tmp_path):
    """Two parts of three million rows: their keys alone have 96 MB."""
    rows, rng = 3_000_000, np.random.default_rng(1)
    spec = wire.portfolio_spec()
    columns = {name: pa.array(np.zeros(rows, dtype=np.int8)) for name in [column.name for column in spec.columns]}
    with wire.World(tmp_path / "third-party") as world:
        world.declare()
        assert world.ask("acme", "PUT", "/v1/portfolios/p", spec.model_dump_json().encode()).status == 200
        for n in range(2):
            keys = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(rng.bytes(16 * rows))])
            sink = io.BytesIO()
            pq.write_table(pa.table({spec.key: keys, **columns}), sink, use_dictionary=False, compression="lz4")
            part = f"/v1/portfolios/p/parts/{n}"
            assert world.ask("acme", "PUT", part, sink.getvalue(), wire.PARQUET).status == 200
    command = [sys.executable, "-c", _SEAL, str(tmp_path / "third-party")]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert int(found[0]) == 2 * rows
    assert int(found[1]) < 30_000  # KiB


def _find_limits(answer):
    worker_module._limit_process(ServiceLimits(fit_memory=3 * 2**30, fit_seconds=77))
    answer.put([resource.getrlimit(which)[0] for which in (resource.RLIMIT_DATA, resource.RLIMIT_CPU)])
    try:
        bytearray(4 * 2**30)
        answer.put("got it")
    except MemoryError:
        answer.put("no memory")


def test_the_process_of_a_fit_has_limits():
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=_find_limits, args=(answer,))
    process.start()
    assert answer.get(timeout=60) == [3 * 2**30, 77]
    assert answer.get(timeout=60) == "no memory"
    process.join()


def test_readers_of_files_get_no_secret(monkeypatch):
    monkeypatch.setenv("FAIRPREMIUM_DATABASE", "postgresql://me:CANARY@host/name")
    reader = portfolio_part._Reader()
    try:
        environment = Path(f"/proc/{reader._process.pid}/environ").read_bytes()
    finally:
        reader.close()
    assert b"CANARY" not in environment
    assert {item.partition(b"=")[0].decode() for item in environment.split(b"\0") if item} <= set(portfolio_part._SMALL)
