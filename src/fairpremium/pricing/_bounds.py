"""The paper's excess-risk bounds (Theorems 4.3 and 4.6), and the rows and splits that they ask for."""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.labels import check_labels


@dataclass(frozen=True)
class ExcessRiskBound:
    """How much worse than the best model the fitted one may be, term by term.

    Attributes
    ----------
    estimation : float
        2 M A sqrt(log(1/delta) / (2n)): the deviation term, the only one that more rows shrink by themselves.
    rademacher : float
        4 times the Rademacher complexity that was passed in.
    noise : float
        4 M c1_error, the price of an estimated channel; 0 when the channel is known.
    probability : float
        With which probability, at least, R(f_hat) - R(f*) is at most `total`.
    """

    estimation: float
    rademacher: float
    noise: float
    probability: float

    @property
    def total(self) -> float:
        """The sum of the three terms."""
        return self.estimation + self.rademacher + self.noise


def inverse_constants(groups: int | Sequence[Any], keep: float) -> tuple[float, float]:
    """Return C1 and C2, the diagonal and the off-diagonal entry of T^-1 for randomized response.

    Parameters
    ----------
    groups : int or sequence of labels
        K, or the K groups.
    keep : float
        pi = P(S = D), above 1/K and at most one.

    Returns
    -------
    C1, C2 : float
        The weight of a row in the sums of the group that it reports, and in those of every other group.

    Notes
    -----
    ::

        C1 = (pi + K - 2) / (K pi - 1) >= 1,     C2 = (pi - 1) / (K pi - 1) <= 0,     C1 + (K - 1) C2 = 1

    where pi is `keep` and K the number of `groups`. Theorem 4.3 of the paper prints C1 =
    (pi + K - 2)/(K pi) - 1; its Lemma 4.2 has the form above, which is the inverse.

    Examples
    --------
    >>> C1, C2 = inverse_constants(2, keep=0.75)      # 0.75 / 0.5 and -0.25 / 0.5
    >>> C1, C2
    (1.5, -0.5)
    """
    K = check_group_count(groups)
    pi = check_keep(K, keep)
    return (pi + K - 2) / (K * pi - 1), (pi - 1) / (K * pi - 1)


def excess_risk_bound(
    n: int,
    *,
    groups: int | Sequence[Any] | None = None,
    keep: float | None = None,
    epsilon: float | None = None,
    channel: Any = None,
    loss_bound: float,
    delta: float,
    rademacher: float = 0.0,
    c1_error: float | None = None,
) -> ExcessRiskBound:
    r"""Bound the excess risk of the inverse-weighted fit, R(f_hat) - R(f*).

    Parameters
    ----------
    n : int
        Number of rows.
    groups, keep, epsilon
        Randomized response: the number of groups (or their labels) and exactly one of `keep` and `epsilon`.
    channel : object with ``inverse``, optional
        Any other channel, instead of the three above; ``inverse`` has shape (groups, reports).
    loss_bound : float
        M, with 0 <= L <= M. Squared loss and deviances have no such bound unless outcomes and predictions do.
    delta : float
        Failure probability per event: in (0, 1) for a known channel, in (0, 1/3) for an estimated one.
    rademacher : float, default 0
        Rademacher complexity of the *weighted* loss class (of the enlarged one when `c1_error` is given).
        With 0 the bound lacks that term and says only what the deviation costs.
    c1_error : float, optional
        eps~, a bound on the error of the estimated C1 that holds with probability 1 - delta (see
        `required_splits`); None for a known channel. For another square channel: half the largest l1 error of
        a column of T^-1.

    Returns
    -------
    ExcessRiskBound
        With `estimation`, `rademacher`, `noise`, `total` and `probability`.

    Notes
    -----
    Known channel (Theorem 4.3), with probability at least 1 - delta::

        R(f_hat) <= R(f*) + 4 Rad_n + 2 M A sqrt(log(1/delta) / (2n)),       A = C1 + (K - 1) |C2| = 2 C1 - 1

    Estimated channel (Theorem 4.6), with probability at least 1 - 3 delta as stated there; its proof needs
    two events only and gives 1 - 2 delta::

        R(f_hat) <= R(f*) + 4 Rad_n + 2 M (A + 2 eps~) sqrt(log(1/delta) / (2n)) + 4 M eps~

    where

    - M is `loss_bound`, eps~ is `c1_error`, Rad_n is `rademacher`,
    - C1 = (pi + K - 2)/(K pi - 1) and C2 are those of `inverse_constants` (the theorem prints C1 wrongly),
    - for any channel A is the width of sum_k T^-1[k, s] L_k over all s and all L_k in [0, 1]: the largest sum
      of the positive entries of a column of T^-1 plus the largest sum of the negative ones. When T is square
      the columns of T^-1 sum to one and A is the largest l1 norm of a column.

    The last line of the paper's proof of Theorem 4.3 lost the square root; the theorem has it.

    Examples
    --------
    K = 2, keep = 0.75 has C1 = 1.5, C2 = -0.5 and A = 2; with M = 1, delta = exp(-2), n = 400 the deviation
    term is 2 * 1 * 2 * sqrt(2 / 800) = 0.2:

    >>> import math
    >>> bound = excess_risk_bound(400, groups=2, keep=0.75, loss_bound=1.0, delta=math.exp(-2))
    >>> round(bound.estimation, 12), bound.noise
    (0.2, 0.0)

    An error of 0.1 in C1 turns A into 2.2 and adds 4 * 0.1:

    >>> bound = excess_risk_bound(400, groups=2, keep=0.75, loss_bound=1.0, delta=math.exp(-2), c1_error=0.1)
    >>> round(bound.estimation, 12), bound.noise, round(bound.total, 12)
    (0.22, 0.4, 0.62)
    """
    rows = check_rows(n, "n")
    if not (math.isfinite(rademacher) and rademacher >= 0):
        raise ValueError(f"Got rademacher={rademacher}, but expected a finite number that is not negative.")
    width, log_term = _check_bound(resolve_inverse(groups, keep, epsilon, channel)[0], loss_bound, delta, c1_error)
    return ExcessRiskBound(
        estimation=2 * width * math.sqrt(log_term / (2 * rows)),
        rademacher=4 * rademacher,
        noise=0.0 if c1_error is None else 4 * loss_bound * c1_error,
        probability=1 - delta if c1_error is None else 1 - 3 * delta,
    )


def required_rows(
    target: float,
    *,
    groups: int | Sequence[Any] | None = None,
    keep: float | None = None,
    epsilon: float | None = None,
    channel: Any = None,
    loss_bound: float,
    delta: float,
    c1_error: float | None = None,
) -> int:
    """Return the smallest number of rows for which the deviation term of the bound is at most `target`.

    Parameters
    ----------
    target : float
        Wanted size of `ExcessRiskBound.estimation`, in units of the loss.
    groups, keep, epsilon, channel, loss_bound, delta, c1_error
        As for `excess_risk_bound`.

    Notes
    -----
    From 2 M A sqrt(log(1/delta) / (2n)) <= t follows n >= 2 (M A / t)^2 log(1/delta), where t is `target` and
    A, M as in `excess_risk_bound` (A + 2 eps~ with `c1_error`). More rows do not shrink the term 4 M eps~,
    and how the Rademacher term shrinks depends on the models.

    Examples
    --------
    The other way round of the example there, 2 * (1 * 2 / 0.2)^2 * 2 = 400 (here just below 0.2, hence one
    more):

    >>> import math
    >>> required_rows(0.1999, groups=2, keep=0.75, loss_bound=1.0, delta=math.exp(-2))
    401
    """
    if not (math.isfinite(target) and target > 0):
        raise ValueError(f"Got target={target}, but expected a positive finite number.")
    width, log_term = _check_bound(resolve_inverse(groups, keep, epsilon, channel)[0], loss_bound, delta, c1_error)
    # The relative error of these few roundings is below 1e-14: at a whole number do not add a row for it.
    return max(1, math.ceil(2 * (width / target) ** 2 * log_term * (1 - 1e-14)))


def required_splits(
    c1_error: float,
    *,
    groups: int | Sequence[Any],
    keep: float | None = None,
    epsilon: float | None = None,
    bias: float,
    norm_bound: float,
    delta: float,
    constant: float,
) -> int:
    """Return n1, the number of random splits of the rows that Theorem 4.6 asks for.

    Parameters
    ----------
    c1_error : float
        eps~, the wanted bound on the error of the averaged C1, with probability 1 - delta.
    groups, keep, epsilon
        Randomized response as it truly is; exactly one of `keep` and `epsilon`.
    bias : float
        theta of Assumption B, a bound on the bias of C1 in each split; below `c1_error`. It does not vanish
        with more rows when there is no anchor point.
    norm_bound : float
        M_g of Assumption A, a bound on the sub-exponential norm of C1 in each split. That norm is never below
        the mean over log 2 (Jensen), so M_g >= (C1 - theta) / log 2.
    delta : float
        Failure probability, in (0, 1/3).
    constant : float
        The absolute constant c of Bernstein's inequality, which the paper does not name. There is no default:
        the answer is inversely proportional to it.

    Notes
    -----
    ::

        n1 >= (M_g + (C1 + theta) / ln 2)^2 ln(2/delta) / (c (eps~ - theta)^2)
        if M_g + (C1 + theta) / ln 2 > eps~ > theta

    where eps~ is `c1_error`, theta is `bias`, M_g is `norm_bound`, c is `constant`. The paper's experiments
    use two and four splits, calling their number the group size.

    Examples
    --------
    K = 2 and keep = 0.75 have C1 = 1.5; with theta = 0 and the smallest M_g = 1.5 / ln 2 the numerator is
    (3 / ln 2)^2 ln(2/delta) = 18.7 ln(2/delta):

    >>> import math
    >>> required_splits(1.0, groups=2, keep=0.75, bias=0.0, norm_bound=1.5 / math.log(2),
    ...                 delta=2 * math.exp(-7), constant=1.0)       # 18.73 * 7 = 131.1
    132
    """
    K, pi = check_randomized_response(groups, keep, epsilon)
    C1, _ = inverse_constants(K, pi)
    failure = _check_delta(delta, c1_error)
    if not (math.isfinite(bias) and 0 <= bias < c1_error):
        raise ValueError(
            f"Got bias={bias} and c1_error={c1_error}, but expected 0 <= bias < c1_error: averaging cannot "
            "remove a bias."
        )
    for name, value in (("norm_bound", norm_bound), ("constant", constant)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"Got {name}={value}, but expected a positive finite number.")
    if norm_bound * (1 + 1e-12) < (C1 - bias) / math.log(2):
        raise ValueError(
            f"Got norm_bound={norm_bound}, but expected at least (C1 - bias)/log 2 = "
            f"{(C1 - bias) / math.log(2):.6g}: the sub-exponential norm is never below the mean over log 2."
        )
    norm = norm_bound + (C1 + bias) / math.log(2)
    if c1_error >= norm:
        raise ValueError(
            f"Got c1_error={c1_error}, but expected less than norm_bound + (C1 + bias)/log 2 = {norm:.4g}, "
            "where Theorem 4.6 holds. Ask for a smaller error."
        )
    return math.ceil((norm / (c1_error - bias)) ** 2 * math.log(2 / failure) / constant)


def check_group_count(groups: int | Sequence[Any]) -> int:
    """Return K from a number or from the labels."""
    if isinstance(groups, (int, np.integer)) and not isinstance(groups, (bool, np.bool_)):
        K = int(groups)
    else:
        K = len(check_labels(groups, "groups"))
    if K < 2:
        raise ValueError(f"Got {K} group(s), but expected at least 2.")
    return K


def check_keep(K: int, keep: float) -> float:
    """Return pi, refusing what leaves no information (1/K and below) and what is no probability."""
    if not 1 / K < keep <= 1 or K * keep - 1 <= 0:
        raise ValueError(
            f"Got keep={keep} with {K} groups, but expected 1/{K} < keep <= 1: at 1/{K} a report says nothing."
        )
    return float(keep)


def check_randomized_response(
    groups: int | Sequence[Any], keep: float | None, epsilon: float | None
) -> tuple[int, float]:
    """Return K and pi = e^epsilon / (K - 1 + e^epsilon) from exactly one of `keep` and `epsilon`."""
    K = check_group_count(groups)
    if (keep is None) == (epsilon is None):
        raise ValueError(
            f"Got keep={keep} and epsilon={epsilon}, but expected exactly one of them: each follows from the other."
        )
    if epsilon is not None:
        if not epsilon > 0:
            raise ValueError(f"Got epsilon={epsilon}, but expected a positive number: at 0 a report says nothing.")
        keep = 1 / (1 + (K - 1) * math.exp(-epsilon))
    assert keep is not None
    return K, check_keep(K, keep)


def resolve_inverse(
    groups: int | Sequence[Any] | None, keep: float | None, epsilon: float | None, channel: Any
) -> tuple[npt.NDArray[np.float64], float]:
    """Return T^-1, shape (groups, reports), and the keep of randomized response (nan for a given channel)."""
    if channel is None:
        if groups is None:
            raise ValueError("Got neither groups nor channel, but expected one of them.")
        K, pi = check_randomized_response(groups, keep, epsilon)
        C1, C2 = inverse_constants(K, pi)
        return np.where(np.eye(K, dtype=bool), C1, C2), pi
    if groups is not None or keep is not None or epsilon is not None:
        raise ValueError("Got channel and one of groups, keep, epsilon, but expected the channel alone: it has them.")
    if not hasattr(channel, "inverse"):
        raise TypeError(
            f"Got channel of type {type(channel).__name__}, but expected an object with `inverse`, such as "
            "fairpremium.RandomizedResponse or fairpremium.Channel."
        )
    inverse = np.asarray(channel.inverse, dtype=np.float64)
    if inverse.ndim != 2 or inverse.shape[0] < 2 or not np.isfinite(inverse).all():
        raise ValueError(
            f"Got channel.inverse of shape {inverse.shape}, but expected finite numbers of shape (groups, reports)."
        )
    return inverse, math.nan


def _check_bound(
    inverse: npt.NDArray[np.float64], loss_bound: float, delta: float, c1_error: float | None
) -> tuple[float, float]:
    """Return M A (M (A + 2 eps~) when the channel is estimated) and log(1 / delta)."""
    if not (math.isfinite(loss_bound) and loss_bound > 0):
        raise ValueError(
            f"Got loss_bound={loss_bound}, but expected a positive finite number. The theorems need a "
            "bounded loss: bound outcomes and predictions."
        )
    failure = _check_delta(delta, c1_error)
    A = float(inverse.clip(min=0).sum(axis=0).max() - inverse.clip(max=0).sum(axis=0).min())
    if c1_error is not None:
        K, reports = inverse.shape
        if reports != K:
            raise ValueError(
                f"Got c1_error with a channel of {reports} reports and {K} groups, but Theorem 4.6 needs as many "
                "reports as groups."
            )
        A += 2 * c1_error
    return loss_bound * A, math.log(1 / failure)


def _check_delta(delta: float, c1_error: float | None) -> float:
    if c1_error is not None and not (math.isfinite(c1_error) and c1_error > 0):
        raise ValueError(
            f"Got c1_error={c1_error}, but expected a positive finite number, or None when the channel is known."
        )
    limit, words = (1.0, "1") if c1_error is None else (1 / 3, "1/3")
    if not 0 < delta < limit:
        raise ValueError(f"Got delta={delta}, but expected a failure probability between 0 and {words}.")
    return float(delta)


def check_rows(n: int, name: str) -> int:
    """Return a number of rows as an int, refusing everything that is not a positive whole number."""
    try:
        rows = operator.index(n)
    except TypeError:
        raise TypeError(f"Got {name}={n!r}, but expected a positive whole number of rows.") from None
    if rows < 1:
        raise ValueError(f"Got {name}={n}, but expected a positive whole number of rows.")
    return rows
