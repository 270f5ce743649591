"""Attacks of an insurer on the reports, through the service: over time, over studies, and with rows that are padding.

Each attack talks to a service in this process as an insurer does: it uploads portfolios, asks for fits, and reads what
comes back. Who has reported, and what, is drawn by a coin for each person; the figure is the rate of right guesses, and
the bound is what the stated epsilon allows at most from even odds, e^epsilon / (1 + e^epsilon). It is written down with
the attack, before anything runs, and so is the test whether a rate contradicts it (``_bounds.py``). Rules 1 to 4 are as
loose as they can be declared: rule 9 has to hold by itself. With `noise=False` an attack meets a study whose noise hides
nothing, and has to succeed: a rate within its bound says something only if the attack is sharp.

What a security review of 0.1.0 found, and what tries it now (tests are in tests/parties):

| finding | attack or test |
| --- | --- |
| 1. participation from the number of matches | `matched`, `planted`; test_attacks.py |
| 2. a fit repeated over time | `over_time`, randomized and with noised sums; test_attacks.py; service/test_rules.py (epochs) |
| 2. the same over two restores of one backup | `restored_twice`; test_attacks.py; backup/test_backup.py::test_two_restores_of_a_backup_draw_independently |
| 3. a fit that fails where a part has no report | test_attacks.py |
| 4. endless headers, half-open connections | http/test_connections.py |
| 5. draws of the same people after a lost file | `_ledger_attacks.py`; ../cli/test_ledger_attacks.py, test_drawing.py |
| 6. files that others can read | service/test_limits.py; test_drawing.py::test_a_file_that_others_could_read_is_closed_to_them |
| 7. what erasure leaves behind | service/test_erasure.py (rows, premiums, keys, levels), test_erasure_faults.py |
| 7. a report that cannot be withdrawn | service/test_erasure.py::test_a_withdrawn_report_is_gone_with_the_next_epoch |
| 8. the same report in nine studies | `nine_studies`; test_attacks.py |
| 9. a charge that came back | service/test_rules.py::test_what_is_charged_stays_charged_whether_a_fit_is_refused_or_cancelled |
| 10. a fit without limits, a queue that starves others | service/test_limits.py::test_the_process_of_a_fit_has_limits, service/test_leases.py::test_insurers_take_turns_however_many_fits_one_of_them_has |
| 11. secrets in the environment of readers | service/test_limits.py::test_readers_of_files_get_no_secret |
| 11. a checkpoint that moves with a report | test_attacks.py |
| 11. requests that were signed for another host | service/test_access.py::test_other_names_of_the_service |
| 11. forged addresses | http/test_connections.py::test_a_forwarded_address_is_not_believed_without_a_named_proxy |
| 11. a new service key breaks the old log | service/test_key_rotation.py, protocol/test_key_chain.py |
| 11. /readyz says 200 while no write succeeds | http/test_readyz.py |
| 11. formulas in CSV files | ../cli/test_table_files.py::test_a_formula_in_a_csv_file_becomes_text, ../cli/test_privatize.py::test_formulas_are_text_in_a_csv_file_and_themselves_when_it_is_read, test_drawing.py::test_policy_numbers_that_look_like_formulas |
"""  # noqa: E501 (names of tests)

from __future__ import annotations

import io
import itertools
import math
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from fairpremium.parties import FitSpec, KnownChannel, StudySpec
from fairpremium.parties.backup import make_backup, restore_backup
from fairpremium.parties.clients._client import AppTransport, Client, Operator
from fairpremium.parties.clients._collector import Collector
from fairpremium.parties.clients._insurer import Insurer
from fairpremium.parties.http._app import create_app
from fairpremium.parties.protocol._keys import new_key
from fairpremium.parties.protocol._linkage import new_secret
from fairpremium.parties.protocol._messages import Fit, ReleaseRules
from fairpremium.parties.protocol._rules import Rules
from fairpremium.parties.service._context import ServiceLimits
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
AT_ONCE = ServiceLimits(step_seconds=0.0, snapshot_seconds=0.0)  # no attack measures how long fits take


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
        self.database = database
        self.third_party = ThirdParty(folder, database=database, limits=limits or AT_ONCE)
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
    - `wave`: Height of a wave in all outcomes, over one more column. Nets stop where rows that they have not seen get
      worse, and these outcomes have nothing that helps such rows but the wave: learning it, they learn the targets.
    """

    targets: int = 40
    mates: int = 16
    padding: int = 4
    wave: float = 0.0
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
        if self.wave:
            columns["x"] = self.rng.uniform(-1, 1, len(role))
            y += self.wave * np.sin(4 * columns["x"])
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


def settings(model: str, release: str = "randomized") -> dict[str, Any]:
    """Return a fit that reads as much as it can: no pooling, randomized reports or noised sums."""
    correction = "posterior" if release == "randomized" else "inverse"
    return {"model": model, "release": release, "correction": correction, "pooling": 0.0, "reference": "uniform"}


def release_rules(epsilon: float = EPSILON, epochs: int = 2, *, noise: bool = True) -> ReleaseRules:
    if not noise:
        return ReleaseRules(epsilon=100.0, randomized_epsilon=15.0, fit_epsilon=15.0)
    return ReleaseRules(epsilon=epochs * epsilon, randomized_epsilon=epsilon, fit_epsilon=min(1.0, epsilon))


def bound_of(epsilon: float, noise: bool) -> float:
    """Return the bound of an attack; there is none without noise."""
    return bound(epsilon) if noise else 1.0


# --- finding 1: who has reported -------------------------------------------------------------------------------------


def planted(service: Service, model: str, plot: Plot, study: str = "motor", *, noise: bool = True) -> Tally:
    """Who among the targets reported, from prices of padded cells. Bound: one epoch's epsilon."""
    tally = Tally(bound_of(EPSILON, noise), fits=1)
    service.declare(study, rules=LOOSE, release=release_rules(noise=noise))
    there = plot.rng.random(plot.targets) < 0.5
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


def matched(
    service: Service, model: str, targets: int, rows: int = 300, study: str = "motor", *, noise: bool = True
) -> Tally:
    """Whether one target reported, from the number of matches: the known reports are aligned with the rounding to 5.

    All rows but the target's are known: so many have a report that the rounded number is 5 larger if the target has
    one, too, and the rest is padding, other keys in every portfolio. Bound: one epoch's epsilon.
    """
    tally = Tally(bound_of(EPSILON, noise), fits=targets)
    service.declare(study, rules=LOOSE, release=release_rules(noise=noise))
    rng = np.random.default_rng(targets)
    known = rows // 2 // 5 * 5 + 2  # and one more is rounded up
    there = rng.random(targets) < 0.5
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


def near_zero(service: Service, seed: int, study: str = "motor", *, unit: float, noise: bool = True) -> Tally:
    """Who among 19 targets reported, from noised sums of outcomes whose squares are zero, as floats round them.

    Each target is in a cell of 200 rows, and a small cell of other large outcomes gives the sums a metric. Noise in
    proportion to a sensitivity that was rounded to zero hides nobody. Bound: that of an epoch, above that of a fit.

    - `unit`: Of the outcomes. With `noise=False` it is one, and rule 9 is off.
    """
    tally, targets, size = Tally(bound_of(EPSILON, noise), fits=1), 19, 200
    service.declare(study, rules=LOOSE, release=release_rules(epochs=8) if noise else None)
    rng = np.random.default_rng([seed, 9])
    cell = np.repeat([*range(targets), targets, -1], [*[size] * targets, 40, 2 * size])
    place = np.arange(targets) * size
    y = 1e-3 * rng.normal(size=len(cell))
    y[cell == targets] = rng.choice([-1.0, 1.0], 40)
    y[place] = 1.0
    policies = np.array([f"{study} {i}" for i in range(len(cell))])
    columns = {f"cell{c}": (cell == c).astype(float) for c in range(targets + 1)}
    reported, there = np.ones(len(cell), dtype=bool), rng.random(targets) < 0.5
    reported[place] = there
    service.submit(policies[reported], rng.choice(GROUPS, reported.sum()), study)
    factor = unit if noise else 1.0
    service.upload(pd.DataFrame({"policy": policies, "y": factor * y, **columns}), f"{study}-p", study)
    seen = service.fit(f"{study}-f", f"{study}-p", study, **settings("linear", "gaussian" if noise else "default"))
    if seen.state != "succeeded":
        tally.blind += targets
        tally.add(there, rng.random(targets) < 0.5)
        return tally
    prices = service.premiums(seen.id)
    gap = (prices["group F"] - prices["group M"]).to_numpy()[place] / factor
    tally.add(there, np.abs(gap) * size / 2 > 0.75)
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


def over_time(
    service: Service,
    model: str,
    plot: Plot,
    *,
    report: bool = True,
    study: str = "motor",
    release: str = "randomized",
    noise: bool = True,
) -> OverTime:
    """Ask the same before and after half of the targets report. Bound: the second epoch's epsilon, the first is alike.

    The bound of everything that both epochs release is that of the sum of their epsilons, which is weaker; as nobody
    among the targets has reported in the first one, what it releases is the same in both cases.

    - `report`: Whether anybody reports in between.
    - `release`: "gaussian" for noised sums of a linear model. Prices are then a function of these sums alone, which
      cost as much in an epoch as the second randomization.
    """
    rules: ReleaseRules | None = release_rules(epochs=2 if release == "randomized" else 8, noise=noise)
    if release == "gaussian" and not noise:  # also with the largest epsilon noise on sums hides a person
        rules = None
    service.declare(study, rules=LOOSE, release=rules)
    service.submit(plot.policies("mate"), plot.rng.choice(GROUPS, len(plot.policies("mate"))), study)
    service.upload(plot.sent, f"{study}-p", study)
    there = plot.rng.random(plot.targets) < 0.5
    spent, states, members = [], [], {}

    def ask(name: str, **more: Any) -> Fit:
        seen = service.fit(f"{study}-{name}", f"{study}-p", study, **{**settings(model, release), **more})
        view = service.insurer.send("GET", f"/v1/studies/{study}").json()
        spent.append(view["spent"]["epsilon"] if rules else math.inf)
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
    read, changed = (Tally(bound_of(EPSILON, noise), fits=2) for _ in range(2))
    _guess(service, plot, read, second, there)
    if {first.state, second.state} == {"succeeded"}:
        before, after = (plot.read(service.premiums(seen.id)) for seen in (first, second))
        changed.add(there, plot.guess_participation(after - before))
    else:
        changed.blind += len(there)
        changed.add(there, plot.rng.random(len(there)) < 0.5)
    return OverTime(
        read=read,
        changed=changed,
        same_in_epoch=members.get("first") == members.get("again"),
        same_over_epochs=members.get("first") == members.get("second"),
        spent=tuple(spent),
        states=tuple(states),
    )


def restored_twice(service: Service, plot: Plot, folder: Path, *, study: str = "motor", noise: bool = True) -> Tally:
    """Who reported between two restores of one backup, from what changed. Bound: the epsilon of the second one's epoch.

    Nobody among the targets has reported in the first one, so that what it releases is the same in both cases.

    - `folder`: A new one, for the backup and the two restored services, which are on SQLite.
    """
    service.declare(study, rules=LOOSE, release=release_rules(noise=noise))
    service.submit(plot.policies("mate"), plot.rng.choice(GROUPS, len(plot.policies("mate"))), study)
    service.upload(plot.sent, f"{study}-p", study)
    folder.mkdir()
    make_backup(service.context.files.folder.parent, folder / "backup", database=service.database)
    there = plot.rng.random(plot.targets) < 0.5
    prices = []
    for name in ("without", "with"):
        restore_backup(folder / "backup", folder / name)
        time.sleep(1.1)  # signatures count whole seconds, and none from before the restore is accepted
        with Service(folder / name) as restored:
            restored.secret = service.secret
            if name == "with":
                some = plot.policies("target")[there]
                restored.report(some, plot.rng.choice(GROUPS, len(some)), study)
            seen = restored.fit(f"{study}-{name}", f"{study}-p", study, **settings("linear"))
            if seen.state == "succeeded":
                prices.append(plot.read(restored.premiums(seen.id)))
    tally = Tally(bound_of(EPSILON, noise), fits=2)
    if len(prices) < 2:
        tally.blind += len(there)
        tally.add(there, plot.rng.random(len(there)) < 0.5)
    else:
        tally.add(there, plot.guess_participation(prices[1] - prices[0]))
    return tally


# --- finding 8: the same report in several studies -------------------------------------------------------------------


@dataclass
class ManyStudies:
    """What an insurer reads from all studies together, and what the service says they cost."""

    one: Tally  # from the first study alone
    all: Tally
    stated: tuple[float, ...]  # `spent.with_other_studies` in each study
    spent: tuple[float, ...]  # `spent.epsilon` in each study


def nine_studies(
    service: Service, plot: Plot, studies: int = 9, epsilon: float = 0.4, *, noise: bool = True
) -> ManyStudies:
    """What all targets reported, from the same reports in several studies. Bound: the sum of what they cost.

    - `epsilon`: Of the second randomization in each study.
    """
    truth = plot.rng.choice(GROUPS, plot.targets)
    mates = plot.rng.choice(GROUPS, len(plot.policies("mate")))
    votes = np.zeros(plot.targets)
    one, together = Tally(bound_of(epsilon, noise), fits=1), Tally(bound_of(studies * epsilon, noise), fits=studies)
    names = [f"study{i}{'' if noise else '-plain'}" for i in range(studies)]
    for study in names:
        service.declare(study, rules=LOOSE, release=release_rules(epsilon, 1, noise=noise))
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


@dataclass(frozen=True)
class Size:
    """How often the attacks of a model run in full: worlds with some targets each, and portfolios with a single one.

    - `mates`: Rows of a cell besides the target's and the padding. Trees split no cell that has too few.
    """

    worlds: int
    portfolios: int
    targets: int = 40
    mates: int = 16
    wave: float = 0.0

    def plot(self, seed: int) -> Plot:
        return Plot(seed=seed, targets=self.targets, mates=self.mates, wave=self.wave)


SIZES = {"linear": Size(10, 150), "boosted": Size(6, 60, mates=36), "neural": Size(12, 60, targets=20, wave=0.3)}
ROWS = 4 * len(MODELS) + 6  # figures of a run that have a bound
UNITS = (2.2e-163, 1e-40)  # of outcomes near zero: one whose squares are zero, and one that the service takes


PARTS = ("models", "forks", "near zero", "studies", "controls")  # of a run


def run_all(
    scale: float,
    tell: Callable[[str, str, Tally], None],
    database: str | None = None,
    parts: Collection[str] = PARTS,
    models: Collection[str] = MODELS,
) -> None:
    """Run every attack, each in a study of its own; tell attack, model and guesses, each at once.

    - `parts`: "models" for the attacks with every model, "forks" for noised sums over time and for two restores of one
      backup, "near zero" for noised sums of tiny outcomes, "studies" for nine studies, "controls" for one world of each
      of them without noise.
    """
    studies = (f"attack{i}" for i in itertools.count())
    with (
        tempfile.TemporaryDirectory(prefix="attacks-") as folder,
        Service(Path(folder) / "third-party", database) as service,
    ):
        for noise, scaled in ((True, scale), (False, 0.0)):
            chosen = parts if noise else PARTS if "controls" in parts else ()
            run = _Run(service, scaled, tell, studies, noise)
            if "models" in chosen:
                for model in models:
                    _run_model(run, model)
            if "forks" in chosen:
                _run_forks(run, Path(folder))
            if "near zero" in chosen:
                _run_near_zero(run)
            if "studies" in chosen:
                found = nine_studies(service, Plot(seed=99, targets=100), noise=noise)
                tell("what was reported, from one study", "linear", found.one)
                tell("what was reported, from nine studies", "linear", found.all)


@dataclass(frozen=True)
class _Run:
    """What attacks are run with; a scale of zero is one world of each."""

    service: Service
    scale: float
    tell: Callable[[str, str, Tally], None]
    studies: Iterator[str]
    noise: bool

    def times(self, full: int, least: int = 1) -> int:
        return max(least, round(full * self.scale))

    def tally(self) -> Tally:
        return Tally(bound_of(EPSILON, self.noise))


def _run_model(run: _Run, model: str) -> None:
    size, noise = SIZES[model], run.noise
    worlds, read, before, changed = run.times(size.worlds), run.tally(), run.tally(), run.tally()
    for seed in range(worlds):
        _add(read, planted(run.service, model, size.plot(seed), next(run.studies), noise=noise))
        seen = over_time(run.service, model, size.plot(worlds + seed), study=next(run.studies), noise=noise)
        _add(before, seen.read)
        _add(changed, seen.changed)
    run.tell("who reported, from prices of padded cells", model, read)
    run.tell("who reported between two epochs, from the second", model, before)
    run.tell("who reported between two epochs, from what changed", model, changed)
    portfolios = run.times(size.portfolios, 4 if noise else 10)
    counted = matched(run.service, model, portfolios, study=next(run.studies), noise=noise)
    run.tell("who reported, from the number of matches", model, counted)


def _run_forks(run: _Run, folder: Path) -> None:
    before, changed, restored, noise = run.tally(), run.tally(), run.tally(), run.noise
    worlds = run.times(SIZES["linear"].worlds)
    for seed in range(2 * worlds):  # of half as many targets: noised numbers of rows in larger cells pass rule 1
        plot = Plot(seed=200 + seed, targets=20, mates=120)
        seen = over_time(run.service, "linear", plot, study=next(run.studies), release="gaussian", noise=noise)
        _add(before, seen.read)
        _add(changed, seen.changed)
    for seed in range(worlds):
        place = folder / f"restored-{seed}"
        _add(restored, restored_twice(run.service, Plot(seed=300 + seed), place, study=next(run.studies), noise=noise))
        shutil.rmtree(place)
    run.tell("who reported between two epochs, from the second, noised sums", "linear", before)
    run.tell("who reported between two epochs, from what changed, noised sums", "linear", changed)
    run.tell("who reported between two restores of one backup, from what changed", "linear", restored)


def _run_near_zero(run: _Run) -> None:
    tally, noise = run.tally(), run.noise
    for seed in range(run.times(SIZES["linear"].worlds)):
        for unit in UNITS:
            _add(tally, near_zero(run.service, seed, next(run.studies), unit=unit, noise=noise))
    run.tell("who reported, from outcomes near zero, noised sums", "linear", tally)


def _add(total: Tally, part: Tally) -> None:
    total.right, total.guesses = total.right + part.right, total.guesses + part.guesses
    total.fits, total.blind = total.fits + part.fits, total.blind + part.blind
