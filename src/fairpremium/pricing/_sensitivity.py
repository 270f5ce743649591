"""How the premium moves with keep: the same fit again for other values of it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from fairpremium.errors import (
    ChannelRefutedWarning,
    ConvergenceError,
    RiskUnboundedError,
    UnattainableReferenceError,
)
from fairpremium.pricing._model_selection import correction_for
from fairpremium.privacy import RandomizedResponse

if TYPE_CHECKING:
    from fairpremium.pricing._pricer import DiscriminationFreePricer

_BELOW, _ABOVE = 3, 7  # values of keep on either side of the one that was used


def sensitivity_band(
    pricer: DiscriminationFreePricer,
    X: Any,
    y: Any,
    *,
    sensitive: Any,
    rows: Any,
    sample_weight: Any = None,
    exposure: Any = None,
    keeps: Sequence[float] | None = None,
) -> pd.DataFrame:
    """Price some risks with the pricer fitted for other values of keep; see `DiscriminationFreePricer.sensitivity`."""
    channel = getattr(pricer, "channel_", None)
    if not isinstance(channel, RandomizedResponse):
        raise ValueError(
            "Got a pricer that is not fitted, or not with a RandomizedResponse channel; a sensitivity band needs a "
            "keep to change."
        )
    grid = default_keeps(channel.keep, len(channel.groups)) if keeps is None else check_keeps(keeps, channel)
    risks, positions = _risks(X, rows)
    unaware = pricer.predict_unaware(risks)
    tables = []
    for keep in grid:
        if keep == channel.keep:
            premium = pricer.predict(risks)
        else:
            truth = keep == 1  # no channel: all corrections are the same then
            other = clone(pricer).set_params(
                model=pricer.model_,
                channel=None if truth else RandomizedResponse(channel.groups, keep=keep),
                correction="inverse" if truth else correction_for(pricer.model_, pricer.correction_),
                pooling=pricer.pooling_ if isinstance(pricer.pooling_, float) else "auto",
                intervals=False,
            )
            try:
                with warnings.catch_warnings():  # another keep than the right one is what the band is about
                    warnings.simplefilter("ignore", ChannelRefutedWarning)
                    other.fit(X, y, sensitive=sensitive, sample_weight=sample_weight, exposure=exposure)
                premium = other.predict(risks)
            except (RiskUnboundedError, ConvergenceError, UnattainableReferenceError):
                premium = np.full(len(positions), np.nan)
        columns = {"row": positions, "keep": keep, "premium": premium, "unaware": unaware, "used": keep == channel.keep}
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables).sort_values(["row", "keep"], kind="stable", ignore_index=True)


def default_keeps(keep: float, n_groups: int) -> list[float]:
    """Return values of keep around the one in use: a little below it, and all the way up to one.

    Why wider upwards: estimates of keep often err low (that of an anchor errs low only), a keep that is too low does
    far more harm than one that is too high, so that a careful user moves up, and no check sees a keep that
    is too high, while one that is too low can be refuted. At one the reports are taken for the truth, so that
    the band ends where nothing further can happen.

    Examples
    --------
    >>> [round(keep, 3) for keep in default_keeps(0.8, 2)]
    [0.725, 0.75, 0.775, 0.8, 0.829, 0.857, 0.886, 0.914, 0.943, 0.971, 1.0]
    """
    low = keep - min((1 - keep) / 2, (keep - 1 / n_groups) / 4)
    below = np.linspace(low, keep, _BELOW + 1)[:-1]
    above = np.linspace(keep, 1.0, _ABOVE + 1)[1:]
    return sorted({*map(float, below), float(keep), *map(float, above)})


def check_keeps(keeps: Sequence[float], channel: RandomizedResponse) -> list[float]:
    """Return the values of keep in order, with the one in use among them."""
    K, used = len(channel.groups), float(channel.keep)
    values = [float(keep) for keep in keeps]
    if not all(1 / K < keep <= 1 for keep in values):
        raise ValueError(f"Got keeps={values!r}, but expected numbers above 1/K = {1 / K:.3g} and at most 1.")
    return sorted({keep for keep in values if abs(keep - used) > 1e-6} | {used})


def _risks(X: Any, rows: Any) -> tuple[Any, npt.NDArray[np.intp]]:
    """Return the table of risks and their positions."""
    if hasattr(rows, "columns") or np.ndim(rows) == 2:
        return rows, np.arange(len(rows))
    positions = np.asarray(rows)
    if positions.ndim != 1 or positions.dtype.kind not in "iu" or not len(positions):
        raise ValueError("Got rows that are neither positions in X (integers) nor a table of risks like X.")
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    if positions.min() < 0 or positions.max() >= n:
        raise ValueError(f"Got rows from {positions.min()} to {positions.max()}, but X has the positions 0 to {n - 1}.")
    return _safe_indexing(X, positions), positions.astype(np.intp)
