"""What must not be seen is nowhere to be seen: canaries in answers, files, tables and lines that are printed."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import zipfile
from contextlib import redirect_stderr

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select

from fairpremium.parties.protocol._linkage import make_key, new_secret
from fairpremium.parties.service._context import Party, ServiceLimits
from fairpremium.parties.service._worker import work, work_once
from fairpremium.parties.service.operations import LogSettings, write_log
from fairpremium.parties.store.schema import metadata, studies
from fairpremium.portfolios import zhang_liu_shi_2025
from helpers import wire

ROWS, REPORTED, SINGLE = 1203, 1013, 9  # 1022 reports in all


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """Reports in a batch and one by one, a portfolio, two fits that succeed and one that is refused."""
    folder = tmp_path_factory.mktemp("content")
    with (folder / "lines").open("w") as lines, redirect_stderr(lines), write_log(LogSettings("json", "debug")):
        world = tell_story(folder)
    world.lines = (folder / "lines").read_bytes()
    yield world
    world.close()


def tell_story(folder):
    world = wire.World(folder / "third-party")
    world.declare()
    world.declare("marine", ("app2",), ("other",))
    world.secret = new_secret()
    portfolio = zhang_liu_shi_2025(n=ROWS, rng=1, age_band=True)
    table = portfolio.X.copy()
    table["policy"] = [f"policycanary{i}" for i in range(ROWS)]
    table["y"] = portfolio.y
    reports = pd.DataFrame({"policy": table["policy"], "report": wire.CHANNEL.privatize(portfolio.sensitive)})
    collector, insurer = world.client("app"), world.client("acme")
    options = {"study": "motor", "secret": world.secret, "channel": wire.CHANNEL}
    collector.submit(reports[:REPORTED], **options, rows_per_batch=600)
    for i in range(REPORTED, REPORTED + SINGLE):
        collector.report("motor", world.secret, table["policy"][i], reports["report"][i], wire.CHANNEL)
    roles = {"study": "motor", "secret": world.secret, "policy": "policy", "outcome": "y"}
    insurer.upload(table, portfolio="p1", **roles, rows_per_part=700)
    spiked = table.assign(spike=0.0)
    spiked.loc[3, "spike"] = 1.0
    insurer.upload(spiked, portfolio="p2", **roles)
    world.fit("acme", "f1", "p1")
    world.fit("acme", "f2", "p1", release="randomized")
    world.fit("acme", "f3", "p2")
    while work_once(world.context):
        pass
    states = [world.ask("acme", "GET", f"/v1/fits/f{i}").json()["state"] for i in (1, 2, 3)]
    assert states == ["succeeded", "succeeded", "refused"]
    world.bundles = {name: world.ask("acme", "GET", f"/v1/fits/{name}/bundle").body for name in ("f1", "f2")}
    world.policies, world.reports = list(table["policy"]), reports
    return world


def spellings(value):
    """The ways in which bytes may be written down."""
    if isinstance(value, str):
        value = value.encode()
    return [value, value.hex().encode(), base64.b64encode(value).rstrip(b"=")[:-1], repr(value).encode()[2:-1]]


def secrets_of(world):
    """All that nobody outside may see, by name."""
    stored = world.context.database.read(lambda c: [bytes(row.secret) for row in c.execute(select(studies))])
    keys = [make_key(world.secret, policy) for policy in (world.policies[0], world.policies[500], world.policies[-1])]
    return {
        "policy number": [b"policycanary"],
        "key of a policy": [s for key in keys for s in spellings(key)],
        "linkage secret": spellings(world.secret._LinkageSecret__value),
        "secret of a study": [s for secret in stored for s in spellings(secret)],
        "private key": [s for key in [*world.keys.values(), world.context.key] for s in spellings(_private(key))],
    }


def _private(key):
    return key._SigningKey__key.private_bytes_raw()


def everything_seen(world):
    """All answers that any party can get, by what was asked."""
    seen = {}
    for who in world.roles:
        paths = ["/v1/studies", "/v1/studies/motor", "/v1/studies/marine", "/v1/log", "/v1/fits", "/v1/portfolios/p1"]
        paths += [f"/v1/fits/f{i}{end}" for i in (1, 2, 3) for end in ("", "/bundle")]
        for path in paths:
            answer = world.ask(who, "GET", path)
            if not path.endswith("/bundle") or answer.status != 200:
                seen[f"{who} {path}"] = answer.body + json.dumps(answer.headers).encode()
    for path in ("/v1/keys", "/v1/checkpoint", "/metrics", "/healthz", "/readyz", "/v1/openapi.json", "/",
                 "/console/log", "/console/studies/motor", "/console/studies/motor/fits/acme/f1",
                 "/console/studies/motor/fits/acme/f3"):  # fmt: skip
        answer = world.send(wire.Wire("GET", path.encode(), ((b"host", b"127.0.0.1:8350"),)))
        assert answer.status == 200, path
        seen[path] = answer.body
    return seen


def members(bundle):
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_secrets_are_in_no_answer_and_no_bundle(story):
    seen = everything_seen(story)
    assert len(seen) > 60
    for fit, bundle in story.bundles.items():
        for name, content in members(bundle).items():
            if name == "premiums.parquet":  # the insurer's own keys, and nothing else
                table = pq.read_table(io.BytesIO(content))
                keys = {make_key(story.secret, policy) for policy in story.policies}
                assert set(table.column("key").to_pylist()) == keys
                content = repr((table.drop_columns(["key"]).to_pydict(), table.schema.metadata)).encode()
            seen[f"{fit} {name}"] = content
    for place, content in seen.items():
        for what, values in secrets_of(story).items():
            assert not any(value in content for value in values), f"{what} in {place}"


def test_secrets_and_single_reports_are_in_no_line_of_the_operational_log(story):
    """All that happened was written at the level debug: fits and portfolios are there, reports are not."""
    for what, values in secrets_of(story).items():
        assert not any(value in story.lines for value in values), what
    lines = [json.loads(line) for line in story.lines.splitlines()]
    assert {line["event"] for line in lines} >= {"request", "fit.queued", "fit.succeeded", "fit.refused"}
    assert not [line for line in lines if "report" in line.get("route", "")]
    assert "app" not in {line.get("party") for line in lines if line.get("method") == "PUT"}  # it sent reports alone


def test_secrets_are_in_no_table_but_their_own(story):
    """Keys of policies in `reports` alone, secrets of studies in `studies` alone, other secrets in none."""
    allowed = {"reports": "key of a policy", "studies": "secret of a study"}
    secrets = secrets_of(story)
    for table in metadata.sorted_tables:
        rows = story.context.database.read(lambda c, t=table: [repr(tuple(r)) for r in c.execute(select(t))])
        content = "\n".join(rows).encode()
        for what, values in secrets.items():
            if allowed.get(table.name) != what:
                assert not any(value in content for value in values), f"{what} in {table.name}"
    keys = [f for f in story.folder.iterdir() if f.is_file() and "sqlite" not in f.name]
    assert {f.name for f in keys} == {"service.key", "service.key.pub"}
    assert (story.folder / "service.key").stat().st_mode & 0o077 == 0
    assert story.folder.stat().st_mode & 0o077 == 0


def test_the_log_tells_no_count_no_key_and_no_report(story):
    entries = story.ask("aud", "GET", "/v1/log").json()["entries"]
    assert {e["event"] for e in entries} >= {"epoch.begun", "epoch.sealed", "portfolio.sealed", "fit.refused"}
    for entry in entries:
        assert not entry["event"].startswith("report")  # a longer log would tell that somebody reported
        if entry["event"].startswith("epoch."):
            sealed = {"sealed"} if entry["event"] == "epoch.sealed" else set()
            assert set(entry["body"]) == {"study", "epoch"} | sealed
        if entry["event"] == "fit.refused":
            assert set(entry["body"]["refusal"]) == {"rule", "title", "limit", "column"}
        if entry["event"] == "fit.succeeded":
            assert set(entry["body"]) == {"fit", "sha256"}


def test_counts_of_reports_are_released_or_the_collectors_own(story):
    """1022 reports: no answer and no member of a bundle holds that number, or that of the 181 rows without one."""
    total = REPORTED + SINGLE
    number = rb"(?<![\d.,])(?:%d|1,022|%d)(?![\d.,]*\d)" % (total, ROWS - total)
    word = rb"(?i:report|polic|missing|match|rows)"
    exact = re.compile(rb"%b[^<>]{0,80}%b|%b[^<>]{0,80}%b" % (word, number, number, word))  # not a price
    assert story.ask("app", "GET", "/v1/studies/motor").json()["accepted"] == 1020
    (epoch,) = story.ask("op", "GET", "/v1/studies/motor").json()["epochs"]
    assert 0 < abs(epoch["reports"] - total) < 5 * epoch["standard_error"]
    matched = story.ask("acme", "GET", "/v1/fits/f1").json()["matched"]
    # The share without a report is estimated from second draws among three values with epsilon 2.
    keep, other = (weight / (math.exp(2) + 2) for weight in (math.exp(2), 1))
    error = math.sqrt(ROWS * 0.25) / (keep - other)
    assert abs(matched - total) < 5 * error
    for place, content in everything_seen(story).items():
        text = re.sub(rb"[0-9a-f]{32,}", b"", content)
        assert not exact.search(text), (place, exact.search(text))
    for fit, bundle in story.bundles.items():
        found = members(bundle)
        assert abs(json.loads(found["manifest.json"])["matched"] - total) < 5 * error
        model = json.loads(found["model.json"])
        told = {ROWS - missing for missing in _find(model, "missing_reports")}
        assert told
        assert all(reports % 5 == 0 for reports in told)  # estimated, where participation is hidden
        page = re.sub(rb"<(script|style|svg).*?</\1>", b"", found["report.html"], flags=re.S)
        shown = [int(number.replace(b",", b"")) for number in re.findall(rb"([\d,]+) of 1,203 policies", page)]
        assert shown
        assert all(number % 5 == 0 for number in shown)
        for name, content in (("page", page), ("manifest", found["manifest.json"])):
            assert not exact.search(re.sub(rb"[0-9a-f]{32,}", b"", content)), (fit, name, exact.search(content))


def _find(value, name):
    if isinstance(value, dict):
        return {v for k, v in value.items() if k == name} | set().union(*(_find(v, name) for v in value.values()))
    if isinstance(value, list):
        return set().union(*(_find(v, name) for v in value))
    return set()


def test_nothing_tells_which_policies_reported(story):
    """Rows with and without a report stand side by side in the same form, and only premiums have rows."""
    for bundle in story.bundles.values():
        found = members(bundle)
        table = pq.read_table(io.BytesIO(found["premiums.parquet"]))
        names = ["key", "premium", "low", "high", "unaware", "group F", "group M"]
        assert table.column_names == names
        assert table.num_rows == ROWS
        assert all(table.column(name).null_count == 0 for name in names)
        order = [make_key(story.secret, policy) for policy in story.policies]
        assert table.column("key").to_pylist() == order  # as they were sent, not those with a report first
        assert set(found) == {
            "manifest.json", "manifest.sig", "model.json", "premiums.parquet", "report.html", "selftest.parquet",
        }  # fmt: skip
        selftest = pq.read_table(io.BytesIO(found["selftest.parquet"]))
        assert selftest.num_rows == 64
        sent = {tuple(row.values()) for row in table.drop_columns(["key"]).to_pylist()}
        assert not sent & {tuple(row.values()) for row in selftest.to_pylist()}


def test_a_refusal_shows_the_rule_and_its_limit_only(story):
    seen = story.ask("acme", "GET", "/v1/fits/f3").json()
    assert set(seen["refusal"]) == {"rule", "title", "limit", "column"}
    assert seen["refusal"]["rule"] == 2
    assert seen["matched"] is None
    assert (seen["sha256"], seen["problem"]) == (None, None)
    assert story.ask("acme", "GET", "/v1/fits/f3/bundle").code == "not-finished"


# --- what processes print ---


@pytest.mark.parametrize("damage", [{"age": "valuecanary"}, {"key": "valuecanary"}])
def test_processes_print_no_value(tmp_path, caplog, capfd, damage):
    """A fit whose work fails in a library, and requests that fail: lines say where, not what."""
    with wire.World(tmp_path / "third-party") as world:
        world.declare()
        world.portfolio("acme", "p1", rows=40)
        world.fit("acme", "f1", "p1")
        path = world.context.files.path(min(world.context.files))
        frame = pq.read_table(path).to_pandas().assign(**damage)  # a file that was damaged at rest
        frame.to_parquet(path)
        work(world.folder, once=True, stop=_Enough(world))
        world.app.state.requests.party.context.database.close()
    out = "".join(capfd.readouterr()) + caplog.text
    assert "valuecanary" not in out
    assert "Traceback" not in out


class _Enough:
    """Stops a worker once the fit was tried twice."""

    def __init__(self, world):
        self._world = world

    def __call__(self):
        rows = self._world.third_party.list_fits(Party("acme", "insurer"))
        log = self._world.context.database.read(
            lambda c: c.execute(select(metadata.tables["log"].c.event)).scalars().all()
        )
        return rows[0].state not in ("queued", "running") or log.count("fit.started") > 1


# --- hostile Parquet over HTTP ---


def table_bytes(table, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def hostile():
    """Bodies for a part with the columns key, age, y; by what is wrong with them."""
    n = 20
    keys = pa.array([wire.policy_key("h", i) for i in range(n)], pa.binary(16))
    age, y = pa.array(np.arange(float(n))), pa.array(np.arange(float(n)))
    good = {"key": keys, "age": age, "y": y}
    bad_number = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf, "huge": 1e101}
    for name, value in bad_number.items():
        yield name, table_bytes(pa.table(good | {"age": pa.array([value, *range(1, n)], pa.float64())}))
        yield f"{name} outcome", table_bytes(pa.table(good | {"y": pa.array([value, *range(1, n)], pa.float64())}))
    yield "null", table_bytes(pa.table(good | {"age": pa.array([None, *range(1, n)], pa.float64())}))
    yield "null key", table_bytes(pa.table(good | {"key": pa.array([None, *keys.to_pylist()[1:]], pa.binary(16))}))
    yield "short keys", table_bytes(pa.table(good | {"key": pa.array([b"x"] * n, pa.binary(1))}))
    yield "text keys", table_bytes(pa.table(good | {"key": pa.array([f"valuecanary{i}" for i in range(n)])}))
    yield "text", table_bytes(pa.table(good | {"age": pa.array(["valuecanary"] * n)}))
    yield "list", table_bytes(pa.table(good | {"age": pa.array([[1.0]] * n)}))
    yield "struct", table_bytes(pa.table(good | {"age": pa.array([{"valuecanary": 1.0}] * n)}))
    yield "one column more", table_bytes(pa.table(good | {"valuecanary": age}))
    yield "one column less", table_bytes(pa.table({"key": keys, "y": y}))
    yield "no rows", table_bytes(pa.table(good).slice(0, 0))
    whole = table_bytes(pa.table(good))
    yield "cut off", whole[:-20]
    yield "cut in half", whole[: len(whole) // 2]
    yield "no end", whole + b"valuecanary"
    yield "only magic", b"PAR1PAR1"
    yield "footer of 4 GB", b"PAR1" + b"\0" * 50 + b"\xff\xff\xff\x7fPAR1"
    yield "empty", b""
    yield "no parquet", b"valuecanary" * 50
    zeros = pa.table({"key": pa.array([b"\0" * 16] * 5_000_001, pa.binary(16)), "age": np.zeros(5_000_001)})
    zeros = zeros.append_column("y", pa.array(np.zeros(5_000_001)))
    yield "bomb", table_bytes(zeros, compression="zstd")
    rng = np.random.default_rng(0)
    for i in range(12):  # bits flipped at random places
        broken = bytearray(whole)
        for at in rng.integers(4, len(broken), 6):
            broken[at] ^= 1 << rng.integers(8)
        yield f"damage {i}", bytes(broken)


def test_hostile_files_are_a_problem_and_the_service_lives(tmp_path, caplog, capfd):
    with wire.World(tmp_path / "third-party", limits=ServiceLimits(part_bytes=8 << 20)) as world:
        world.declare()
        spec = wire.portfolio_spec()
        world.ask("acme", "PUT", "/v1/portfolios/p", spec.model_dump_json().encode())
        tried = refused = 0
        for name, body in hostile():
            for who, target in (("acme", "/v1/portfolios/p/parts/0"), ("app", "/v1/studies/motor/report-parts/0")):
                before = set(world.context.files)
                answer = world.ask(who, "PUT", target, body, wire.PARQUET if who == "acme" else wire.BATCH)
                tried += 1
                if answer.status == 200 and name.startswith("damage") and who == "acme":
                    continue  # a flipped bit may make another good file
                assert 400 <= answer.status < 500, (name, who, answer)
                codes = ("bad-parquet", "bad-columns", "bad-values", "bad-keys") if who == "acme" else ("bad-batch",)
                assert answer.code in (*codes, "too-large"), name
                assert b"valuecanary" not in answer.body
                assert set(world.context.files) == before, name
                refused += 1
        assert refused > tried - 24
        files = [p.name for p in world.context.files.folder.iterdir() if p.name.startswith(".incoming")]
        assert not files
        good = wire.portfolio_part(spec)
        world.ask("acme", "PUT", "/v1/portfolios/q", spec.model_dump_json().encode())
        assert world.ask("acme", "PUT", "/v1/portfolios/q/parts/0", good, wire.PARQUET).status == 200
        assert world.ask("app", "PUT", "/v1/studies/motor/report-parts/9", wire.report_part(), wire.BATCH).status == 200
        assert world.third_party.verify_log().intact
    assert "valuecanary" not in caplog.text + "".join(capfd.readouterr())


@pytest.mark.parametrize("where", ["in a part", "between parts"])
def test_a_portfolio_with_repeated_keys_cannot_be_sealed(tmp_path, where):
    with wire.World(tmp_path / "third-party") as world:
        world.declare()
        world.portfolio("acme", "p", seal=False)
        again = wire.portfolio_part(wire.portfolio_spec(), 4, seed=1)
        if where == "in a part":
            rows = pq.read_table(io.BytesIO(wire.portfolio_part(wire.portfolio_spec(), 4, seed=7)))
            again = table_bytes(pa.concat_tables([rows, rows.slice(2, 1)]))
        taken = world.ask("acme", "PUT", "/v1/portfolios/p/parts/1", again, wire.PARQUET)
        if where == "in a part":
            assert taken.code == "bad-keys"
            return
        assert taken.status == 200
        assert world.ask("acme", "POST", "/v1/portfolios/p/seal").code == "bad-keys"
        assert world.ask("acme", "GET", "/v1/portfolios/p").json()["state"] == "open"


def test_reports_that_are_none(tmp_path):
    """Batches with unknown values, another channel, none, or repeated keys are refused as a whole."""
    with wire.World(tmp_path / "third-party") as world:
        world.declare()
        keys = [wire.policy_key("r", i) for i in range(10)]
        good = bytearray(wire.write_batch(keys, ["F"] * 10, ["F", "M"], wire.CHANNEL))
        unknown, unsorted, repeated = bytearray(good), bytearray(good), bytearray(good)
        unknown[-1] = 2
        unsorted[64:72], unsorted[72:80] = good[72:80], good[64:72]
        repeated[72:80] = good[64:72]
        repeated[152:160] = good[144:152]
        bodies = {
            "unknown value": bytes(unknown),
            "out of order": bytes(unsorted),
            "repeated": bytes(repeated),
            "cut off": bytes(good[:-1]),
            "no channel": wire.report_part(channel=None),
            "another channel": wire.report_part(channel=wire.RandomizedResponse(["F", "M"], keep=0.9)),
            "other groups": wire.write_batch(keys, ["F"] * 10, ["M", "F"], wire.CHANNEL),
        }
        for n, (name, body) in enumerate(bodies.items()):
            answer = world.ask("app", "PUT", f"/v1/studies/motor/report-parts/{n}", body, wire.BATCH)
            assert answer.status in (409, 422), (name, answer)
        assert world.ask("app", "GET", "/v1/studies/motor").json()["accepted"] is None
        assert not world.dump()["report_parts"]


def test_exceptions_and_reprs_hold_no_secret(story):
    """What a traceback or a debugger's line could show of the objects that hold secrets."""
    values = secrets_of(story)
    shown = [repr(o) for o in (story.context, story.context.key, story.secret, *story.keys.values(), story.settings)]
    with pytest.raises((TypeError, ValueError)) as caught:
        make_key(story.secret, None)
    shown.append(repr(caught.value))
    content = "\n".join(shown).encode()
    for what, found in values.items():
        assert not any(value in content for value in found), what


def test_a_body_that_takes_too_long_is_given_up(tmp_path):
    """Half a body comes, and then nothing: the request ends with an answer, and leaves no file."""
    with wire.World(tmp_path / "third-party", body_seconds=0.2) as world:
        world.declare()
        spec = wire.portfolio_spec()
        world.ask("acme", "PUT", "/v1/portfolios/p", spec.model_dump_json().encode())
        for who, target, body, kind in (
            ("app", "/v1/studies/motor/report-parts/0", wire.report_part(), wire.BATCH),
            ("acme", "/v1/portfolios/p/parts/0", wire.portfolio_part(spec), wire.PARQUET),
            ("app", f"/v1/studies/motor/reports/{wire.KEY}", wire.report(), wire.JSON),
        ):
            answer = world.send(world.sign(who, "PUT", target, body, kind), stop_after=len(body) // 2)
            assert (answer.status, answer.code) == (503, "unavailable")
            assert world.ask(who, "PUT", target, body, kind).status == 200
        assert not list(world.context.files.folder.glob(".incoming*"))
