"""How the premium moves with the channel: the same fit again for others."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from fairpremium.arrays import Array
from fairpremium.corrections import ReportChannel
from fairpremium.errors import (
    ChannelRefutedWarning,
    ConvergenceError,
    RiskUnboundedError,
    SourcesDependWarning,
    UnattainableReferenceError,
)
from fairpremium.pricing._model_selection import correction_for
from fairpremium.pricing._possible_channels import tabulate_channels
from fairpremium.progress import listening, quiet, tell

if TYPE_CHECKING:
    from fairpremium.pricing._pricer import DiscriminationFreePricer

_LEAST = 9  # channels that an interval of keeps takes at least: five values and their middles


def sensitivity_band(
    pricer: DiscriminationFreePricer,
    X: Any,
    y: Any,
    *,
    sensitive: Any,
    rows: Any,
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    keeps: Any = None,
    keep: Any = None,
    channels: Any = None,
    level: float | None = None,
) -> pd.DataFrame:
    """Price some risks with the pricer fitted for other channels; see `DiscriminationFreePricer.sensitivity`."""
    used: Any = getattr(pricer, "channel_", None)
    data = {
        "sensitive": sensitive, "channel_key": channel_key, "sample_weight": sample_weight, "exposure": exposure,
        "cluster": cluster,
    }  # fmt: skip
    risks, positions = _risks(X, rows)
    several = keeps if channels is None else channels
    tried, expected = 0, max(_LEAST, len(several) if isinstance(several, list | tuple | np.ndarray) else 0)

    def evaluate(channel: Any) -> tuple[pd.DataFrame, Array]:
        nonlocal tried
        tell(min(tried / expected, 0.99), f"channel {tried + 1}")
        tried += 1
        if channel == used and (level is None or pricer.has_intervals_):
            fitted: DiscriminationFreePricer | None = pricer
        else:
            fitted = _refit(pricer, channel, X, y, data, intervals=level is not None)
        nothing = np.full(len(positions), np.nan)
        premium = nothing if fitted is None else fitted.predict(risks)
        columns = {"row": positions, "premium": premium}
        if level is not None:
            ends = (nothing, nothing) if fitted is None else fitted.predict_interval(risks, level=level)
            columns |= dict(zip(("low", "high"), ends, strict=True))
        return pd.DataFrame({**columns, "unaware": pricer.predict_unaware(risks)}), np.asarray(premium)

    given = {"keeps": keeps, "keep": keep, "channels": channels}
    with listening(pricer.verbose):
        table = tabulate_channels(used, given, evaluate)
    ordered = ["row", *(name for name in table.columns if name not in ("row", "used")), "used"]
    return table[ordered].sort_values("row", kind="stable", ignore_index=True)


def _refit(
    pricer: DiscriminationFreePricer, channel: Any, X: Any, y: Any, data: dict[str, Any], *, intervals: bool
) -> DiscriminationFreePricer | None:
    """Make the same fit with another channel; None where it has no solution."""
    truth = ReportChannel.of(channel, pricer.groups_).truth  # all corrections are the same then
    fitted: DiscriminationFreePricer = clone(pricer).set_params(
        model=pricer.model_,
        channel=channel,
        correction="inverse" if truth else correction_for(pricer.model_, pricer.correction_),
        pooling=pricer.pooling_ if isinstance(pricer.pooling_, float) else "auto",
        intervals=intervals,
        verbose=False,
    )
    try:
        with quiet(), warnings.catch_warnings():  # another channel than the right one is what the band is about
            warnings.simplefilter("ignore", ChannelRefutedWarning)
            warnings.simplefilter("ignore", SourcesDependWarning)
            fitted.fit(X, y, **data)
    except (RiskUnboundedError, ConvergenceError, UnattainableReferenceError):
        return None
    return fitted


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
