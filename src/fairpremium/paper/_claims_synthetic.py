"""Statements of Section 5 and how they are measured on the synthetic portfolio."""

from __future__ import annotations

from typing import Any

from fairpremium.paper._claim import Cases, Row
from fairpremium.paper._measures import Synthetic
from fairpremium.paper._real import MPTP, NAIVE, OURS, PAPER
from fairpremium.paper._settings import KEEPS
from fairpremium.paper._synthetic import PERTURBED, TRUTH
from fairpremium.paper._verdict import Case

STEPS = ((0.9, 0.8), (0.8, 0.7))


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
            yield Case(name, m.error(PAPER, keep, assumed, like=OURS) - m.error(OURS, keep, assumed))


def _synthetic_naive(m: Synthetic) -> Cases:
    for keep in KEEPS:
        yield Case(f"keep {keep}", m.error(NAIVE, keep) - m.error(PAPER, keep))


COST = "in units of cost"
SYNTHETIC = [
    Row(
        "best-estimate",
        "5.1",
        "The best-estimate model accurately captures the ground truth for all risk classes.",
        "5 % minus the root mean square error of mu(x, d) in per cent of the class's mean cost",
        _accurate,
    ),
    Row(
        "indirect",
        "5.1",
        "Omitting gender leaves indirect discrimination: smokers, who are mostly women, pay more.",
        f"unaware minus discrimination-free price of smokers (the reverse for non-smokers), {COST}",
        _indirect,
    ),
    Row(
        "falls",
        "5.2",
        "Accuracy falls as keep falls.",
        f"increase of the root mean square error of mu(x, d), {COST}",
        _synthetic_falls,
    ),
    Row(
        "steeper",
        "5.2",
        "The loss of accuracy from 0.8 to 0.7 is more pronounced than from 0.9 to 0.8.",
        f"second increase minus first, {COST}",
        _synthetic_steeper,
    ),
    Row(
        "degrade",
        "5.3",
        "Both too low and too high a keep degrade performance.",
        f"error with the wrong keep minus error with the right one, {COST}",
        _synthetic_degrade,
    ),
    Row(
        "under-worse",
        "5.3",
        "Underestimating keep hurts more than overestimating it (by 0.05).",
        f"error with keep - 0.05 minus error with keep + 0.05, {COST}",
        _synthetic_under,
    ),
    Row(
        "asymmetry-grows",
        "5.3",
        "The asymmetry grows as keep approaches 1/K.",
        f"the difference above at 0.8 minus that at 0.9, {COST}",
        _synthetic_grows,
    ),
    Row(
        "estimate-low",
        "6.2",
        "The estimated keep is below the true one (here: no anchor point exists).",
        "keep minus its anchor estimate with n1 = 4",
        _synthetic_low,
    ),
    Row(
        "ours-better",
        "ours",
        "Ours (auto) is closer to the truth than the paper's estimator.",
        f"error of the paper's estimator minus error of ours, {COST}",
        _synthetic_ours,
    ),
    Row(
        "paper-beats-naive",
        "ours",
        "The paper's estimator is closer to the truth than taking reports for the truth.",
        f"error of the naive fit minus error of the paper's estimator, {COST}",
        _synthetic_naive,
    ),
]
