"""How the numbers of an audit move with keep: the same sums again for other values of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fairpremium.pricing import check_keeps, default_keeps
from fairpremium.privacy import Channel, RandomizedResponse

from ._audit_data import as_pandas, frame_like_source
from ._groups import compute_group_means


def compute_keep_sensitivity(
    premiums: Any,
    y: Any,
    *,
    sensitive: Any,
    channel: RandomizedResponse,
    keeps: Sequence[float] | None = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    level: float = 0.95,
) -> Any:
    """Estimate the group means as they would be if the reports were the truth with another probability.

    Parameters
    ----------
    premiums, y, sensitive, sample_weight, exposure, cluster, level
        As in `compute_group_means`.
    channel : RandomizedResponse
        The channel in use.
    keeps : sequence of float, optional
        Values of keep; the one in use is always among them. Default: a band around it, wider upwards.

    Returns
    -------
    DataFrame
        The columns of `compute_group_means` behind `keep` and `used`, which marks the keep in use; one row per keep and
        group.

    Notes
    -----
    A keep that is taken too high makes groups look more alike than they are, one that is too low exaggerates their
    difference: with two values pi and pi' of keep every gap between groups moves by about (K pi - 1)/(K pi' - 1).
    """
    if not isinstance(channel, RandomizedResponse):
        raise ValueError("Got a channel that is not a RandomizedResponse; a sensitivity band needs a keep to change.")
    grid = default_keeps(channel.keep, len(channel.groups)) if keeps is None else check_keeps(keeps, channel)
    tables = []
    for keep in grid:
        used = keep == channel.keep
        truth = Channel(np.eye(len(channel.groups)), groups=channel.groups)  # at keep = 1 the reports are it
        other = channel if used else truth if keep == 1 else RandomizedResponse(channel.groups, keep=keep)
        means = compute_group_means(
            premiums, y, sensitive=sensitive, channel=other, sample_weight=sample_weight, exposure=exposure,
            cluster=cluster, level=level,
        )  # fmt: skip
        table = as_pandas(means)
        table.insert(0, "used", used)
        table.insert(0, "keep", keep)
        tables.append(table)
    return frame_like_source(premiums, pd.concat(tables, ignore_index=True))
