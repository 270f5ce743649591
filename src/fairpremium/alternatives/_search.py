"""The search for tariffs that discriminate less: accuracy on held-out rows against disparity, with intervals."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtri
from sklearn.base import clone
from sklearn.utils import check_random_state

from fairpremium.arrays import Array
from fairpremium.audit import limit_changes
from fairpremium.audit.tables import AuditData, as_pandas, effective_reports
from fairpremium.corrections import describe_lack
from fairpremium.errors import ChannelRefutedWarning
from fairpremium.families import get_family
from fairpremium.models import check_volume
from fairpremium.noise import NoiseEstimator
from fairpremium.pricing import DiscriminationFreePricer
from fairpremium.progress import Progress, listening, quiet, section, tell
from fairpremium.spectrum import draw_largest_z

from ._candidate import Candidate, FeatureSet, feature_sets
from ._disparity import MEASURES

CURRENT = "current price"


@dataclass(frozen=True)
class Alternatives:
    """What `search_alternatives` found.

    Attributes
    ----------
    table : pandas.DataFrame
        One row per candidate, the current price first; see `search_alternatives`.
    premiums : pandas.DataFrame
        Cross-fitted premiums of all candidates, one column each, in the order of the rows of X.
    candidates : dict
        The candidates by name. `refit` fits one of them to all rows.
    disparity : str
        The measure of disparity.
    settings : dict
        Folds, seed and limits: with the same data they give the same table.
    """

    table: pd.DataFrame
    premiums: pd.DataFrame
    candidates: dict[str, Candidate]
    disparity: str
    settings: dict[str, Any]
    _pricer: DiscriminationFreePricer

    @property
    def frontier(self) -> pd.DataFrame:
        """The candidates that no other one beats in both accuracy and disparity, from the most accurate on.

        Those that differ by rounding alone stay in the order of the table.
        """
        rows = self.table[self.table["frontier"]]
        return rows.sort_values("deviance", key=_without_rounding, kind="stable").reset_index(drop=True)

    def refit(self, name: str, X: Any, y: Any, **settings: Any) -> FittedCandidate:
        """Fit one of the candidates to all rows.

        Parameters
        ----------
        name : str
            As in the column `candidate` of the table.
        X, y, **settings
            As for `DiscriminationFreePricer.fit`.

        Returns
        -------
        FittedCandidate
            With `predict(X)` and the pricer on the candidate's features. Limits on the change are not applied.
        """
        if name not in self.candidates:
            raise ValueError(f"Got name={name!r}, but expected one of the candidates {list(self.candidates)}.")
        candidate = self.candidates[name]
        pricer = clone(self._pricer).fit(candidate.features.apply(_table(X)), y, **settings)
        fitted = FittedCandidate(candidate, pricer)
        if not self.settings["balance"]:
            return fitted
        volume = (settings.get("sample_weight"), settings.get("exposure"))
        outcome, weight = check_volume(y, pricer.n_rows_, *volume)
        return replace(fitted, factor=_balance(fitted.predict(X), outcome, weight))


@dataclass(frozen=True)
class FittedCandidate:
    """A candidate that was fitted to all rows."""

    candidate: Candidate
    pricer: DiscriminationFreePricer
    factor: float = 1.0  # so that premiums and losses agree in total

    def predict(self, X: Any) -> Array:
        """Compute the candidate's premiums: no attribute is needed."""
        features = self.candidate.features.apply(_table(X))
        mixed = self.candidate.mix(self.pricer.predict_unaware(features), self.pricer.predict(features))
        return np.asarray(self.factor * mixed)


def search_alternatives(
    pricer: DiscriminationFreePricer,
    X: Any,
    y: Any,
    *,
    sensitive: Any,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    current: Any = None,
    disparity: str = "proxy_discrimination",
    drop: Any = "each",
    coarsen: Any = "each",
    mixtures: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
    cap: float | None = None,
    floor: float | None = None,
    balance: bool = True,
    folds: int = 3,
    level: float = 0.95,
    random_state: Any = 0,
    verbose: bool | Progress = False,
) -> Alternatives:
    r"""Try tariffs that use less, or that mix in the discrimination-free price, and compare accuracy with disparity.

    Parameters
    ----------
    pricer : DiscriminationFreePricer
        The settings of all fits: family, model class, correction. If it is fitted its channel is used, so that an
        estimated one is the same in all folds. Its model must not have terms, which name columns.
    X, y, sensitive, sample_weight, exposure, cluster
        As for `DiscriminationFreePricer.fit`. X has named columns.
    current : array-like of shape (n,), optional
        The price in force, which candidates are compared with; the cross-fitted unaware price on all features by
        default. A price that was fitted to these rows looks more accurate than it is.
    disparity : {"proxy_discrimination", "standardized_mean_difference", "kolmogorov", "wasserstein"}
        The measure of disparity. The first is the distance to the prices that infer nothing from the candidate's
        own features, as a share of the price's variance. The others compare the groups' prices: the largest difference
        of two means over the standard deviation of the price, and the distances of
        `fairpremium.spectrum.compute_parity_distance`.
    drop : "each", None, or list of columns or of lists of columns
        What to leave out: every feature in turn, or these.
    coarsen : "each", None, or dict from column to bands
        What to make coarser: every number with more than 8 values to 4 bands and every text with more than 4 levels to
        its 3 most common ones and "other", or what is given: limits ([30, 50]), levels to keep, or a number of
        bands; a list that holds lists is several wishes.
    mixtures : sequence of float
        Where candidates lie between the unaware (0) and the discrimination-free price (1) on their features.
    cap, floor : float, optional
        Constraint: largest and smallest relative change from the current price, as in
        `fairpremium.audit.limit_changes`; it applies to every candidate before it is measured.
    balance : bool
        Whether premiums are multiplied so that their total is that of the losses, in the rows that the fit has seen.
    folds : int
        A row's price comes from a fit to the other folds. Persons stay together.
    level : float
        Confidence level.
    random_state : None, int, RandomState
        Seed of the folds.
    verbose : bool or function
        Whether to print a line per fit; or a function of the part that is done, from 0 to 1, and of a few words.

    Returns
    -------
    Alternatives
        Its `table` has one row per candidate, the current price first:

        - `candidate`, `dropped`, `coarsened`, `mixture`;
        - `premium`: mean; `deviance`, `deviance_error`: mean deviance on rows that the fit has not seen, and its
          standard error; `deviance_change`, `_low`, `_high`: minus that of the current price, paired;
        - `disparity`, `disparity_error`, `disparity_change`, `_low`, `_high`: the same for the disparity;
        - `frontier`: no other candidate is at least as good in both and better in one, by more than 0.01 % of the
          largest value;
        - `answer`: "less disparity, accuracy not shown to be worse", "less disparity, less accurate", "more
          disparity" or "cannot tell".

    Notes
    -----
    Limits of the changes hold for all candidates together: they are the change -+ c standard errors, with c the level
    quantile of the largest |z| of all candidates, which are jointly about normal. A candidate may therefore be chosen
    after seeing the table. Features are coarsened by their own distribution and never by the losses. Standard errors
    contain the chance of losses and reports on these rows, with the premiums taken as given, and for proxy
    discrimination with the cross-fitted best estimates as given. The largest of several distances has no regular law
    where it is near zero or where two pairs of groups tie: intervals of "kolmogorov", "wasserstein" and
    "standardized_mean_difference" are reliable for disparities well above their standard error. Those of a change of
    "kolmogorov" are wider than needed: the largest differences of two prices are at different places.
    """
    table = _table(X)
    tried = _check(pricer, table, disparity, mixtures, folds)
    law = get_family(pricer.family)
    first = {"y": y} if current is None else {"y": y, "current": current}
    data = AuditData.read(first, sensitive, tried.channel, sample_weight, cluster, None, level, exposure)
    law.check_outcome(data["y"])
    _check_reports(data)
    volume = {"sample_weight": sample_weight, "exposure": exposure, "cluster": cluster}
    columns = {"y": np.asarray(y), "sensitive": _reports(sensitive)}
    columns |= {name: np.asarray(column) for name, column in volume.items() if column is not None}
    fold = _folds(len(table), data.reports.cluster, folds, random_state)
    sets = feature_sets(table, drop, coarsen)
    prices: dict[str, Array] = {}
    candidates: dict[str, Candidate] = {}
    best: dict[FeatureSet, Array] = {}
    for i, features in enumerate(sets):
        with listening(verbose), section(i / len(sets), (i + 1) / len(sets)):
            found = _cross_fit(tried, features, table, columns, fold)
        best[features] = found.best_estimate[:, [found.groups.index(group) for group in data.groups]]
        if features == FeatureSet() and current is None:
            data = data.with_columns(current=found.unaware)
        for mixture in mixtures:
            candidate = Candidate(features, float(mixture))
            candidates[candidate.name] = candidate
            prices[candidate.name] = found.price(candidate, data if balance else None)
    if cap is not None or floor is not None:
        limits: dict[str, Any] = {"cap": cap, "floor": floor, "sample_weight": data.reports.weight}
        prices = {name: limit_changes(data["current"], price, **limits).premiums for name, price in prices.items()}
    prices = {CURRENT: data["current"], **prices}
    _check_prices(prices, law)
    own = [best[candidates[name].features if name in candidates else FeatureSet()] for name in prices]
    rows = _table_of(prices, data, law, disparity, own)
    labels = pd.DataFrame([_labels(name, candidates.get(name)) for name in prices])
    made = {"folds": folds, "random_state": random_state, "balance": balance, "cap": cap, "floor": floor}
    return Alternatives(pd.concat([labels, rows], axis=1), pd.DataFrame(prices), candidates, disparity, made, tried)


@dataclass(frozen=True)
class _CrossFitted:
    """Prices of every row by the fit that has not seen its fold, and those of every fit for the rows that it saw."""

    groups: list[Any]
    fold: npt.NDArray[np.intp]
    ends: list[tuple[Array, Array]]  # by fold: unaware and discrimination-free price of all rows
    best_estimate: Array  # (n, K)

    @property
    def unaware(self) -> Array:
        return np.choose(self.fold, [unaware for unaware, _ in self.ends])

    def price(self, candidate: Candidate, balanced: AuditData | None) -> Array:
        """Return the price of a candidate; multiplied in each fit so that it has the total of the rows it saw."""
        found = np.empty(len(self.fold))
        for f, ends in enumerate(self.ends):
            price, seen, factor = candidate.mix(*ends), self.fold != f, 1.0
            if balanced is not None:
                factor = _balance(price[seen], balanced["y"][seen], balanced.reports.weight[seen])
            found[~seen] = factor * price[~seen]
        return found


def _cross_fit(
    pricer: DiscriminationFreePricer,
    features: FeatureSet,
    table: pd.DataFrame,
    columns: dict[str, Any],
    fold: npt.NDArray[np.intp],
) -> _CrossFitted:
    used, ends, best = features.apply(table), [], []
    folds = int(fold.max()) + 1
    for f in range(folds):
        tell(f / folds, f"{features.words}, fold {f + 1} of {folds}")
        with (
            quiet(),
            warnings.catch_warnings(),
        ):  # the channel was checked where the pricer was fitted, on all rows and features
            warnings.simplefilter("ignore", ChannelRefutedWarning)
            fitted = clone(pricer).fit(used[fold != f], **{name: column[fold != f] for name, column in columns.items()})
        ends.append((fitted.predict_unaware(used), fitted.predict(used)))
        best.append(np.asarray(fitted.predict_best_estimate(used), dtype=np.float64))
    rows = np.arange(len(fold))
    return _CrossFitted(list(fitted.groups_), fold, ends, np.stack(best)[fold, rows])


def _reports(sensitive: Any) -> Any:
    return as_pandas(sensitive) if hasattr(sensitive, "columns") else np.asarray(sensitive, dtype=object)


def _check(pricer: Any, X: pd.DataFrame, disparity: str, mixtures: Any, folds: Any) -> DiscriminationFreePricer:
    if not isinstance(pricer, DiscriminationFreePricer):
        raise TypeError(f"Got pricer of type {type(pricer).__name__}, but expected a DiscriminationFreePricer.")
    if getattr(pricer.model, "terms", None) is not None:
        raise ValueError("Got a pricer whose model has terms, which name columns. Leave terms out, and use coarsen.")
    if disparity not in MEASURES:
        raise ValueError(f"Got disparity={disparity!r}, but expected one of {', '.join(MEASURES)}.")
    if not len(mixtures) or not all(0 <= mixture <= 1 for mixture in mixtures):
        raise ValueError(f"Got mixtures={list(mixtures)}, but expected numbers from 0 (unaware) to 1.")
    if isinstance(folds, bool) or not isinstance(folds, int) or not 2 <= folds <= 20:
        raise ValueError(f"Got folds={folds!r}, but expected a whole number from 2 to 20.")
    channel = getattr(pricer, "channel_", pricer.channel)
    if isinstance(channel, Mapping):
        raise ValueError("Got a pricer with reports of several sources, but the search needs one channel.")
    if isinstance(channel, NoiseEstimator):
        raise ValueError("Got a pricer with a noise estimator that is not fitted. Fit it first: folds share a channel.")
    unfitted: DiscriminationFreePricer = clone(pricer).set_params(channel=channel, intervals=False)
    return unfitted


def _check_reports(data: AuditData) -> None:
    effective = effective_reports(data.totals([], range(len(data.groups)))["volume"])
    for group, count in zip(data.groups, effective, strict=True):
        if describe_lack(count):
            raise ValueError(f"Got {describe_lack(count)} of group {group!r}. Merge small groups first.")


def _check_prices(prices: dict[str, Array], law: Any) -> None:
    for name, price in prices.items():
        bad = int(np.count_nonzero(~law.mean.contains(price)))
        if bad:
            raise ValueError(
                f"Got {bad} premiums of {name!r} outside the means of the {law.name} family: expected every premium to "
                f"be {law.mean}."
            )


def _table(X: Any) -> pd.DataFrame:
    try:
        return as_pandas(X).reset_index(drop=True)
    except TypeError:
        raise TypeError(f"Got X of type {type(X).__name__}, but expected a data frame with named columns.") from None


def _folds(n: int, cluster: Any, folds: int, random_state: Any) -> npt.NDArray[np.intp]:
    person = np.arange(n) if cluster is None else cluster
    persons = int(person.max()) + 1
    return np.asarray(check_random_state(random_state).permutation(persons)[person] % folds)


def _balance(price: Array, y: Array, weight: Array | None) -> float:
    w = np.ones(len(y)) if weight is None else weight
    if not (w @ price > 0 and w @ y > 0):
        raise ValueError("Got premiums or losses whose total is not above zero. Pass balance=False to leave them so.")
    return float(w @ y) / float(w @ price)


def _labels(name: str, candidate: Candidate | None) -> dict[str, Any]:
    features = FeatureSet() if candidate is None else candidate.features
    return {
        "candidate": name,
        "dropped": ", ".join(features.drop),
        "coarsened": ", ".join(column for column, _ in features.coarsen),
        "mixture": float("nan") if candidate is None else candidate.mixture,
    }


def _table_of(prices: dict[str, Array], data: AuditData, law: Any, disparity: str, best: list[Array]) -> pd.DataFrame:
    """Measure all prices; the first is the current one."""
    w = data.reports.weight / data.reports.weight.sum()
    signed = np.column_stack([data.reports.signed_weight(k) for k in range(len(data.groups))])
    deviances, disparities = [], []
    for price, own in zip(prices.values(), best, strict=True):
        unit = law.unit_deviance(data["y"], price)
        mean = float(w @ unit)
        deviances.append((mean, w * (unit - mean)))
        disparities.append(MEASURES[disparity](price, signed, data.reports.weight, own))
    numbers = {
        "premium": [float(w @ price) for price in prices.values()],
        **_with_changes("deviance", deviances, data),
        **_with_changes("disparity", disparities, data),
    }
    table = pd.DataFrame(numbers)
    answers = ["", *map(_answer, table.iloc[1:].to_dict("records"))]  # the current price is not compared with itself
    return table.assign(frontier=_frontier(table), answer=answers)


def _with_changes(name: str, found: list[tuple[float, Array]], data: AuditData) -> dict[str, Array]:
    """Return values with standard errors, and changes from the first with limits that hold for all."""
    value, influence = np.array([v for v, _ in found]), np.column_stack([i for _, i in found])
    error = data.reports.from_influence(value, influence).standard_error
    change = data.reports.from_influence(value - value[0], influence - influence[:, :1])
    differs = change.standard_error > 1e-9 * float(error.max())  # the first does not differ from itself
    spread, moved = np.where(differs, change.standard_error, 0.0), np.where(differs, change.value, 0.0)
    c = ndtri(0.5 + data.level / 2)
    if differs.any():
        c = float(np.quantile(draw_largest_z(change.covariance[np.ix_(differs, differs)]), data.level))
    return {
        name: value,
        f"{name}_error": error,
        f"{name}_change": moved,
        f"{name}_change_low": moved - c * spread,
        f"{name}_change_high": moved + c * spread,
    }


_ALIKE = 1e-4  # of the largest value


def _frontier(table: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which candidates no other one beats; differences below `_ALIKE` of the largest count as none."""
    a, b = (table[name].to_numpy(dtype=np.float64) for name in ("deviance", "disparity"))
    close_a, close_b = (_ALIKE * np.abs(values).max(initial=0.0) for values in (a, b))
    better = (a[:, None] > a + close_a) | (b[:, None] > b + close_b)
    beaten = (a[:, None] >= a - close_a) & (b[:, None] >= b - close_b) & better
    return np.asarray(~beaten.any(axis=1))


def _without_rounding(values: pd.Series) -> pd.Series:
    """Return numbers with ten significant digits."""
    return values.map("{:.9e}".format).astype(float)


def _answer(row: dict[str, Any]) -> str:
    if row["disparity_change_low"] > 0:
        return "more disparity"
    if row["disparity_change_high"] >= 0:
        return "cannot tell"
    if row["deviance_change_low"] > 0:
        return "less disparity, less accurate"
    return "less disparity, accuracy not shown to be worse"
