"""How the numbers of an audit move with the channel: the same sums again for others, and the band that they make."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.pricing import are_together, band_of, tabulate_channels
from fairpremium.privacy import Channel, KeyedChannels

from ._audit_data import as_pandas, frame_like_source
from ._groups import compute_group_means


def compute_keep_sensitivity(
    premiums: Any,
    y: Any,
    *,
    sensitive: Any,
    channel: Any,
    channel_key: Any = None,
    keeps: Any = None,
    keep: Any = None,
    channels: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    level: float = 0.95,
) -> Any:
    """Estimate the group means as they would be if the reports had gone through another channel.

    Parameters
    ----------
    premiums, y, sensitive, channel_key, sample_weight, exposure, cluster, level
        As in `compute_group_means`.
    channel : RandomizedResponse, or with `channels` any Channel, or a mapping of keys to these
        The channel in use. With several sources the channel of one after the other is changed, and those of several
        together as in `DiscriminationFreePricer.sensitivity`.
    keeps : sequence of float, optional
        Values of keep; the one in use is always among them. Default: a band around it, wider upwards.
    keep : (low, high), optional
        An interval of keeps instead.
    channels : sequence or mapping of str to Channel, optional
        Or the channels that are possible, with the groups and reports of the one in use; with several sources a mapping
        of a key to such channels. `keeps` and `keep` may be mappings of a key to one, too.

    Returns
    -------
    DataFrame
        The columns of `compute_group_means` behind `keep` (or `channel`, its name) and `used`, which marks the one in
        use; one row per keep and group. With several sources `source` stands before them, and the rows of `source`
        "together" change several of them, as `combination` says.

    Notes
    -----
    A keep that is taken too high makes groups look more alike than they are, one that is too low exaggerates their
    difference: with two values pi and pi' of keep every gap between groups moves by about (K pi - 1)/(K pi' - 1).
    An interval is searched as in `DiscriminationFreePricer.sensitivity`, without the assumption that a mean rises or
    falls with keep throughout.
    """
    used = (
        KeyedChannels(channel) if isinstance(channel, Mapping) and not isinstance(channel, KeyedChannels) else channel
    )
    roles = {"sample_weight": sample_weight, "exposure": exposure, "cluster": cluster, "level": level}

    def evaluate(other: Any) -> tuple[pd.DataFrame, Array]:
        # at keep = 1 the reports are the truth
        whole = Channel(np.eye(len(used.groups)), groups=used.groups) if other is None else other
        means = compute_group_means(premiums, y, sensitive=sensitive, channel=whole, channel_key=channel_key, **roles)
        table = as_pandas(means)
        return table, table[["premium", "loss"]].to_numpy(dtype=np.float64).ravel()

    table = tabulate_channels(used, {"keeps": keeps, "keep": keep, "channels": channels}, evaluate)
    return frame_like_source(premiums, table)


def compute_channel_band(
    premiums: Any,
    y: Any,
    *,
    sensitive: Any,
    channel: Any,
    channel_key: Any = None,
    keeps: Any = None,
    keep: Any = None,
    channels: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    level: float = 0.95,
) -> Any:
    """Estimate the lowest and highest mean premium and mean loss of every group over the channels that are possible.

    Parameters
    ----------
    premiums, y, sensitive, channel, channel_key, keeps, keep, channels, sample_weight, exposure, cluster, level
        As in `compute_keep_sensitivity`.

    Returns
    -------
    DataFrame
        One row per group: `group`; `premium`, with the channel in use; `premium_lowest`, `premium_highest` over all
        channels; `premium_low`, `premium_high`, the outermost limits of the intervals at all of them; the same for
        `loss`; `channels`: how many were computed. If the channels of several sources were changed also `together`.

    Notes
    -----
    If the right channel is among them, [premium_low, premium_high] covers the mean with at least the confidence of
    `level`. In an interval of keeps the values between two neighbours of the grid are not computed. `together` says
    whether combinations of the channels of several sources are among them, or whether the effects of each are added up:
    see `fairpremium.pricing.premium_band`.
    """
    table = as_pandas(
        compute_keep_sensitivity(
            premiums, y, sensitive=sensitive, channel=channel, channel_key=channel_key, keeps=keeps, keep=keep,
            channels=channels, sample_weight=sample_weight, exposure=exposure, cluster=cluster, level=level,
        )
    )  # fmt: skip
    bands = [band_of(table, "group", name, (f"{name}_low", f"{name}_high")) for name in ("premium", "loss")]
    band = bands[0].merge(bands[1], on="group", sort=False)
    together = are_together(table)
    further = {"channels": len(table) // len(band), **({} if together is None else {"together": together})}
    return frame_like_source(premiums, band.assign(**further))
