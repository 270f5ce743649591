"""What long computations say about themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from fairpremium import DiscriminationFreePricer, FrequencySeverityPricer, RandomizedResponse
from fairpremium.documents import whole_file
from fairpremium.progress import listening, quiet, section, tell


def test_sections_lie_between_their_fractions():
    heard = []
    with listening(lambda fraction, words: heard.append((fraction, words))):
        tell(0.0, "all")
        with section(0.2, 0.6):
            tell(0.5, "half")
            with section(0.5, 1.0):
                tell(1.0, "end")
            with quiet():
                tell(0.0, "nothing")
        tell(1.0, "done")
    tell(0.0, "nobody listens")
    assert heard == [(0.0, "all"), (pytest.approx(0.4), "half"), (pytest.approx(0.6), "end"), (1.0, "done")]


def test_a_listener_that_fails_is_forgotten():
    with pytest.raises(ZeroDivisionError), listening(lambda fraction, words: 1 / 0):
        tell(0.0, "a")
    tell(0.0, "b")


def test_who_does_not_speak_leaves_the_word_to_who_listens_outside(capsys):
    heard = []
    with listening(lambda fraction, words: heard.append(words)), listening(False):
        tell(0.0, "a")
    assert heard == ["a"]
    assert capsys.readouterr().err == ""


def test_verbose_is_checked():
    with pytest.raises(TypeError, match="Got verbose='yes', but expected True, False or a function"):
        DiscriminationFreePricer(verbose="yes").fit(np.zeros((4, 1)), [1, 2, 3, 4], sensitive=[0, 1, 0, 1])


def portfolio(n=600):
    rng = np.random.default_rng(0)
    channel = RandomizedResponse(["F", "M"], keep=0.8)
    D = rng.choice(["F", "M"], n)
    X = rng.normal(size=(n, 2))
    y = X[:, 0] + 2.0 * (D == "F") + rng.normal(size=n)
    return X, y, channel.privatize(D, rng=1), channel


def heard_by(pricer, *data, **columns):
    heard = []
    made = clone(pricer).set_params(verbose=lambda fraction, words: heard.append((fraction, words)))
    made.fit(*data, **columns)
    fractions = [fraction for fraction, _ in heard]
    assert fractions == sorted(fractions)
    assert fractions[0] == 0
    assert fractions[-1] <= 1
    return [words for _, words in heard]


@pytest.mark.parametrize("intervals", [False, True])
def test_fits_say_what_they_do(intervals):
    X, y, S, channel = portfolio()
    pricer = DiscriminationFreePricer(channel=channel, intervals=intervals, random_state=0)
    words = heard_by(pricer, X, y, sensitive=S)
    assert "distribution-free base" in words
    assert any(word.startswith("likelihood (") for word in words)
    assert ("standard errors" in words) == intervals
    words = heard_by(clone(pricer).set_params(model="boosted"), X, y, sensitive=S)
    assert "trees of the unaware price, fold 1 of 5" in words
    assert ("intervals: fit 10 of 10 without a part of the rows" in words) == intervals


def test_claims_say_what_they_do():
    X, _, S, channel = portfolio(3000)
    rng = np.random.default_rng(2)
    n = rng.poisson(0.5, 3000)
    words = heard_by(FrequencySeverityPricer(channel=channel), X, n, rng.gamma(2.0 * n, 100.0), sensitive=S)
    assert [word for word in words if word in ("frequency", "severity")] == ["frequency", "severity"]
    assert "prices and intervals of all parts" in words


def test_true_prints_a_line_for_each_step(capsys):
    X, y, S, channel = portfolio()
    fitted = DiscriminationFreePricer(channel=channel, verbose=True, random_state=0).fit(X, y, sensitive=S)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0].split("s  ")[1] == "linear model: adding up the rows, the unaware price"
    assert err.splitlines()[0].startswith("  0 %")
    quietly = DiscriminationFreePricer(channel=channel, random_state=0).fit(X, y, sensitive=S)
    np.testing.assert_array_equal(fitted.predict(X), quietly.predict(X))


def processor_seconds(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().split()[13]) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
def test_ctrl_c_ends_a_fit_quietly(tmp_path):
    rng = np.random.default_rng(0)
    n = 200_000
    table = pd.DataFrame(rng.normal(size=(n, 12)).round(3), columns=[f"x{j}" for j in range(12)])
    table["report"] = rng.choice(["A", "B", "C", "D"], n)
    table["n"] = rng.poisson(0.3, n)
    table.to_parquet(tmp_path / "portfolio.parquet")
    command = [sys.executable, "-P", "-m", "fairpremium", "fit", "portfolio.parquet", "--outcome", "n"]
    command += ["--sensitive", "report", "--keep", "0.7", "--family", "poisson", "--model", "boosted", "-o", "m.json"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        while processor_seconds(process.pid) < 4:  # then it fits
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert (out, err) == ("", "")  # no traceback
    assert not (tmp_path / "m.json").exists()


def test_sensitivity_says_which_channel_it_tries(capsys):
    X, y, S, channel = portfolio()
    heard = []
    pricer = DiscriminationFreePricer(channel=channel, correction="inverse", intervals=False)
    pricer = pricer.fit(X, y, sensitive=S)
    pricer.set_params(verbose=lambda fraction, words: heard.append((fraction, words)))
    keeps = np.linspace(0.75, 0.95, 11)
    pricer.sensitivity(X, y, sensitive=S, rows=[0], keeps=keeps)
    assert [words for _, words in heard] == [f"channel {i}" for i in range(1, 13)]  # the one in use is tried, too
    np.testing.assert_allclose([fraction for fraction, _ in heard], [*(np.arange(11) / 11), 0.99])


def source(folder, n=6000, parts=6):
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"x": rng.normal(size=n), "report": rng.choice(["F", "M"], n), "y": rng.normal(size=n)})
    folder.mkdir()
    for i, rows in enumerate(np.array_split(np.arange(n), parts)):
        table.iloc[rows].to_parquet(folder / f"{i}.parquet", index=False)
    return table


@pytest.mark.parametrize("target", ["out", "out.parquet"])
def test_pricing_a_source_says_how_many_rows_are_priced(tmp_path, target):
    table = source(tmp_path / "p")
    heard = []
    pricer = DiscriminationFreePricer(verbose=lambda fraction, words: heard.append((fraction, words)))
    pricer.fit(table[["x"]], table["y"], sensitive=table["report"])
    heard.clear()
    pricer.predict_to(tmp_path / "p", tmp_path / target)
    assert heard == [(pytest.approx(i / 6), f"{1000 * i:,} of 6,000 rows") for i in range(7)]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("target", ["out", "out.parquet"])
def test_premiums_that_are_interrupted_leave_nothing(tmp_path, target, there):
    """The listener is where Ctrl-C would come: after three of six partitions."""
    table = source(tmp_path / "p")
    pricer = DiscriminationFreePricer().fit(table[["x"]], table["y"], sensitive=table["report"])
    if there and target == "out":
        (tmp_path / target).mkdir()

    def interrupt(fraction, words):
        if fraction >= 0.5:
            raise KeyboardInterrupt

    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(KeyboardInterrupt), listening(interrupt):
        pricer.predict_to(tmp_path / "p", tmp_path / target)
    assert sorted(tmp_path.rglob("*")) == before


def write_half(path):
    with whole_file(path) as draft:
        draft.write_text("half")
        raise KeyboardInterrupt


def test_a_model_file_is_whole_or_not_there(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        write_half(tmp_path / "m.json")
    assert not list(tmp_path.iterdir())
    (tmp_path / "m.json").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        write_half(tmp_path / "m.json")
    assert (tmp_path / "m.json").read_text() == "old"
    with whole_file(tmp_path / "m.json") as draft:
        draft.write_text("new")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("m.json", "new")]
    (tmp_path / "link").symlink_to("m.json")
    with whole_file(tmp_path / "link") as draft:
        draft.write_text("through the link")
    assert (tmp_path / "m.json").read_text() == "through the link"
    with pytest.raises(FileNotFoundError) as caught, whole_file(tmp_path / "nowhere" / "m.json") as draft:
        draft.write_text("lost")
    assert caught.value.filename == str(tmp_path / "nowhere" / "m.json")


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups")
def test_ctrl_c_reaches_worker_processes_and_they_say_nothing(tmp_path):
    """A terminal sends it to all processes; idle workers would each print a traceback."""
    script = tmp_path / "script.py"
    script.write_text(
        """
import time
from fairpremium.blocks._pool import WorkerPool
pool = WorkerPool()
list(pool.map(abs, [(1,), (2,)]))
try:
    print("ready", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print(*pool.map(abs, [(-3,), (-4,)]))  # they still work
    pool.close()
"""
    )
    with subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "FAIRPREMIUM_WORKERS": "2"},
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "3 4\n", "")
