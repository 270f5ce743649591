"""Attacks of an insurer on the reports, through the service: over time, over studies, and with rows that are padding.

Each attack talks to a service in this process as an insurer does: it uploads portfolios, asks for fits, and reads what
comes back. Who has reported, and what, is drawn by a coin; the figure is the rate of right guesses, and the bound is
what the stated epsilon allows at most from even odds, e^epsilon / (1 + e^epsilon). It is written down with the attack,
before anything runs. Rules 1 to 4 are as loose as they can be declared: rule 9 has to hold by itself.

What a security review of 0.1.0 found, and what tries it now (tests are in tests/parties):

| finding | attack or test |
| --- | --- |
| 1. participation from the number of matches | `matched`, `planted`; test_attacks.py |
| 2. a fit repeated over time | `over_time`; test_attacks.py; service/test_rules.py (epochs) |
| 3. a fit that fails where a part has no report | test_attacks.py |
| 4. endless headers, half-open connections | http/test_connections.py |
| 5. draws of the same people after a lost file | collect tests of the ledger |
| 6. files that others can read | service/test_limits.py |
| 7. what erasure leaves behind | tests of erasure |
| 8. the same report in nine studies | `nine_studies`; test_attacks.py |
| 9. a charge that came back | service/test_rules.py::test_what_is_charged_stays_charged_whether_a_fit_is_refused_or_cancelled |
| 10. a fit without limits, a queue that starves others | service/test_limits.py::test_the_process_of_a_fit_has_limits, service/test_leases.py::test_insurers_take_turns_however_many_fits_one_of_them_has |
| 11. secrets in the environment of readers | service/test_limits.py::test_readers_of_files_get_no_secret |
| 11. a checkpoint that moves with a report | test_attacks.py |
| 11. requests that were signed for another host | service/test_access.py::test_other_names_of_the_service |
| 11. forged addresses | http/test_connections.py::test_a_forwarded_address_is_not_believed_without_a_named_proxy |
"""  # noqa: E501 (names of tests)

from __future__ import annotations

import io
import itertools
import math
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from fairpremium.parties import FitSpec, KnownChannel, StudySpec
from fairpremium.parties.clients._client import AppTransport, Client, Operator
from fairpremium.parties.clients._collector import Collector
from fairpremium.parties.clients._insurer import Insurer
from fairpremium.parties.http._app import create_app
from fairpremium.parties.protocol._keys import new_key
from fairpremium.parties.protocol._linkage import new_secret
from fairpremium.parties.protocol._messages import Fit, ReleaseRules
from fairpremium.parties.protocol._rules import Rules
from fairpremium.parties.service._settings import ServiceSettings
from fairpremium.parties.service._third_party import ThirdParty
from fairpremium.parties.service._worker import work_once
from fairpremium.privacy import RandomizedResponse

GROUPS = ("F", "M")
CHANNEL = RandomizedResponse(GROUPS, keep=0.8)
LOOSE = Rules(n_min=1, rows=1, effective_rows=1, rows_per_parameter=1, score_share=2.0, fits=1000, suppress_up_to=1)
EPSILON = 1.0  # of the second randomization, in an epoch
MODELS = ("linear", "boosted", "neural")
HOST = "third.party"


def bound(epsilon: float) -> float:
    """Return the largest rate of right guesses, from even odds, that epsilon-differential privacy allows."""
    return 1 / (1 + math.exp(-epsilon))


@dataclass
class Tally:
    """Guesses of an attack, and the most that may be right."""

    bound: float
    right: int = 0
    guesses: int = 0
    fits: int = 0
    blind: int = 0  # guesses without an answer of the service

    @property
    def rate(self) -> float:
        return self.right / self.guesses

    @property
    def error(self) -> float:
        return math.sqrt(max(self.rate * (1 - self.rate), 0.25 / self.guesses) / self.guesses)

    def add(self, truth: Any, guess: Any) -> None:
        self.right += int(np.sum(np.asarray(truth) == np.asarray(guess)))
        self.guesses += len(truth)


class Service:
    """A third party in a folder, its app in this process, and the parties around it.

    - `database`: Address of a PostgreSQL database; None for SQLite.
    - `limits`: Of the service.
    """

    def __init__(self, folder: Path, database: str | None = None, limits: Any = None):
        self.third_party = ThirdParty(folder, database=database, limits=limits)
        self.context = self.third_party.context
        self.app = create_app(ServiceSettings(folder=folder, database=database, hosts=(HOST,)), self.third_party)
        self.transport = AppTransport(self.app)
        self.secret = new_secret()
        self.operator: Operator = self._add("op", "operator", Operator)
        self.collector: Collector = self._add("app", "collector", Collector)
        self.insurer: Insurer = self._add("acme", "insurer", Insurer)
        self.auditor: Client = self._add("aud", "auditor", Client)

    def _add(self, name: str, role: Any, kind: Any) -> Any:
        key = new_key()
        self.third_party.add_key(key.public_key, party=name, role=role)
        self.app.state.requests._keys_at = float("-inf")
        return kind(f"http://{HOST}", key, transport=self.transport)

    def close(self) -> None:
        self.transport.close()
        self.app.state.console.log_monitor.wait()
        self.third_party.close()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def declare(self, study: str = "motor", **changes: Any) -> None:
        attribute = changes.pop("attribute", KnownChannel(channel=CHANNEL.descriptor()))
        spec = StudySpec(title="Motor", attribute=attribute, collectors=("app",), insurers=("acme",), **changes)
        self.operator.put_study(study, spec)
        self.operator.set_state(study, "open")

    def report(self, policies: Any, reports: Any, study: str = "motor", **more: Any) -> None:
        """Let people report one by one, as they do over time."""
        channel = more.pop("channel", CHANNEL)
        for policy, report in zip(policies, reports, strict=True):
            self.collector.report(study, self.secret, policy, report, channel, **more)

    def submit(self, policies: Any, reports: Any, study: str = "motor", channel: Any = CHANNEL, **more: Any) -> None:
        """Let people report in batches."""
        frame = pd.DataFrame({"policy": list(policies), "report": list(reports)})
        self.collector.submit(frame, study=study, secret=self.secret, channel=channel, **more)

    def upload(self, frame: pd.DataFrame, name: str, study: str = "motor", **more: Any) -> None:
        roles = {"policy": "policy", "outcome": "y"}
        self.insurer.upload(frame, study=study, portfolio=name, secret=self.secret, **roles, **more)

    def fit(self, name: str, portfolio: str, study: str = "motor", **spec: Any) -> Fit:
        """Ask for a fit, let a worker do it, and return what the insurer sees."""
        self.insurer.fit(name, FitSpec(study=study, portfolio=portfolio, **spec))
        if not work_once(self.context):
            raise RuntimeError("No fit waited.")
        return self.insurer.watch(name)

    def bundle(self, name: str) -> dict[str, bytes]:
        """Return the members of a bundle."""
        body = self.insurer.send("GET", f"/v1/fits/{name}/bundle").content
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            return {member: archive.read(member) for member in archive.namelist()}

    def premiums(self, name: str) -> pd.DataFrame:
        return pq.read_table(io.BytesIO(self.bundle(name)["premiums.parquet"])).to_pandas()


@dataclass
class Plot:
    """A portfolio in which one planted outcome in each cell tells the report of its target, as the service uses it.

    A cell has its own column, and the outcome is near zero but for its target's. The prices of the cell in the groups
    are then alike unless the target counts as one who reported, and their difference says what. Other rows of a cell
    are policies that report, and padding: keys that are nobody's policy.

    - `targets`: Cells.
    - `mates`, `padding`: Rows of a cell besides the target.
    """

    targets: int = 40
    mates: int = 16
    padding: int = 4
    seed: int = 0
    rng: np.random.Generator = field(init=False)
    frame: pd.DataFrame = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.seed, 5])
        roles = ["target", *["mate"] * self.mates, *["padding"] * self.padding]
        cell = np.repeat(np.arange(self.targets), len(roles))
        role = np.tile(roles, self.targets)
        policy = [f"{self.seed} {r} {i}" for i, r in enumerate(role)]
        columns = {f"cell{c}": (cell == c).astype(float) for c in range(1, self.targets)}
        y = np.where(role == "target", 1.0, 0.02 * self.rng.normal(size=len(role)))
        self.frame = pd.DataFrame({"policy": policy, "role": role, "cell": cell, "y": y, **columns})

    @property
    def sent(self) -> pd.DataFrame:
        """What is uploaded."""
        return self.frame.drop(columns=["role", "cell"])

    def policies(self, role: str) -> np.ndarray:
        return self.frame.loc[self.frame["role"] == role, "policy"].to_numpy()

    def read(self, premiums: pd.DataFrame) -> pd.DataFrame:
        """Return the price of each target's cell in both groups."""
        found = premiums[[f"group {g}" for g in GROUPS]][(self.frame["role"] == "target").to_numpy()]
        return found.set_axis(GROUPS, axis=1).reset_index(drop=True)

    def guess_participation(self, prices: pd.DataFrame) -> np.ndarray:
        """Guess who reported: the half of the cells in which the prices of the groups differ most."""
        return self._far(prices) > 0

    def _far(self, prices: pd.DataFrame) -> np.ndarray:
        gap = (prices["F"] - prices["M"]).abs().to_numpy()
        order = np.argsort(np.argsort(gap + 1e-12 * self.rng.random(len(gap))))
        return order - (len(gap) - 1) / 2


def settings(model: str) -> dict[str, Any]:
    """Return a fit that reads as much as it can: no pooling, randomized reports."""
    common = {"correction": "posterior", "pooling": 0.0, "reference": "uniform"}
    return {"model": model, "release": "randomized", **common}


def release_rules(epsilon: float = EPSILON, epochs: int = 2) -> ReleaseRules:
    return ReleaseRules(epsilon=epochs * epsilon, randomized_epsilon=epsilon, fit_epsilon=min(1.0, epsilon))


# --- finding 1: who has reported -------------------------------------------------------------------------------------


def planted(service: Service, model: str, plot: Plot, study: str = "motor") -> Tally:
    """Who among the targets reported, from prices of padded cells. Bound: one epoch's epsilon."""
    tally = Tally(bound(EPSILON), fits=1)
    service.declare(study, rules=LOOSE, release=release_rules())
    there = plot.rng.permutation(plot.targets) < plot.targets // 2
    service.submit(plot.policies("mate"), plot.rng.choice(GROUPS, len(plot.policies("mate"))), study)
    some = plot.policies("target")[there]
    service.report(some, plot.rng.choice(GROUPS, len(some)), study)
    service.upload(plot.sent, f"{study}-p", study)
    seen = service.fit(f"{study}-f", f"{study}-p", study, **settings(model))
    return _guess(service, plot, tally, seen, there)


def _guess(service: Service, plot: Plot, tally: Tally, seen: Fit, there: np.ndarray) -> Tally:
    if seen.state != "succeeded":
        tally.blind += len(there)
        tally.add(there, plot.rng.random(len(there)) < 0.5)
        return tally
    tally.add(there, plot.guess_participation(plot.read(service.premiums(seen.id))))
    return tally


def matched(service: Service, model: str, targets: int, rows: int = 300, study: str = "motor") -> Tally:
    """Whether one target reported, from the number of matches: the known reports are aligned with the rounding to 5.

    All rows but the target's are known: so many have a report that the rounded number is 5 larger if the target has
    one, too, and the rest is padding, other keys in every portfolio. Bound: one epoch's epsilon.
    """
    tally = Tally(bound(EPSILON), fits=targets)
    service.declare(study, rules=LOOSE, release=release_rules())
    rng = np.random.default_rng(targets)
    known = rows // 2 // 5 * 5 + 2  # and one more is rounded up
    there = rng.permutation(targets) < targets // 2
    x, reporters = rng.normal(size=rows), list[str]()
    for t in range(targets):
        policies = [f"{t} policy {i}" for i in range(known + 1)] + [f"{t} padding {i}" for i in range(rows - known - 1)]
        some = policies[: known + bool(there[t])]
        reporters += some
        service.upload(
            pd.DataFrame({"policy": policies, "x": x, "y": x + rng.normal(size=rows)}), f"{study}-p{t}", study
        )
    service.submit(reporters, rng.choice(GROUPS, len(reporters)), study)
    for t in range(targets):
        seen = service.fit(f"{study}-f{t}", f"{study}-p{t}", study, **settings(model))
        if seen.matched is None:
            tally.blind += 1
            tally.add([there[t]], [rng.random() < 0.5])
        else:
            tally.add([there[t]], [seen.matched >= known + 1])
    return tally


# --- finding 2: who has reported in between --------------------------------------------------------------------------


@dataclass
class OverTime:
    """What an insurer sees of a fit before and after half of the targets report."""

    read: Tally  # by who counts as one who reported in the second epoch
    changed: Tally  # by whose price changed between the epochs
    same_in_epoch: bool  # models and premiums, asked for again under another name
    same_over_epochs: bool
    spent: tuple[float, ...]  # after each fit
    states: tuple[str, ...]


def over_time(service: Service, model: str, plot: Plot, *, report: bool = True, study: str = "motor") -> OverTime:
    """Ask the same before and after half of the targets report. Bound: the second epoch's epsilon, the first is alike.

    The bound of everything that both epochs release is that of the sum of their epsilons, which is weaker; as nobody
    among the targets has reported in the first one, what it releases is the same in both cases.

    - `report`: Whether anybody reports in between.
    """
    service.declare(study, rules=LOOSE, release=release_rules())
    service.submit(plot.policies("mate"), plot.rng.choice(GROUPS, len(plot.policies("mate"))), study)
    service.upload(plot.sent, f"{study}-p", study)
    there = plot.rng.permutation(plot.targets) < plot.targets // 2
    spent, states, members = [], [], {}

    def ask(name: str, **more: Any) -> Fit:
        seen = service.fit(f"{study}-{name}", f"{study}-p", study, **{**settings(model), **more})
        view = service.insurer.send("GET", f"/v1/studies/{study}").json()
        spent.append(view["spent"]["epsilon"])
        states.append(seen.state)
        if seen.state == "succeeded":
            kept = service.bundle(seen.id)
            members[name] = {n: b for n, b in kept.items() if n.startswith(("model", "premiums"))}
        return seen

    first = ask("first")
    if report:
        some = plot.policies("target")[there]
        service.report(some, plot.rng.choice(GROUPS, len(some)), study)
    ask("again")  # the same question in the same epoch
    service.operator.begin_epoch(study)
    second = ask("second")
    read, changed = Tally(bound(EPSILON), fits=2), Tally(bound(EPSILON), fits=2)
    _guess(service, plot, read, second, there)
    if {first.state, second.state} == {"succeeded"}:
        before, after = (plot.read(service.premiums(seen.id)) for seen in (first, second))
        changed.add(there, plot.guess_participation(after - before))
    else:
        changed.add(there, plot.rng.random(len(there)) < 0.5)
    return OverTime(
        read=read,
        changed=changed,
        same_in_epoch=members.get("first") == members.get("again"),
        same_over_epochs=members.get("first") == members.get("second"),
        spent=tuple(spent),
        states=tuple(states),
    )


# --- finding 8: the same report in several studies -------------------------------------------------------------------


@dataclass
class ManyStudies:
    """What an insurer reads from all studies together, and what the service says they cost."""

    one: Tally  # from the first study alone
    all: Tally
    stated: tuple[float, ...]  # `spent.with_other_studies` in each study
    spent: tuple[float, ...]  # `spent.epsilon` in each study


def nine_studies(service: Service, plot: Plot, studies: int = 9, epsilon: float = 0.4) -> ManyStudies:
    """What all targets reported, from the same reports in several studies. Bound: the sum of what they cost.

    - `epsilon`: Of the second randomization in each study.
    """
    truth = plot.rng.choice(GROUPS, plot.targets)
    mates = plot.rng.choice(GROUPS, len(plot.policies("mate")))
    votes = np.zeros(plot.targets)
    one, together = Tally(bound(epsilon), fits=1), Tally(bound(studies * epsilon), fits=studies)
    names = [f"study{i}" for i in range(studies)]
    for study in names:
        service.declare(study, rules=LOOSE, release=release_rules(epsilon, 1))
        service.submit(plot.policies("mate"), mates, study)
        service.report(plot.policies("target"), truth, study)
        service.upload(plot.sent, f"{study}-p", study)
        seen = service.fit(f"{study}-f", f"{study}-p", study, **settings("linear"))
        if seen.state == "succeeded":
            prices = plot.read(service.premiums(seen.id))
            votes += np.sign(np.round((prices["F"] - prices["M"]).to_numpy(), 9))
        if study == names[0]:
            one.add(truth, _by_votes(votes, plot))
    together.add(truth, _by_votes(votes, plot))
    views = [service.insurer.send("GET", f"/v1/studies/{study}").json()["spent"] for study in names]
    return ManyStudies(one, together, tuple(v["with_other_studies"] for v in views), tuple(v["epsilon"] for v in views))


def _by_votes(votes: np.ndarray, plot: Plot) -> np.ndarray:
    return np.where(votes + 0.1 * plot.rng.choice([-1, 1], len(votes)) > 0, *GROUPS)


# --- all of them -----------------------------------------------------------------------------------------------------


def run_all(scale: float, tell: Callable[[dict[str, Any]], None], database: str | None = None) -> list[dict[str, Any]]:
    """Run every attack with every model, each in a study of its own, and return the figures."""
    results: list[dict[str, Any]] = []

    def record(attack: str, model: str, tally: Tally) -> None:
        results.append(
            {
                "attack": attack,
                "model": model,
                "rate": round(tally.rate, 4),
                "error": round(tally.error, 4),
                "bound": round(tally.bound, 4),
                "guesses": tally.guesses,
                "blind": tally.blind,
            }
        )
        tell(results[-1])

    studies = (f"attack{i}" for i in itertools.count())
    with (
        tempfile.TemporaryDirectory(prefix="attacks-") as folder,
        Service(Path(folder) / "third-party", database) as service,
    ):
        for model in MODELS:
            worlds = max(1, round((4 if model == "linear" else 2) * scale))
            read, before, changed = (Tally(bound(EPSILON)) for _ in range(3))
            for seed in range(worlds):
                _add(read, planted(service, model, Plot(seed=seed), next(studies)))
                seen = over_time(service, model, Plot(seed=worlds + seed), study=next(studies))
                _add(before, seen.read)
                _add(changed, seen.changed)
            record("who reported, from prices of padded cells", model, read)
            record("who reported between two epochs, from the second", model, before)
            record("who reported between two epochs, from what changed", model, changed)
            count = max(4, round((100 if model == "linear" else 40) * scale))
            record(
                "who reported, from the number of matches", model, matched(service, model, count, study=next(studies))
            )
        found = nine_studies(service, Plot(seed=99, targets=100))
        record("what was reported, from one study", "linear", found.one)
        record("what was reported, from nine studies", "linear", found.all)
    return results


def _add(total: Tally, part: Tally) -> None:
    total.right, total.guesses = total.right + part.right, total.guesses + part.guesses
    total.fits, total.blind = total.fits + part.fits, total.blind + part.blind
