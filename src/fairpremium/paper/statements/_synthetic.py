"""Statements of Section 5 and how they are measured on the synthetic portfolio."""

from functools import partial
from typing import Any

from fairpremium.paper._setup import KEEPS, MPTP, NAIVE, OURS, PAPER
from fairpremium.paper._synthetic import PERTURBED, TRUTH
from fairpremium.paper.statements._measures import Synthetic
from fairpremium.paper.statements._statement import Case, Cases, Statement, state

COST = "in units of cost"
SYNTHETIC: list[Statement] = []
_state = partial(state, SYNTHETIC)


@_state("5.1", "5 % minus the root mean square error of mu(x, d) in per cent of the class's mean cost")
def best_estimate(m: Synthetic) -> Cases:
    """The best-estimate model accurately captures the ground truth for all risk classes."""
    means = m.class_means()
    for name, error in m.class_errors(MPTP).items():
        yield Case(name, 5 - 100 * error / means[name])


@_state("5.1", f"unaware minus discrimination-free price of smokers (the reverse for non-smokers), {COST}")
def indirect(m: Synthetic) -> Cases:
    """Omitting gender leaves indirect discrimination: smokers, who are mostly women, pay more."""
    for method, name in ((TRUTH, "true prices"), (MPTP, "estimated with the true attribute")):
        yield Case(f"{name}, smokers pay more", m.surcharge(method, True))
        yield Case(f"{name}, non-smokers pay less", -m.surcharge(method, False))


@_state("5.2", f"increase of the root mean square error of mu(x, d), {COST}")
def falls(m: Synthetic) -> Cases:
    """Accuracy falls as keep falls."""
    for high, low in ((0.9, 0.8), (0.8, 0.7)):
        yield Case(f"{high} to {low}", m.error(PAPER, low) - m.error(PAPER, high))


@_state("5.2", f"second increase minus first, {COST}")
def steeper(m: Synthetic) -> Cases:
    """The loss of accuracy from 0.8 to 0.7 is more pronounced than from 0.9 to 0.8."""
    e9, e8, e7 = (m.error(PAPER, keep) for keep in KEEPS)
    yield Case("", (e7 - e8) - (e8 - e9))


@_state("5.3", f"error with the wrong keep minus error with the right one, {COST}")
def degrade(m: Synthetic) -> Cases:
    """Both too low and too high a keep degrade performance."""
    for keep, wrong in PERTURBED.items():
        for assumed in wrong:
            yield Case(f"keep {keep} taken for {assumed}", m.error(PAPER, keep, assumed) - m.error(PAPER, keep))


def _asymmetry(m: Synthetic, keep: float) -> Any:
    low, high = PERTURBED[keep]
    return m.error(PAPER, keep, low) - m.error(PAPER, keep, high)


@_state("5.3", f"error with keep - 0.05 minus error with keep + 0.05, {COST}")
def under_worse(m: Synthetic) -> Cases:
    """Underestimating keep hurts more than overestimating it (by 0.05)."""
    for keep in PERTURBED:
        yield Case(f"keep {keep}", _asymmetry(m, keep))


@_state("5.3", f"the difference above at 0.8 minus that at 0.9, {COST}")
def asymmetry_grows(m: Synthetic) -> Cases:
    """The asymmetry grows as keep approaches 1/K."""
    yield Case("0.8 against 0.9", _asymmetry(m, 0.8) - _asymmetry(m, 0.9))


@_state("6.2", "keep minus its anchor estimate with n1 = 4")
def estimate_low(m: Synthetic) -> Cases:
    """The estimated keep is below the true one (here: no anchor point exists)."""
    for keep in KEEPS:
        yield Case(f"keep {keep}", keep - m.estimated_keep(keep))


@_state("ours", f"error of the paper's estimator minus error of ours, {COST}")
def ours_better(m: Synthetic) -> Cases:
    """Ours (auto) is closer to the truth than the paper's estimator."""
    for keep in KEEPS:
        for assumed in (keep, *PERTURBED.get(keep, ())):
            name = f"keep {keep}" if assumed == keep else f"keep {keep} taken for {assumed}"
            yield Case(name, m.error(PAPER, keep, assumed) - m.error(OURS, keep, assumed))


@_state("ours", f"error of the naive fit minus error of the paper's estimator, {COST}")
def paper_beats_naive(m: Synthetic) -> Cases:
    """The paper's estimator is closer to the truth than taking reports for the truth."""
    for keep in KEEPS:
        yield Case(f"keep {keep}", m.error(NAIVE, keep) - m.error(PAPER, keep))
