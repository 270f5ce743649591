"""Every empirical statement of the paper as data: what it says, and the numbers that decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairpremium.paper._errata import compute_errata
from fairpremium.paper._measures import Real, Synthetic, percent
from fairpremium.paper._real import EXACT, HALF_SAMPLE, HIGH, LEARNED, LOW, MPTP, NAIVE, OURS, PAPER, RAW
from fairpremium.paper._settings import KEEPS
from fairpremium.paper._synthetic import PERTURBED, TRUTH
from fairpremium.paper._theory import DELTA, GROUPS, ROWS, THEORY_KEEPS
from fairpremium.paper._verdict import FAILS, HOLDS, Case, combine

Cases = Iterator[Case]
BOTH = (RAW, LEARNED)
STEPS = ((0.9, 0.8), (0.8, 0.7))


@dataclass(frozen=True)
class Claim:
    """A statement and how it is measured.

    Parameters
    ----------
    id : str
    study : str
        Whose tables decide.
    source : str
        Where the statement stands: a section of the paper, or "ours" for what we add.
    statement : str
    criterion : str
        The number that must be positive (or within a margin), with its unit.
    cases : function of the study's measures
    """

    id: str
    study: str
    source: str
    statement: str
    criterion: str
    cases: Callable[[Any], Cases]

    def judge(self, measures: Any) -> dict[str, Any]:
        """Measure the statement: all cases and the verdict."""
        cases = [case.judge() for case in self.cases(measures)]
        return {
            "id": self.id,
            "source": self.source,
            "statement": self.statement,
            "criterion": self.criterion,
            "verdict": combine([case["verdict"] for case in cases]),
            "cases": cases,
        }


def judge_claims(tables: dict[str, pd.DataFrame]) -> list[dict[str, Any]]:
    """Judge every claim whose study has tables, and the errata, which need none."""
    makers: dict[str, Callable[[pd.DataFrame], Any]] = {
        "synthetic": Synthetic, "health": Real, "auto": Real, "theory": lambda table: table,
    }  # fmt: skip
    measures = {study: makers[study](table) for study, table in tables.items()}
    return [claim.judge(measures[claim.study]) for claim in CLAIMS if claim.study in measures] + judge_errata()


def judge_errata() -> list[dict[str, Any]]:
    """Return the errata in the form of claims: the statement is what is printed."""
    return [
        {
            "id": f"errata/{e.id}",
            "source": e.place,
            "statement": e.printed,
            "criterion": e.criterion,
            "verdict": HOLDS if e.holds else FAILS,
            "measured": e.measured,
            "right": e.right,
            "cases": [],
        }
        for e in compute_errata()
    ]


# --- Section 5 ---


def _accurate(m: Synthetic) -> Cases:
    means = m.class_means()
    for name, error in m.class_errors(MPTP).items():
        yield Case(name, 5 - 100 * error / means[name])


def _indirect(m: Synthetic) -> Cases:
    for method, name in ((TRUTH, "true prices"), (MPTP, "estimated with the true attribute")):
        yield Case(f"{name}, smokers pay more", m.surcharge(method, True))
        yield Case(f"{name}, non-smokers pay less", -m.surcharge(method, False))


def _synthetic_falls(m: Synthetic) -> Cases:
    for high, low in STEPS:
        yield Case(f"{high} to {low}", m.error(PAPER, low) - m.error(PAPER, high))


def _synthetic_steeper(m: Synthetic) -> Cases:
    e9, e8, e7 = (m.error(PAPER, keep) for keep in KEEPS)
    yield Case("", (e7 - e8) - (e8 - e9))


def _synthetic_degrade(m: Synthetic) -> Cases:
    for keep, wrong in PERTURBED.items():
        for assumed in wrong:
            yield Case(f"keep {keep} taken for {assumed}", m.error(PAPER, keep, assumed) - m.error(PAPER, keep))


def _asymmetry(m: Synthetic, keep: float) -> Any:
    low, high = PERTURBED[keep]
    return m.error(PAPER, keep, low) - m.error(PAPER, keep, high)


def _synthetic_under(m: Synthetic) -> Cases:
    for keep in PERTURBED:
        yield Case(f"keep {keep}", _asymmetry(m, keep))


def _synthetic_grows(m: Synthetic) -> Cases:
    yield Case("0.8 against 0.9", _asymmetry(m, 0.8) - _asymmetry(m, 0.9))


def _synthetic_low(m: Synthetic) -> Cases:
    for keep in KEEPS:
        yield Case(f"keep {keep}", keep - m.estimated_keep(keep))


def _synthetic_ours(m: Synthetic) -> Cases:
    for keep in KEEPS:
        for assumed in (keep, *PERTURBED.get(keep, ())):
            name = f"keep {keep}" if assumed == keep else f"keep {keep} taken for {assumed}"
            yield Case(name, m.error(PAPER, keep, assumed) - m.error(OURS, keep, assumed))


def _synthetic_naive(m: Synthetic) -> Cases:
    for keep in KEEPS:
        yield Case(f"keep {keep}", m.error(NAIVE, keep) - m.error(PAPER, keep))


COST = "in units of cost"
SYNTHETIC = [
    ("best-estimate", "5.1", "The best-estimate model accurately captures the ground truth for all risk classes.",
     "5 % minus the root mean square error of mu(x, d) in per cent of the class's mean cost", _accurate),
    ("indirect", "5.1", "Omitting gender leaves indirect discrimination: smokers, who are mostly women, pay more.",
     f"unaware minus discrimination-free price of smokers (the reverse for non-smokers), {COST}", _indirect),
    ("falls", "5.2", "Accuracy falls as keep falls.",
     f"increase of the root mean square error of mu(x, d), {COST}", _synthetic_falls),
    ("steeper", "5.2", "The loss of accuracy from 0.8 to 0.7 is more pronounced than from 0.9 to 0.8.",
     f"second increase minus first, {COST}", _synthetic_steeper),
    ("degrade", "5.3", "Both too low and too high a keep degrade performance.",
     f"error with the wrong keep minus error with the right one, {COST}", _synthetic_degrade),
    ("under-worse", "5.3", "Underestimating keep hurts more than overestimating it (by 0.05).",
     f"error with keep - 0.05 minus error with keep + 0.05, {COST}", _synthetic_under),
    ("asymmetry-grows", "5.3", "The asymmetry grows as keep approaches 1/K.",
     f"the difference above at 0.8 minus that at 0.9, {COST}", _synthetic_grows),
    ("estimate-low", "6.2", "The estimated keep is below the true one (here: no anchor point exists).",
     "keep minus its anchor estimate with n1 = 4", _synthetic_low),
    ("ours-better", "ours", "Ours (auto) is closer to the truth than the paper's estimator.",
     f"error of the paper's estimator minus error of ours, {COST}", _synthetic_ours),
    ("paper-beats-naive", "ours", "The paper's estimator is closer to the truth than taking reports for the truth.",
     f"error of the naive fit minus error of the paper's estimator, {COST}", _synthetic_naive),
]  # fmt: skip


# --- Section 6 and the appendix ---


def _falls(m: Real) -> Cases:
    for features in BOTH:
        for high, low in STEPS:
            yield Case(f"{features}, {high} to {low}", percent(m.loss(features, keep=low), m.loss(features, keep=high)))


def _steeper(m: Real) -> Cases:
    for features in BOTH:
        l9, l8, l7 = (m.loss(features, keep=keep) for keep in KEEPS)
        yield Case(features, percent(l7, l8) - percent(l8, l9))


def _faster(m: Real) -> Cases:
    for keep in KEEPS:
        yield Case(f"keep {keep}", m.epochs_to_converge(RAW, keep) - m.epochs_to_converge(LEARNED, keep))


def _robust(m: Real) -> Cases:
    def rise(features: str, keep: float) -> Any:
        return percent(m.loss(features, keep=keep), m.loss(features, MPTP))

    for keep in KEEPS:
        yield Case(f"keep {keep}", rise(RAW, keep) - rise(LEARNED, keep))


def _half(assumed: str) -> Callable[[Real], Cases]:
    def cases(m: Real) -> Cases:
        for features in BOTH:
            half, full = m.loss(features, assumed=assumed, sample=HALF_SAMPLE), m.loss(features, assumed=assumed)
            yield Case(features, percent(half, full))

    return cases


def _tilt(m: Real, features: str, keep: float) -> Any:
    return percent(m.loss(features, keep=keep, assumed=LOW), m.loss(features, keep=keep, assumed=HIGH))


def _under(m: Real) -> Cases:
    for features in BOTH:
        for keep in KEEPS:
            yield Case(f"{features}, keep {keep}", _tilt(m, features, keep))


def _grows(m: Real) -> Cases:
    for features in BOTH:
        for high, low in STEPS:
            yield Case(f"{features}, {low} against {high}", _tilt(m, features, low) - _tilt(m, features, high))


def _lower_error(m: Real) -> Cases:
    for assumed in (LOW, HIGH):
        for keep in KEEPS:
            raw, learned = (m.loss(features, keep=keep, assumed=assumed) for features in BOTH)
            yield Case(f"keep {keep} {assumed}", percent(raw, learned))


def _closer(m: Real) -> Cases:
    def gap(features: str, assumed: str, to: float) -> Any:
        return percent(m.loss(features, keep=0.7, assumed=assumed), m.loss(features, keep=to, assumed=assumed))

    for assumed in (LOW, HIGH):
        for to in (0.9, 0.8):
            yield Case(f"0.7 against {to}, {assumed}", gap(RAW, assumed, to) - gap(LEARNED, assumed, to))


def _low(m: Real) -> Cases:
    for keep in KEEPS:
        yield Case(f"keep {keep}", keep - m.estimated_keep(keep))


def _low_half(m: Real) -> Cases:
    yield Case("half sample, keep 0.9", 0.9 - m.estimated_keep(0.9, sample=HALF_SAMPLE))
    yield Case(
        "full and half agree within 0.02", m.estimated_keep(0.9) - m.estimated_keep(0.9, sample=HALF_SAMPLE), 0.02
    )


def _harm(m: Real, features: str, keep: float) -> Any:
    return percent(m.loss(features, keep=keep, assumed="n1 = 4"), m.loss(features, keep=keep))


def _severe(m: Real) -> Cases:
    for high, low in STEPS:
        yield Case(f"X, {low} against {high}", _harm(m, RAW, low) - _harm(m, RAW, high))


def _mitigates(m: Real) -> Cases:
    for keep in KEEPS:
        yield Case(f"keep {keep}", _harm(m, RAW, keep) - _harm(m, LEARNED, keep))


def _gain(m: Real, features: str, keep: float) -> Any:
    two, four = (m.loss(features, keep=keep, assumed=assumed) for assumed in ("n1 = 2", "n1 = 4"))
    return percent(two, four)


def _parts_better(m: Real) -> Cases:
    for keep in (0.9, 0.8):
        yield Case(f"X, keep {keep}", _gain(m, RAW, keep))


def _parts_worse(m: Real) -> Cases:
    yield Case("X, keep 0.7", -_gain(m, RAW, 0.7))


def _parts_less(m: Real) -> Cases:
    for keep in KEEPS:
        yield Case(f"keep {keep}", np.abs(_gain(m, RAW, keep)) - np.abs(_gain(m, LEARNED, keep)))


def _against(method: str, other: str) -> Callable[[Real], Cases]:
    def cases(m: Real) -> Cases:
        for features in BOTH:
            for keep in KEEPS:
                for assumed in (EXACT, LOW, HIGH, "n1 = 4"):
                    name = f"{features}, keep {keep}" + ("" if assumed == EXACT else f", {assumed}")
                    losses = [m.loss(features, which, keep, assumed) for which in (other, method)]
                    yield Case(name, percent(*losses))

    return cases


def _usable(m: Real) -> Cases:
    for keep in KEEPS:
        yield Case(f"keep {keep}", m.identified(keep) - 0.5)


ABOVE = "in per cent, 100 log(a/b)"
REAL = [
    ("falls", "6.1", "A lower keep leads to a higher test loss.", f"test loss at the lower keep above that at the higher, {ABOVE}", _falls),
    ("steeper", "5.2", "The rise from 0.8 to 0.7 is larger than from 0.9 to 0.8 (stated for the synthetic data).",
     "second rise minus first, in per cent", _steeper),
    ("faster", "6.1", "X~ converges faster than X.", "epochs until the test loss stays within 5 % of its last value, X minus X~", _faster),
    ("robust", "6.1", "X~ is more resilient to noise than X.",
     "rise of the test loss above that with the true attribute, in per cent, X minus X~", _robust),
    ("half-worse", "6.1", "Half the sample is worse (keep 0.9, known).", f"test loss with half the sample above that with all, {ABOVE}", _half(EXACT)),
    ("under-worse", "6.2", "Underestimating keep by 10 % is worse than overestimating it by 10 %.",
     f"test loss at keep - 10 % above that at keep + 10 %, {ABOVE}", _under),
    ("asymmetry-grows", "6.2", "This asymmetry becomes more pronounced as keep approaches 1/K.",
     "the number above at the lower keep minus that at the higher, in per cent", _grows),
    ("lower-error", "6.2", "X~ reduces the test error when keep is wrong by 10 %.", f"test loss with X above that with X~, {ABOVE}", _lower_error),
    ("closer", "6.2", "With X~ the test loss at 0.7 is closer to that at 0.9 and 0.8 than with X, when keep is wrong.",
     "rise of the test loss from the higher keep to 0.7, in per cent, X minus X~", _closer),
    ("estimate-low", "6.2", "In all scenarios the estimated keep is below the true one.", "keep minus its anchor estimate, n1 = 4", _low),
    ("estimate-half", "6.2", "The estimates from the full and the half sample are similar, and both too low (keep 0.9).",
     "keep minus its estimate from the half sample; difference of the estimates, margin 0.02", _low_half),
    ("severe", "6.2", "The harm of the estimated keep is more severe when keep is closer to 1/K (X).",
     "rise of the test loss from known to estimated keep, in per cent, lower keep minus higher", _severe),
    ("mitigates", "6.2", "X~ mitigates the harm of the estimated keep.", "the same rise, X minus X~, in per cent", _mitigates),
    ("half-worse-estimated", "6.2", "Half the sample is worse (keep 0.9, estimated with n1 = 4).",
     f"test loss with half the sample above that with all, {ABOVE}", _half("n1 = 4")),
    ("parts-better", "6.2", "n1 = 4 is better than n1 = 2 at keep 0.9 and 0.8 (X).", f"test loss with n1 = 2 above that with n1 = 4, {ABOVE}", _parts_better),
    ("parts-worse", "6.2", "n1 = 4 is worse than n1 = 2 at keep 0.7 (X).", f"test loss with n1 = 4 above that with n1 = 2, {ABOVE}", _parts_worse),
    ("parts-less", "6.2", "The choice of n1 matters less with X~.", "size of the effect of n1, X minus X~, in per cent", _parts_less),
    ("usable", "ours", "The library would use the anchor estimate (n1 = 4) in most runs.",
     "share of seeds in which `AnchorNoise` says that keep is identified, minus one half", _usable),
    ("ours-better", "ours", "Ours (auto) has a lower test loss than the paper's estimator at the same assumed keep.",
     f"test loss of the paper's estimator above ours, {ABOVE}", _against(OURS, PAPER)),
    ("ours-beats-naive", "ours", "Ours (auto) has a lower test loss than the naive fit.", f"test loss of the naive fit above ours, {ABOVE}", _against(OURS, NAIVE)),
    ("paper-beats-naive", "ours", "The paper's estimator has a lower test loss than the naive fit.",
     f"test loss of the naive fit above the paper's, {ABOVE}", _against(PAPER, NAIVE)),
]  # fmt: skip


# --- theory ---


def _quantity(table: pd.DataFrame, quantity: str, K: int, keep: float, n: int | None = None) -> pd.Series:
    rows = table[(table["quantity"] == quantity) & (table["groups"] == K) & (table["keep"] == keep)]
    if n is not None:
        rows = rows[rows["n"] == n]
    return rows.set_index(["n", "seed"])["value"]


def _lemma(form: str) -> Callable[[pd.DataFrame], Cases]:
    def cases(table: pd.DataFrame) -> Cases:
        for K in GROUPS:
            yield Case(f"K = {K}", 100 * _quantity(table, f"lemma, {form}", K, 0.7).to_numpy(), 1.0)

    return cases


def _within(theorem: str, promised: float) -> Callable[[pd.DataFrame], Cases]:
    def cases(table: pd.DataFrame) -> Cases:
        for K in GROUPS:
            for keep in THEORY_KEEPS:
                least = _quantity(table, f"{theorem}, within", K, keep).groupby("seed").min()
                yield Case(f"K = {K}, keep {keep}", 100 * (least.to_numpy() - promised))

    return cases


def _sharp(theorem: str) -> Callable[[pd.DataFrame], Cases]:
    def cases(table: pd.DataFrame) -> Cases:
        for K in GROUPS:
            for keep in THEORY_KEEPS:
                bound, excess = (
                    _quantity(table, f"{theorem}, {what}", K, keep, ROWS[0]).to_numpy() for what in ("bound", "excess")
                )
                with np.errstate(divide="ignore"):
                    yield Case(f"K = {K}, keep {keep}", 1 - np.log10(bound / excess))

    return cases


THEORY = [
    ("lemma-corrected", "Lemma 4.2", "The corrected risk equals the risk with the true attribute (inverse as corrected).",
     "difference in per cent of the risk, margin 1 %", _lemma("corrected")),
    ("lemma-printed", "Lemma 4.2", "The same with the inverse as printed.", "difference in per cent of the risk, margin 1 %", _lemma("printed")),
    ("bound-4.3", "Theorem 4.3", "The bound holds in simulation (delta = 0.05).",
     "share of samples within the bound minus 95 %, in percentage points, the least over n = 2,000 to 128,000", _within("4.3", 1 - DELTA)),
    ("bound-4.6", "Theorem 4.6", "The bound holds in simulation, with an anchor, n1 = 4 and eps~ as large as the error of C1 is.",
     "share of samples within the bound minus 85 %, in percentage points, the least over n = 2,000 to 128,000", _within("4.6", 1 - 3 * DELTA)),
    ("sharp-4.3", "ours", "The bound of Theorem 4.3 is sharp within a factor of ten.",
     "1 - log10(bound / 95 % quantile of the excess risk), n = 2,000: -0.5 means loose by a factor of 32", _sharp("4.3")),
    ("sharp-4.6", "ours", "The bound of Theorem 4.6 is sharp within a factor of ten.",
     "1 - log10(bound / 95 % quantile of the excess risk), n = 2,000", _sharp("4.6")),
]  # fmt: skip


def _make(study: str, rows: list[tuple[str, str, str, str, Callable[[Any], Cases]]]) -> list[Claim]:
    appendix = {"auto": "appendix, like "}.get(study, "")
    return [
        Claim(f"{study}/{name}", study, source if source == "ours" else f"{appendix}{source}", statement, criterion, cases)
        for name, source, statement, criterion, cases in rows
    ]


CLAIMS = [*_make("synthetic", SYNTHETIC), *_make("health", REAL), *_make("auto", REAL), *_make("theory", THEORY)]
