"""Rows that match no report: said as such, from the second draw alone, before the fit itself is charged."""

import numpy as np
import pandas as pd
import pytest
from sqlalchemy import select

from fairpremium.parties.protocol import LinkageSecret, ReleaseRules
from fairpremium.parties.service._leases import LeaseLost, acquire_lease, release_lease
from fairpremium.parties.service._run_fit import run_fit
from fairpremium.parties.service._worker import work_once
from fairpremium.parties.store.schema import releases
from helpers import wire

ROWS = 1500
RELEASE = ReleaseRules(epsilon=3.6, fit_epsilon=1.0, randomized_epsilon=2.0)


@pytest.fixture
def world(tmp_path):
    with wire.World(tmp_path / "third-party") as world:
        world.declare(release=RELEASE)
        world.secret, world.other = LinkageSecret(bytes(32)), LinkageSecret(bytes(range(32)))
        rng = np.random.default_rng(5)
        group = rng.choice(["F", "M"], ROWS)
        frame = pd.DataFrame({"age": rng.uniform(-1, 1, ROWS), "policy": [f"{i:06d}" for i in range(ROWS)]})
        frame["y"] = 3 + frame["age"] + (group == "F") + rng.normal(size=ROWS)
        world.frame = frame
        keys = wire.make_keys(world.secret, frame["policy"]).to_pylist()
        body = wire.write_batch(keys, pd.Series(wire.CHANNEL.privatize(group)), ["F", "M"], wire.CHANNEL)
        assert world.ask("app", "PUT", "/v1/studies/motor/report-parts/0", body, wire.BATCH).status == 200
        yield world


def upload(world, name, frame, secret):
    roles = {"study": "motor", "policy": "policy", "outcome": "y"}
    return world.client("acme").upload(frame, portfolio=name, secret=secret, **roles)


def fit(world, name, portfolio, **more):
    world.fit("acme", name, portfolio, **{"release": "gaussian", **more})
    assert work_once(world.context)
    return world.ask("acme", "GET", f"/v1/fits/{name}").json()


def spent(world):
    return world.ask("acme", "GET", "/v1/studies/motor").json()["spent"]["epsilon"]


def charges(world):
    rows = world.context.database.read(lambda c: c.execute(select(releases)).all())
    return {row.fit: (row.mechanism, row.epsilon) for row in rows}


def without_zeros(frame):
    return frame.assign(policy=frame["policy"].str.lstrip("0").str.replace("^$", "none", regex=True))


@pytest.mark.parametrize("release", ["gaussian", "randomized"])
def test_another_secret_is_said_as_such_and_costs_what_the_corrected_fit_pays_anyway(world, release):
    upload(world, "wrong", world.frame, world.other)
    failed = fit(world, "a", "wrong", release=release)
    assert failed["state"] == "failed"
    assert failed["problem"]["type"] == "urn:fairpremium:problem:no-match"
    for words in ("no rows of the portfolio have a report", "of 1,500 rows", "linkage secret", "leading zeros"):
        assert words in failed["problem"]["title"]
    assert failed["matched"] is None
    assert spent(world) == RELEASE.randomized_epsilon  # the second draw of the epoch, and no model
    upload(world, "right", world.frame, world.secret)
    assert fit(world, "b", "right", release=release)["state"] == "succeeded"
    with_the_mistake = spent(world)
    assert fit(world, "c", "right", release=release)["state"] == "succeeded"  # the same again
    assert spent(world) == with_the_mistake
    assert with_the_mistake == pytest.approx(3.0 if release == "gaussian" else 2.0)


def test_leading_zeros_that_one_side_drops(world):
    upload(world, "wrong", without_zeros(world.frame), world.secret)
    assert fit(world, "a", "wrong")["problem"]["type"].endswith(":no-match")


def test_the_same_answer_again_and_again_for_nothing(world):
    upload(world, "wrong", world.frame, world.other)
    first, again = (fit(world, name, "wrong") for name in ("a", "again"))
    assert first["problem"] == again["problem"]
    assert charges(world) == dict.fromkeys(("a", "again"), ("randomized", RELEASE.randomized_epsilon))
    assert spent(world) == RELEASE.randomized_epsilon


def test_the_count_is_charged_before_it_is_made_and_stays_charged(world, monkeypatch):
    from fairpremium.parties.service import _run_fit

    def stops(*args, **kwargs):
        assert charges(world) == {"a": ("randomized", RELEASE.randomized_epsilon)}
        raise LeaseLost

    upload(world, "right", world.frame, world.secret)
    world.fit("acme", "a", "right", release="gaussian")
    lease = world.context.database.write(lambda c: acquire_lease(c, world.context))
    with monkeypatch.context() as patched:
        patched.setattr(_run_fit, "_check_matches", stops)
        with pytest.raises(LeaseLost):
            run_fit(world.context, lease)
    world.ask("acme", "POST", "/v1/fits/a/cancel")
    world.context.database.write(lambda c: release_lease(c, world.context, lease))
    assert world.ask("acme", "GET", "/v1/fits/a").json()["state"] == "cancelled"
    assert charges(world) == {"a": ("randomized", RELEASE.randomized_epsilon)}


def test_a_second_attempt_takes_nothing_back_of_what_the_first_one_paid(world, monkeypatch):
    """A fit that was killed after its sums were made, and is cancelled while it counts again, has paid for the sums."""
    from fairpremium.parties.service import _run_fit

    def stops(*args, **kwargs):
        raise LeaseLost

    upload(world, "right", world.frame, world.secret)
    world.fit("acme", "a", "right", release="gaussian")
    for step in ("fit_release", "_check_matches"):
        lease = world.context.database.write(lambda c: acquire_lease(c, world.context))
        with monkeypatch.context() as patched:
            patched.setattr(_run_fit, step, stops)
            with pytest.raises(LeaseLost):
                run_fit(world.context, lease)
        world.context.database.write(lambda c, lease=lease: release_lease(c, world.context, lease))
        assert charges(world) == {"a": ("gaussian", RELEASE.fit_epsilon)}


def test_where_rule_9_is_off_nothing_is_counted_and_rule_1_refuses(world):
    world.declare("marine", release=None, collectors=("app2",), insurers=("other",))
    roles = {"study": "marine", "policy": "policy", "outcome": "y", "secret": world.other}
    world.client("other").upload(world.frame, portfolio="wrong", **roles)
    world.fit("other", "a", "wrong", study="marine")
    assert work_once(world.context)
    refused = world.ask("other", "GET", "/v1/fits/a").json()
    assert (refused["state"], refused["refusal"]["rule"]) == ("refused", 1)
