"""Attacks of an insurer on the reports: what it sends, what it reads from what comes back, and how often it is right.

The insurer chooses features, outcomes, volumes, model and rows, and knows all of them. Each attack guesses reports of
two values; a blind guess is right in half of the cases. An attack that is refused, or whose fit fails, guesses blindly,
unless the refusal itself tells something.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

import fairpremium.parties.release._gaussian as gaussian
from fairpremium import LinearModel, RandomizedResponse
from fairpremium.errors import FairPremiumError
from fairpremium.parties.release._accounting import mu_of
from fairpremium.parties.release._disclosure import RefusedError, Rules, check_overlap, rarest_report
from fairpremium.parties.release._release import FitSettings, ReleaseSettings, fit_release
from fairpremium.parties.release._released_reports import without_protection
from fairpremium.parties.release._released_sums import Releaser

GROUPS = ("F", "M")
CELL, CODED = 60, 12  # rows of a cell, and those of them whose reports are decoded together


@dataclass
class Outcome:
    """Guesses of an attack."""

    right: int = 0
    guesses: int = 0
    refused: int = 0
    fits: int = 0  # per guess, for the bound

    @property
    def rate(self) -> float:
        return self.right / self.guesses

    @property
    def error(self) -> float:
        return math.sqrt(max(self.rate * (1 - self.rate), 0.25 / self.guesses) / self.guesses)

    def add(self, right: bool) -> None:
        self.right += bool(right)
        self.guesses += 1


@dataclass(frozen=True)
class Defence:
    """How the third party releases, and which rules it applies.

    Parameters
    ----------
    mechanism : {"none", "gaussian", "randomized"}
    rules : bool
    epsilon, delta : float
    """

    mechanism: str
    rules: bool
    epsilon: float = 1.0
    delta: float = 1e-6

    def bound(self, fits: int = 1) -> float:
        """Largest probability of a right guess, from even odds, that the guarantee allows after so many fits."""
        if self.mechanism == "none":
            return 1.0
        if self.mechanism == "randomized":
            return 1 / (1 + math.exp(-self.epsilon))
        return float(ndtr(math.sqrt(fits) * mu_of(self.epsilon, self.delta) / 2))


@dataclass
class World:
    """A portfolio with reports, and a third party that protects them."""

    seed: int
    defence: Defence
    n: int = 1500
    keep: float = 0.8
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.seed, 77])
        rng, n = self.rng, self.n
        self.channel = RandomizedResponse(GROUPS, keep=self.keep)
        self.D = rng.choice(GROUPS, n)
        self.S = np.array(self.channel.privatize(self.D, rng=rng), dtype=object)
        self.X = pd.DataFrame(
            {"age": rng.integers(15, 80, n).astype(float), "smoker": (rng.random(n) < 0.3).astype(float)}
        )
        self.y = 500 + 5 * self.X["age"].to_numpy() + 100 * (self.D == "F") + 40 * rng.normal(size=n)
        self.keys = np.array([f"{self.seed} {i}" for i in range(n)])
        self.secret = rng.bytes(32)
        self.asked: list[np.ndarray] = []

    def ask(
        self,
        X: pd.DataFrame,
        y: np.ndarray,
        rows: np.ndarray | slice = slice(None),
        weight: np.ndarray | None = None,
        *,
        ridge: float = 0.0,
        pooling: Any = 0.0,
        correction: str = "inverse",
        reference: Any = "uniform",
        reports: np.ndarray | None = None,
    ) -> Any:
        """Ask for a fit; returns the pricer, or raises what the insurer would see."""
        d = self.defence
        keys = self.keys[rows]
        reports = self.S if reports is None else reports
        if d.rules:
            new = [*self.asked, keys]
            if not (result := check_overlap(new, rarest=rarest_report(self.channel))).passed:
                raise RefusedError([result])
            self.asked = new
        release = fit_release(
            FitSettings("normal", LinearModel(ridge=ridge), correction, pooling, reference),
            X.iloc[rows],
            y[rows],
            None if weight is None else weight[rows],
            reports[rows],
            self.channel,
            ReleaseSettings(d.mechanism, d.epsilon, d.delta, self.secret),
            keys=keys,
            rules=Rules() if d.rules else None,
            drawn=without_protection(reports[rows], self.channel) if d.mechanism == "none" else None,
        )
        return release.pricer


Attack = Callable[[World, Outcome], None]


def attempt(world: World, outcome: Outcome, targets: np.ndarray, read: Callable[[], np.ndarray]) -> None:
    """Count right guesses among the targets; without an answer, guess blindly."""
    try:
        guess = read()
    except (FairPremiumError, np.linalg.LinAlgError):
        outcome.refused += 1
        guess = world.rng.choice(GROUPS, len(targets))
    for i, g in zip(targets, guess, strict=True):
        outcome.add(world.S[i] == g)


def some_targets(world: World, size: int) -> np.ndarray:
    return world.rng.choice(world.n, size, replace=False)


# --- reading what one fit returns ---


def planted_indicator(world: World, outcome: Outcome) -> None:
    """One column per target, zero elsewhere; the ridge gives every coefficient a minimum."""
    targets = some_targets(world, 10)
    X, y = world.X.copy(), world.y.copy()
    for j, i in enumerate(targets):
        X[f"planted{j}"] = (np.arange(world.n) == i).astype(float)
        y[i] += 10 * y.std()

    def read() -> np.ndarray:
        c = world.ask(X, y, ridge=3.0 * world.n).coefficients_
        return np.array([GROUPS[int(c.loc[f"planted{j}", "M"] > c.loc[f"planted{j}", "F"])] for j in range(10)])

    attempt(world, outcome, targets, read)


def hidden_spike(world: World, outcome: Outcome) -> None:
    """A typing error in one age."""
    targets = some_targets(world, 1)
    X, y = world.X.copy(), world.y.copy()
    X.loc[targets[0], "age"] += 1e5
    y[targets[0]] += 10 * y.std()

    def read() -> np.ndarray:
        c = world.ask(X, y, ridge=3.0 * world.n).coefficients_
        return np.array([GROUPS[int(c.loc["age", "M"] > c.loc["age", "F"])]])

    attempt(world, outcome, targets, read)


def planted_outcome(world: World, outcome: Outcome) -> None:
    """A loss of a thousand standard deviations in a cell of 40 rows."""
    targets = some_targets(world, 1)
    others = world.rng.choice(np.setdiff1d(np.arange(world.n), targets), 39, replace=False)
    X, y = world.X.copy(), world.y.copy()
    X["cell"] = np.isin(np.arange(world.n), [*targets, *others]).astype(float)
    y[targets[0]] += 1000 * y.std()

    def read() -> np.ndarray:
        c = world.ask(X, y).coefficients_
        return np.array([GROUPS[int(c.loc["cell", "M"] > c.loc["cell", "F"])]])

    attempt(world, outcome, targets, read)


@dataclass
class Cells:
    """Outcomes whose sums over every subset differ, so that an exact sum tells who is in it."""

    X: pd.DataFrame
    y: np.ndarray
    members: list[np.ndarray]  # those with a coded outcome

    @property
    def targets(self) -> np.ndarray:
        return np.concatenate(self.members)


def coded_cells(world: World, cells: int = 2) -> Cells:
    rows = world.rng.permutation(world.n)[: cells * CELL].reshape(cells, CELL)
    X = pd.DataFrame({f"cell{c}": np.isin(np.arange(world.n), rows[c]).astype(float) for c in range(cells)})
    y = world.rng.normal(size=world.n)
    for members in rows:
        y[members] = 0.0
        y[members[:CODED]] = 1 + world.rng.random(CODED)
    return Cells(X, y, [members[:CODED] for members in rows])


def decode(price: float, y: np.ndarray, inverse: np.ndarray, weights: tuple[float, float]) -> np.ndarray:
    """Find who reported F, who M and who nothing: the assignment that gives this price most nearly.

    With m_F and m_M reports in the cell, the price of group F is (same Y_F + other Y_M) / (same m_F + other m_M), that
    of M the other way round, and what was seen is their weighted mean: linear in the sums Y_F and Y_M of the coded
    outcomes. All assignments of one half of the rows are matched with all of the other half.
    """
    same, other = inverse[0]
    half = len(y) // 2
    digits = (np.arange(3**half)[:, None] // 3 ** np.arange(half)) % 3  # 0: F, 1: M, 2: nothing
    sums = [[(digits == g) @ part for g in (0, 1)] for part in (y[:half], y[half:])]
    best, found = math.inf, np.zeros(len(y), dtype=np.int64)
    for f in range(CELL + 1):
        for m in range(max(0, CELL // 2 - f), CELL + 1 - f):
            den = same * f + other * m, other * f + same * m
            if min(den) < 1e-9:
                continue
            a = weights[0] * same / den[0] + weights[1] * other / den[1]
            b = weights[0] * other / den[0] + weights[1] * same / den[1]
            left, right = (a * F + b * M for F, M in sums)
            order = np.argsort(right)
            place = np.searchsorted(right[order], price - left)
            for shift in (0, -1):
                at = order[np.clip(place + shift, 0, len(order) - 1)]
                gap = np.abs(left + right[at] - price)
                k = int(np.argmin(gap))
                if gap[k] < best:
                    best, found = float(gap[k]), np.concatenate([digits[k], digits[at[k]]])
    return found


def decode_cells(world: World, coded: Cells, outcome: Outcome, weights: tuple[float, float]) -> np.ndarray:
    """Guess the reports of all cells from premiums with these weights of the groups; blindly if there are none."""
    try:
        pricer = world.ask(coded.X, coded.y, reference=dict(zip(GROUPS, weights, strict=True)))
    except FairPremiumError:
        outcome.refused += 1
        return world.rng.choice(GROUPS, len(coded.targets))
    guess = []
    for members in coded.members:
        price = float(pricer.predict(coded.X.iloc[members[:1]])[0])
        found = decode(price, coded.y[members], pricer.channel_.inverse, weights)
        guess.append(np.where(found == 2, world.rng.choice(GROUPS, CODED), np.array(GROUPS)[np.minimum(found, 1)]))
    return np.concatenate(guess)


def digits(world: World, outcome: Outcome) -> None:
    """Coded outcomes of 12 rows in each of two cells, read from the coefficients of one group."""
    coded = coded_cells(world)
    for i, g in zip(coded.targets, decode_cells(world, coded, outcome, (1.0, 0.0)), strict=True):
        outcome.add(world.S[i] == g)


def digits_in_premiums(world: World, outcome: Outcome) -> None:
    """The same from the premium alone."""
    coded = coded_cells(world)
    for i, g in zip(coded.targets, decode_cells(world, coded, outcome, (0.7, 0.3)), strict=True):
        outcome.add(world.S[i] == g)


# --- comparing fits ---


def _toward(world: World, small: Any, large: Any, i: int, X: pd.DataFrame, y: np.ndarray) -> str:
    """Whose price of row i moved toward its outcome when the row came in?"""
    row = X.iloc[[i]]
    before, after = (p.predict_best_estimate(row).to_numpy()[0] for p in (small, large))
    move = (after - before) * np.sign(y[i] - before)
    return GROUPS[int(move[1] > move[0])]


def differencing(world: World, outcome: Outcome) -> None:
    """The same fit with and without one row."""
    targets = some_targets(world, 1)
    i, y = targets[0], world.y.copy()
    y[i] += 3 * y.std()
    everyone = np.arange(world.n)

    def read() -> np.ndarray:
        small = world.ask(world.X, y, everyone[everyone != i])
        return np.array([_toward(world, small, world.ask(world.X, y, everyone), i, world.X, y)])

    attempt(world, outcome, targets, read)


def weightless_padding(world: World, outcome: Outcome) -> None:
    """With and without one row and sixty others that weigh nothing, so that enough rows differ."""
    targets = some_targets(world, 1)
    i, y = targets[0], world.y.copy()
    y[i] += 3 * y.std()
    padding = world.rng.choice(np.setdiff1d(np.arange(world.n), targets), 60, replace=False)
    weight = np.ones(world.n)
    weight[padding] = 1e-9
    everyone = np.arange(world.n)
    without = np.setdiff1d(everyone, [i, *padding])

    def read() -> np.ndarray:
        small = world.ask(world.X, y, without, weight)
        return np.array([_toward(world, small, world.ask(world.X, y, everyone, weight), i, world.X, y)])

    attempt(world, outcome, targets, read)


def same_rows_other_outcome(world: World, outcome: Outcome) -> None:
    """Two fits of the same rows; in the second one outcome is higher."""
    targets = some_targets(world, 1)
    i, y = targets[0], world.y.copy()
    y[i] += 3 * y.std()

    def read() -> np.ndarray:
        before, after = (
            p.predict_best_estimate(world.X.iloc[[i]]).to_numpy()[0]
            for p in (world.ask(world.X, v) for v in (world.y, y))
        )
        return np.array([GROUPS[int((after - before)[1] > (after - before)[0])]])

    attempt(world, outcome, targets, read)


def averaged(repeats: int, *, changed: bool) -> Attack:
    """The last attack many times over: the same two questions, or ones that differ in the ninth digit."""

    def attack(world: World, outcome: Outcome) -> None:
        targets = some_targets(world, 1)
        i, y = targets[0], world.y.copy()
        y[i] += 3 * y.std()

        def read() -> np.ndarray:
            total = np.zeros(2)
            for r in range(repeats):
                shift = 1e-6 * r if changed else 0.0
                for sign, v in ((-1, world.y), (1, y)):
                    total += sign * world.ask(world.X, v + shift).predict_best_estimate(world.X.iloc[[i]]).to_numpy()[0]
            return np.array([GROUPS[int(total[1] > total[0])]])

        attempt(world, outcome, targets, read)

    attack.__doc__ = (
        f"Two fits of the same rows, {repeats} times, {'each a little different' if changed else 'the same'}."
    )
    return attack


# --- reading what is not a price ---


def standard_errors(world: World, outcome: Outcome) -> None:
    """The best guess from the covariance matrix alone, of an insurer that knows all other reports."""
    targets = some_targets(world, 1)
    i, y = targets[0], world.y.copy()
    y[i] += 5 * y.std()

    def read() -> np.ndarray:
        seen = world.ask(world.X, y)._prices.covariance
        distance = []
        for g in GROUPS:
            S = world.S.copy()
            S[i] = g
            distance.append(float(np.abs(world.ask(world.X, y, reports=S)._prices.covariance - seen).max()))
        return np.array([GROUPS[int(distance[1] < distance[0])]])

    if world.defence.mechanism == "none":
        attempt(world, outcome, targets, read)
    else:
        likelihood_ratio(world, outcome)  # all of the release, which tells more


def last_bits(world: World, outcome: Outcome) -> None:
    """The unaware price needs no report, but sums that are added up by report round differently."""
    targets = some_targets(world, 1)
    i = targets[0]

    def unaware(reports: np.ndarray) -> np.ndarray:
        return world.ask(world.X, world.y, reports=reports)._prices.unaware

    def read() -> np.ndarray:
        seen = unaware(world.S)
        same = []
        for g in GROUPS:
            S = world.S.copy()
            S[i] = g
            same.append(bool((unaware(S) == seen).all()))
        if same[0] == same[1]:
            return world.rng.choice(GROUPS, 1)
        return np.array([GROUPS[int(same[1])]])

    if world.defence.mechanism == "randomized":
        likelihood_ratio(world, outcome)  # the bits are those of the new reports, and these tell more
    else:
        attempt(world, outcome, targets, read)


def participation(world: World, outcome: Outcome) -> None:
    """Did this key report at all? Whose price moved when the row came in, and did any?"""
    i = int(some_targets(world, 1)[0])
    reported = bool(world.rng.random() < 0.5)
    if not reported:
        world.S[i] = None
    y = world.y.copy()
    y[i] += 5 * y.std()
    try:
        if world.defence.mechanism == "randomized":  # whether there is a new report is all that a release can tell
            said = fit_release_reports(world)[i] is not None
        elif world.defence.mechanism == "gaussian":
            guess = _likelihoods(world, i, y, (None, *GROUPS))
            said = float(np.logaddexp(guess[1], guess[2]) - math.log(2)) > guess[0]
        else:
            before, after = (
                p.predict_best_estimate(world.X.iloc[[i]]).to_numpy()[0]
                for p in (world.ask(world.X, v) for v in (world.y, y))
            )
            said = bool(np.abs(after - before).max() > 1e-9 * np.abs(before).max())
    except FairPremiumError:
        outcome.refused += 1
        said = bool(world.rng.random() < 0.5)
    outcome.add(said == reported)


def refusal(world: World, outcome: Outcome) -> None:
    """Choose rows so that, with all other reports known, the target decides whether 100 rows reported F."""
    i = int(some_targets(world, 1)[0])
    others = np.setdiff1d(np.arange(world.n), [i])
    of = {g: others[world.S[others] == g] for g in GROUPS}
    rows = np.sort(np.concatenate([[i], of["F"][:99], of["M"][:150]]))
    try:
        world.ask(world.X, world.y, rows)
        guess = "F"
    except RefusedError:
        guess = "M"
    except FairPremiumError:
        guess = "F"  # it failed later, so it was not refused
    outcome.add(guess == world.S[i])


# --- the best attack there is ---


class _Recorder(Releaser):
    """Keeps exact sums and answers; answers as told if it is told."""

    answers: dict[str, Any] | None = None
    exact: dict[str, np.ndarray]
    given: dict[str, Any]

    def release(self, label: str, context: Any, sensitivity: float, mu: float, shape: Any, compute: Any) -> Any:
        sums = np.asarray(compute())
        type(self).exact[label] = sums.ravel()
        if self.answers is not None:
            return self.answers[label]
        answer = super().release(label, context, sensitivity, mu, shape, lambda: sums)
        type(self).given[label] = answer
        return answer


def _recorded(world: World, y: np.ndarray, reports: np.ndarray, answers: Any = None) -> tuple[dict, dict]:
    _Recorder.answers, _Recorder.exact, _Recorder.given = answers, {}, {}
    original, gaussian.Releaser = gaussian.Releaser, _Recorder
    try:
        world.ask(world.X, y, reports=reports)
    finally:
        gaussian.Releaser = original
    return _Recorder.exact, _Recorder.given


def _likelihoods(world: World, i: int, y: np.ndarray, values: tuple) -> list[float]:
    """Log-likelihood of everything that was released, for each value of one report, all others known."""
    _, given = _recorded(world, y, world.S)
    found = []
    for value in values:
        S = world.S.copy()
        S[i] = value
        exact, _ = _recorded(world, y, S, given)
        found.append(-0.5 * sum(float((((given[k][0].ravel() - exact[k]) / given[k][1]) ** 2).sum()) for k in given))
    return found


def likelihood_ratio(world: World, outcome: Outcome) -> None:
    """Knows every report but one and all noised sums, and has shaped that row as it likes."""
    i = int(some_targets(world, 1)[0])
    y = world.y.copy()
    y[i] = y.mean() + 3 * y.std()
    try:
        if world.defence.mechanism == "gaussian":
            low, high = _likelihoods(world, i, y, GROUPS)
            guess = GROUPS[int(high > low)]
        elif world.defence.mechanism == "randomized":
            drawn = fit_release_reports(world)[i]
            guess = str(world.rng.choice(GROUPS)) if drawn is None else drawn
        else:
            guess = world.S[i]  # exact sums differ
    except FairPremiumError:
        outcome.refused += 1
        guess = str(world.rng.choice(GROUPS))
    outcome.add(guess == world.S[i])


def fit_release_reports(world: World) -> np.ndarray:
    """The randomized reports themselves: no release tells more than these."""
    from fairpremium.parties.release._randomized import randomize_reports

    d = world.defence
    return randomize_reports(world.keys, world.S, world.channel, d.epsilon, world.secret).reports


def recover_attribute(world: World, outcome: Outcome) -> None:
    """From the decoded reports to the true attribute."""
    coded = coded_cells(world)
    for i, g in zip(coded.targets, decode_cells(world, coded, outcome, (1.0, 0.0)), strict=True):
        outcome.add(world.D[i] == g)


ATTACKS: dict[str, tuple[Attack, int, int]] = {  # attack, fits per guess, worlds in a full run
    "planted indicator per target": (planted_indicator, 1, 30),
    "spike hidden in a column": (hidden_spike, 1, 200),
    "planted outcome in a cell of 40": (planted_outcome, 1, 200),
    "coded outcomes, from coefficients": (digits, 1, 40),
    "coded outcomes, from premiums": (digits_in_premiums, 1, 40),
    "with and without one row": (differencing, 2, 200),
    "the same, padded with weightless rows": (weightless_padding, 2, 200),
    "same rows, one outcome changed": (same_rows_other_outcome, 2, 200),
    "the same, asked 5 times": (averaged(5, changed=False), 2, 200),
    "the same, 5 times, each a little different": (averaged(5, changed=True), 10, 200),
    "standard errors, all other reports known": (standard_errors, 1, 400),
    "last bits of the unaware price": (last_bits, 1, 400),
    "whether a key reported": (participation, 2, 200),
    "the refusal, all other reports known": (refusal, 1, 200),
    "likelihood ratio, all other reports known": (likelihood_ratio, 1, 400),
    "the true attribute, from decoded reports": (recover_attribute, 1, 40),
}

DEFENCES = {
    "nothing": Defence("none", False),
    "rules alone": Defence("none", True),
    "noised sums alone": Defence("gaussian", False),
    "noised sums and rules": Defence("gaussian", True),
    "randomized alone": Defence("randomized", False),
    "randomized and rules": Defence("randomized", True),
}


def run(name: str, defence: Defence, worlds: int, first: int = 0, n: int = 1500) -> Outcome:
    """Run an attack in many worlds."""
    attack, fits, _ = ATTACKS[name]
    outcome = Outcome(fits=fits)
    for seed in range(first, first + worlds):
        attack(World(seed, defence, n), outcome)
    return outcome


def bound(name: str, defence: Defence, keep: float = 0.8) -> float:
    """Largest rate of right guesses that the guarantees allow for an attack."""
    of_report = defence.bound(ATTACKS[name][1])
    if name != "the true attribute, from decoded reports":
        return of_report
    return keep * of_report + (1 - keep) * (1 - of_report)
