"""A folder that 0.1.0 wrote is opened by this version, with nothing lost, whatever interrupts it.

``data/0.1.0/third-party.zip`` was written by that version: a study, reports in batches and one by one, a portfolio, a
fit that is done and one that waits. ``reported.json`` in it has the report of each key.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from fairpremium.parties import load_bundle, read_public_key
from fairpremium.parties.protocol import Problem, as_keys
from fairpremium.parties.service import Accounts, Logins, Party, ThirdParty
from fairpremium.parties.service.reports import open_snapshot
from fairpremium.parties.store import schema, sqlite_url
from helpers.quick_fits import AT_ONCE

ZIP = Path(__file__).parents[2] / "data" / "0.1.0" / "third-party.zip"
OPERATOR, INSURER, COLLECTOR = Party("op", "operator"), Party("acme", "insurer"), Party("app", "collector")


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path):
    """The folder of 0.1.0, and the address of its database."""
    folder = tmp_path / "third-party"
    with zipfile.ZipFile(ZIP) as archive:
        archive.extractall(folder)
    for key in folder.glob("*.key"):
        key.chmod(0o600)
    if request.param == "sqlite":
        return folder, None
    url = request.getfixturevalue("postgres_url")
    _copy_tables(sqlite_url(folder / "fairpremium.sqlite"), url)
    return folder, url


def _copy_tables(source, target):
    """Make the tables of a database in another one, with their rows."""
    old, new = sa.create_engine(source), sa.create_engine(target.replace("postgresql://", "postgresql+psycopg://"))
    found = sa.MetaData()
    found.reflect(old)
    for table in found.sorted_tables:
        for column in table.columns:
            column.type = column.type.as_generic()
    found.create_all(new)
    with old.connect() as reading, new.begin() as writing:
        for table in found.sorted_tables:
            rows = [dict(row._mapping) for row in reading.execute(sa.select(table))]
            if rows:
                writing.execute(sa.insert(table), rows)
    old.dispose()
    new.dispose()


def version_of(place):
    folder, url = place
    address = sqlite_url(folder / "fairpremium.sqlite") if url is None else url
    engine = sa.create_engine(address.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        found = connection.execute(sa.text("SELECT value FROM meta WHERE name = 'schema_version'")).scalar()
    engine.dispose()
    return int(found)


def opened(place):
    folder, url = place
    return ThirdParty(folder, database=url, limits=AT_ONCE)


def test_nothing_is_lost(place, tmp_path):
    assert version_of(place) == 2
    folder, _ = place
    party = opened(place)
    assert version_of(place) == schema.SCHEMA_VERSION
    assert party.verify_log().intact
    party.begin_epoch(OPERATOR, "motor", 1)
    reported = json.loads((folder / "reported.json").read_text())
    find = party.context.database.read(lambda c: open_snapshot(c, party.context, "motor", 1, "app"))
    keys = [bytes.fromhex(key) for key in reported]
    codes = find(as_keys(keys))
    assert ["FM"[code] if code >= 0 else None for code in codes] == list(reported.values())
    assert (find(as_keys([bytes(16)])) == -1).all()
    done = party.get_fit(INSURER, "done")
    assert (done.state, done.epoch) == ("succeeded", 0)
    path, sha256 = party.get_bundle(INSURER, "done")
    assert sha256 == done.sha256
    bundle = load_bundle(path, keys=[read_public_key(folder / "service.key.pub")])
    assert np.isfinite(bundle.premiums.to_pandas()["premium"]).all()
    assert party.work() == 1  # what waited is done, in the epoch that has begun
    assert (party.get_fit(INSURER, "waits").state, party.get_fit(INSURER, "waits").epoch) == ("succeeded", 1)
    spent = party.get_study(INSURER, "motor").spent
    assert spent.epsilon == pytest.approx(4.0)  # the second randomization before there were epochs, and in the first
    assert party.verify_log().intact
    party.close()
    again = opened(place)
    assert again.get_fit(INSURER, "waits").state == "succeeded"
    again.close()


def test_a_batch_that_was_taken_before_is_known_and_its_digest_is_gone(place):
    folder, _ = place
    party = opened(place)
    sent = party.context.database.read(lambda c: c.execute(sa.select(schema.sent_batches)).all())
    plain = {
        row.sha256 for row in party.context.database.read(lambda c: c.execute(sa.select(schema.batch_files)).all())
    }
    assert sent
    assert not plain & {row.sha256 for row in sent}
    files = {schema.keyed_digest(secret, name): name for name in plain for secret in secrets_of(party)}
    for row in sent:
        body = (folder / "files" / files[row.sha256]).read_bytes()
        assert party.put_report_batch(COLLECTOR, row.study, row.n, body).rows == row.rows
        with pytest.raises(Problem) as refused:
            party.put_report_batch(COLLECTOR, row.study, row.n, body[:-1] + bytes([body[-1] ^ 1]))
        assert refused.value.code == "conflict"
    party.close()


def secrets_of(party):
    found = party.context.database.read(lambda c: c.execute(sa.select(schema.studies.c.secret)).scalars().all())
    return [bytes(secret) for secret in found]


def test_a_fit_that_waits_begins_the_first_epoch(place):
    party = opened(place)
    assert party.work() == 1
    assert party.get_fit(INSURER, "waits").epoch == 1
    party.close()


def test_an_upgraded_console_stays_open_until_it_has_accounts(place):
    party = opened(place)
    accounts, logins = Accounts(party.context), Logins(party.context)
    assert not accounts.has_some()
    accounts.add("ada", "operator", "an owl at noon and a cat")
    checked = accounts.check("ada", "an owl at noon and a cat")
    assert logins.find(logins.open("ada", checked, "10.0.0.1"), is_visit=True).role == "operator"
    assert party.verify_log().intact
    party.close()
    again = opened(place)
    assert [one.account for one in Logins(again.context).list()] == ["ada"]
    again.close()


@pytest.mark.parametrize("step", range(2, schema.SCHEMA_VERSION))
def test_an_interrupted_upgrade_begins_anew(place, step, monkeypatch):
    class InterruptedUpgradeError(Exception):
        pass

    real = schema._MIGRATIONS[step]

    def interrupt(connection):
        real(connection)
        raise InterruptedUpgradeError

    with monkeypatch.context() as patch:
        patch.setitem(schema._MIGRATIONS, step, interrupt)
        with pytest.raises(InterruptedUpgradeError):
            opened(place)
    assert version_of(place) == 2
    party = opened(place)
    assert party.verify_log().intact
    assert party.get_study(COLLECTOR, "motor").accepted is not None
    party.close()
    assert version_of(place) == schema.SCHEMA_VERSION


def test_a_newer_folder_is_refused_and_stays_as_it_is(place):
    opened(place).close()
    folder, url = place
    address = sqlite_url(folder / "fairpremium.sqlite") if url is None else url
    engine = sa.create_engine(address.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        newer = str(schema.SCHEMA_VERSION + 1)
        connection.execute(sa.text("UPDATE meta SET value = :newer WHERE name = 'schema_version'"), {"newer": newer})
    engine.dispose()
    with pytest.raises(schema.UnknownSchemaError, match=f"version {newer}"):
        opened(place)
    assert version_of(place) == int(newer)
