"""The test of the assumption about sources: its level, its power, and what a fit says."""

import numpy as np
import pytest
from scipy.stats import binom

from fairpremium import Channel, DiscriminationFreePricer, RandomizedResponse, check_sources
from fairpremium.errors import SourcesDependWarning
from fairpremium.privacy import KeyedChannels

CHANNELS = KeyedChannels(
    {
        "app": RandomizedResponse(["F", "M"], epsilon=1.0),
        "broker": Channel([[0.8, 0.3], [0.2, 0.7]], groups=["F", "M"]),
        "staff": None,
    }
)


def sample(seed, n=600, by_outcome=0.0, by_group=0.0, missing=0.1):
    """Sources that depend on x by a bent logit, and on the outcome or the attribute if asked for."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    D = (rng.random(n) < 1 / (1 + np.exp(0.5 - x[:, 0]))).astype(int)
    y = rng.gamma(1.0, np.exp(0.3 * x[:, 1] + 0.6 * D))
    logit = 0.5 * x[:, 0] + 0.4 * x[:, 1] ** 2 + by_outcome * (y - y.mean()) / y.std() + by_group * (D - 0.5)
    keys = np.where(rng.random(n) < 1 / (1 + np.exp(-logit)), "app", rng.choice(["broker", "staff"], n))
    S = np.array(CHANNELS.privatize(np.array(["F", "M"])[D], keys, rng=seed), dtype=object)
    S[rng.random(n) < missing] = None
    return {"X": x, "y": y, "sensitive": S, "channel": CHANNELS, "channel_key": keys}


def test_false_alarms_have_their_level():
    found = [check_sources(**sample(seed), level=0.9) for seed in range(60)]
    alarms = sum(check.rejected for check in found)
    assert alarms <= binom.isf(1e-3, 60, 0.1)
    p = np.array([check.table["p_value"] for check in found])
    assert (np.abs(p.mean(axis=0) - 0.5) < 3.5 / np.sqrt(12 * 60)).all()  # those of either test are uniform


@pytest.mark.parametrize("violation, test", [({"by_outcome": 0.8}, "outcome"), ({"by_group": 2.0}, "attribute")])
def test_violations_are_seen_and_named(violation, test):
    found = [check_sources(**sample(seed, 1500, **violation)) for seed in range(4)]
    assert all(check.rejected for check in found)
    assert found[0].table.set_index("test")["p_value"].idxmin() == test
    assert f"depends on the {test} beyond the features" in str(found[0])


def test_reporting_is_a_source_of_one_channel():
    rng = np.random.default_rng(0)
    data = sample(0, 2000, missing=0.0)
    channel = CHANNELS["app"]
    data["sensitive"] = np.where(rng.random(2000) < 0.5 * (data["y"] > 1), None, channel.privatize(["F"] * 2000, rng=0))
    found = check_sources(**{**data, "channel": channel, "channel_key": None})
    assert found.rejected
    assert found.table["test"].tolist() == ["outcome"]


def test_a_fit_warns_and_stays_silent_otherwise():
    data = sample(1, 1500, by_outcome=1.0, missing=0.0)
    pricer = DiscriminationFreePricer(channel=data.pop("channel"), correction="inverse", intervals=False)
    with pytest.warns(SourcesDependWarning, match="depends on the outcome"):
        pricer.fit(**data)
    data = sample(1, 1500, missing=0.0)
    data.pop("channel")
    pricer.fit(**data)


def test_nothing_to_compare():
    data = sample(0, 300, missing=0.0)
    with pytest.raises(ValueError, match="fewer than two sources"):
        check_sources(**{**data, "channel_key": np.repeat("app", 300)})
