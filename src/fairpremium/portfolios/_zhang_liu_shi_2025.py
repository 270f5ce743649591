"""The synthetic portfolio of the paper."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairpremium.arrays import Array
from fairpremium.portfolios._portfolio import SimulatedPortfolio
from fairpremium.portfolios._simulation import check_rows, column, draw_positions, number_column

GROUPS = ("F", "M")
P_SMOKER = 0.3
P_FEMALE = 0.45
P_FEMALE_SMOKER = 0.8
# Total probability: .45 = .3 * .8 + .7 * P(F given non-smoker), hence .3.
P_FEMALE_NON_SMOKER = (P_FEMALE - P_SMOKER * P_FEMALE_SMOKER) / (1 - P_SMOKER)


@dataclass(frozen=True)
class _Truth:
    """The paper's process, Section 5; it has no free parameter that the means depend on."""

    @property
    def group_distribution(self) -> dict[str, float]:
        return {"F": P_FEMALE, "M": 1 - P_FEMALE}

    def means(self, X: Any) -> Array:
        age = number_column(X, "age")
        male = 100 + 4 * age + 100 * _smoker(X)
        female = male + 120 + 200 * ((age >= 20) & (age <= 40))
        return np.column_stack([female, male])

    def propensities(self, X: Any) -> Array:
        female = np.where(_smoker(X), P_FEMALE_SMOKER, P_FEMALE_NON_SMOKER)
        return np.column_stack([female, 1 - female])


def zhang_liu_shi_2025(
    n: int = 5000, rng: int | np.random.Generator | None = None, *, age_band: bool = False, noise_sd: float = 40.0
) -> SimulatedPortfolio:
    """Draw the synthetic portfolio of Zhang, Liu and Shi (2025), Section 5.

    Parameters
    ----------
    n : int, default 5000
        Number of policyholders.
    rng : int, Generator or None
        Seed or generator; None draws anew on each call.
    age_band : bool, default False
        Add the column `age_20_40`, with which the means are linear in X (and its products with the group).
    noise_sd : float, default 40
        Standard deviation of the noise of Y.

    Returns
    -------
    SimulatedPortfolio
        X with the columns `age` (int) and `smoker` (bool), y the claim cost, `sensitive` "F" or "M", family
        "normal".

    Notes
    -----
    The model::

        Y = 100 + 4 age + 100 1{smoker} + 120 1{D = F} + 200 1{20 <= age <= 40 and D = F} + N(0, noise_sd^2)

    with P(smoker) = 0.3, P(D = F) = 0.45, P(D = F given smoker) = 0.8, hence P(D = F given non-smoker) = 0.3;
    age is independent of D and of smoker. The paper says that age takes whole values between 18 and 80 and
    not with which probabilities: ours are equal.

    X never says for certain what D is, P(D = F given x) is 0.8 or 0.3, so this portfolio has no anchor point:
    the noise rate of a channel cannot be had from (X, S) here (see the errata page of the guide).

    References
    ----------
    T. Zhang, S. Liu and P. Shi (2025), "Discrimination-Free Insurance Pricing with Privatized Sensitive
    Attributes", Section 5.

    Examples
    --------
    A woman of 30 who smokes costs 100 + 4 * 30 + 100 + 120 + 200 = 640, a man 320. Without discrimination
    both pay 0.45 * 640 + 0.55 * 320 = 464; the unaware price reads her sex off the smoking,
    0.8 * 640 + 0.2 * 320 = 576:

    >>> import pandas as pd
    >>> from fairpremium.portfolios import zhang_liu_shi_2025
    >>> p = zhang_liu_shi_2025(n=100, rng=0)
    >>> x = pd.DataFrame({"age": [30], "smoker": [True]})
    >>> p.best_estimate(x)
           F      M
    0  640.0  320.0
    >>> float(p.discrimination_free(x)[0]), float(p.unaware(x)[0])
    (464.0, 576.0)
    """
    rows = check_rows(n)
    if not (np.isfinite(noise_sd) and noise_sd >= 0):
        raise ValueError(f"Got noise_sd={noise_sd}, but expected a finite number that is not negative.")
    generator = np.random.default_rng(rng)
    X = pd.DataFrame(
        {"age": generator.integers(18, 80, size=rows, endpoint=True), "smoker": generator.random(rows) < P_SMOKER}
    )
    if age_band:
        X["age_20_40"] = X["age"].between(20, 40)
    truth = _Truth()
    d = draw_positions(truth.propensities(X), generator)
    sensitive = np.array(GROUPS, dtype=object)[d]
    y = truth.means(X)[np.arange(rows), d] + noise_sd * generator.standard_normal(rows)
    return SimulatedPortfolio(
        name="zhang_liu_shi_2025", X=X, y=y, sensitive=sensitive, groups=GROUPS, family="normal", truth=truth
    )


def _smoker(X: Any) -> NDArray[np.bool_]:
    smoker = column(X, "smoker")
    if smoker.dtype != bool and not np.isin(smoker, [0, 1]).all():
        raise ValueError("Got column 'smoker' with values other than True and False (or 1 and 0), expected only these.")
    return smoker.astype(bool)
