"""The losses by which candidates are compared, and what is told about each: from the reports, never the attribute.

The corrected risk and the report log-loss are means over rows. Their standard errors treat persons, not rows, as
independent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import Rows, Stream, one_blas_thread
from fairpremium.corrections._latent import SAMPLE_ROWS
from fairpremium.errors import FairPremiumError
from fairpremium.families import Family

if TYPE_CHECKING:
    from fairpremium.corrections._fit import GroupFit

CHECK_ROWS = 30_000  # rows on which model classes are compared
FAILURES = (FairPremiumError, np.linalg.LinAlgError, FloatingPointError)


@dataclass(frozen=True)
class CandidateResult:
    """What the checks found for one candidate, and why it was chosen or not."""

    correction: str
    detail: str
    pooling: float  # strength in rows; NaN: empirical Bayes
    chosen: bool
    reason: str
    risk: float = np.nan
    risk_error: float = np.nan
    report_loss: float = np.nan
    report_loss_error: float = np.nan
    model: str = "linear"


def corrected_risk(
    family: Family, y: Array, best_estimate: Array, report: npt.NDArray[Any], table: Array, weight: Array | None = None
) -> tuple[float, float]:
    """Estimate the mean deviance of mu(x, D) under the true attribute from the reports, and its standard error.

    Parameters
    ----------
    family : Family
    y : array of shape (n,)
    best_estimate : array of shape (n, K)
        mu(x_i, k), however it was fitted, on rows that the fit did not see.
    report : integer array of shape (n,)
        Codes of the reports; the number of reports stands for a missing one.
    table : array of shape (K, reports + 1)
        The inverse channel with a zero column for the missing report, as in a `ReportChannel`.
    weight : array of shape (n,), optional

    Notes
    -----
    The risk is that of the paper's Lemma 4.2, as a mean over the volume that reported:

        sum_i w_i sum_k T^-1[k, s_i] d(y_i, mu(x_i, k)) / sum_i w_i.

    It is unbiased for every mu, and may be negative by chance when the noise is large.
    """
    reported = report < table.shape[1] - 1
    w = reported.astype(float) if weight is None else np.where(reported, weight, 0.0)
    loss = np.einsum("ik,ik->i", table.T[report], family.unit_deviance(y[:, None], best_estimate))
    return mean_and_error(loss, w)


def mean_and_error(
    values: Array, weight: Array | None = None, cluster: npt.NDArray[Any] | None = None
) -> tuple[float, float]:
    """Compute a weighted mean and its standard error; (inf, nan) if a value is not finite.

    `cluster` says whose row it is: rows of one person are not independent, and deviations add up per person before they
    are squared.
    """
    if not np.isfinite(values).all():
        return np.inf, np.nan
    weight = np.ones(len(values)) if weight is None else weight
    total = weight.sum()
    mean = float(weight @ values / total)
    deviation = weight * (values - mean)
    if cluster is not None:
        deviation = np.asarray(np.bincount(cluster, weights=deviation), dtype=np.float64)
    return mean, float(np.sqrt(np.sum(deviation**2)) / total)


def paired_z(difference: Array, weight: Array | None = None, cluster: npt.NDArray[Any] | None = None) -> float:
    """Compute how many standard errors a mean difference is above zero."""
    if not np.isfinite(difference).all():
        return np.inf
    mean, error = mean_and_error(difference, weight, cluster)
    return mean / error if error > 0 else 0.0


def held_risk(family: Family, held: Rows, eta: Array, table: Array) -> Array:
    """Compute each row's corrected deviance, sum_k T^-1[k, s] d(y, mu_k)."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        deviance = family.unit_deviance(held.y[:, None], family.link.mean_of(eta))
    return np.asarray(np.einsum("ik,ik->i", table.T[held.report], deviance))


def losses_of_fit(fit: "GroupFit", posterior: Any) -> dict[str, Any]:
    """Compute both losses of a linear fit on its own rows, evenly spaced ones if there are many.

    `posterior` is its P(D given x, y) with `report_log_loss`, or None. There are no losses where rows were merged,
    because those do not tell how their outcomes differ, and none of a source with a given pooling, which would have to
    be read once more.
    """
    problem, table = fit.problem, fit.channel.table
    merged = len(problem.rows) < problem.moments.counts.sum()
    if merged or (isinstance(problem.rows, Stream) and fit.strength is not None):
        return {}
    rows = problem.rows.spaced(SAMPLE_ROWS).reported(table.shape[1] - 1)
    coefficients = fit.coefficients
    with one_blas_thread():  # other threads come later than the result
        eta = rows.X @ coefficients[1:] + coefficients[0]
    risk, risk_error = mean_and_error(held_risk(problem.family, rows, eta, table), rows.weight, rows.cluster)
    found = {"risk": risk, "risk_error": risk_error}
    if posterior is not None:
        loss, error = mean_and_error(rows.map(posterior.report_log_loss), cluster=rows.cluster)
        found |= {"report_loss": loss, "report_loss_error": error}
    return found


def held_volumes(held: Sequence[Rows]) -> Array:
    """Return the volumes of held-out folds, one after the other."""
    return np.concatenate([np.ones(len(h)) if h.weight is None else h.weight for h in held])


def held_persons(held: Sequence[Rows]) -> npt.NDArray[Any] | None:
    """Return whose rows held-out folds hold, one after the other; None if each row is a person of its own."""
    codes = [h.cluster for h in held if h.cluster is not None]
    return np.concatenate(codes) if codes else None
