"""Channels that the reports may have gone through: other values of keep, an interval of them, or a list of channels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.labels import label_key
from fairpremium.privacy import Channel, KeyedChannels, RandomizedResponse

_BELOW, _ABOVE = 3, 7  # values of keep on either side of the one that was used
_FIRST_GRID, _ROUNDS = 5, 5  # values of keep that an interval starts with, and how often they may be refined
_MOVED = 0.01  # of the width of a band: an end that moves by more is looked at again
_MOST_TOGETHER = 64  # combinations of several sources' channels that are computed
IN_USE, TOGETHER = "in use", "together"

# What is computed with a channel, or with those of several sources: a table, and the numbers whose lowest and highest
# values are wanted.
Result = tuple[pd.DataFrame, Array]
Evaluate = Callable[[Any], Result]


@dataclass(frozen=True)
class PossibleChannels:
    """Which channels to compute something with, beside the one in use.

    - `keeps`: Values of keep.
    - `keep`: Or an interval (low, high) of them.
    - `channels`: Or channels, in a list or by name. Without any of the three: a band of keeps, wider upwards.
    """

    used: Channel
    keeps: Sequence[float] | None = None
    keep: tuple[float, float] | None = None
    channels: Sequence[Channel] | Mapping[str, Channel] | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("keeps", "keep", "channels") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"Got {' and '.join(given)}, but expected one of them.")
        if self.channels is None and not isinstance(self.used, RandomizedResponse):
            raise ValueError(
                "Got a channel in use that is not a RandomizedResponse, so that there is no keep to change. Give the "
                "channels that are possible: channels=[...]."
            )

    def tabulate(self, evaluate: Evaluate) -> pd.DataFrame:
        """Stack the tables of all channels, behind a column `keep` or `channel` and with `used` for the one in use."""
        return self.join(self.compute(evaluate))

    def compute(self, evaluate: Evaluate) -> dict[Any, Result]:
        """Compute with every channel, by its keep or its name."""
        if self.channels is not None:
            return {name: evaluate(channel) for name, channel in self._named_channels().items()}
        own, K = float(self.used.keep), len(self.used.groups)

        def at(keep: float) -> Result:
            return evaluate(self.at(keep))

        if self.keep is not None:
            results = _refine(at, *check_interval(self.keep, K), own)
        else:
            assert isinstance(self.used, RandomizedResponse)
            grid = default_keeps(own, K) if self.keeps is None else check_keeps(self.keeps, self.used)
            results = {keep: at(keep) for keep in grid}
        return {keep: results[keep] for keep in sorted(results)}

    def join(self, results: Mapping[Any, Result]) -> pd.DataFrame:
        """Return the tables of `compute` one below the other."""
        tables = {name: table for name, (table, _) in results.items()}
        return (
            _stack(tables, "channel", IN_USE) if self.channels is not None else _stack(tables, "keep", self.used.keep)
        )

    def at(self, name: Any) -> Channel | None:
        """Return the channel of a keep or of a name; at keep = 1 the reports are the truth."""
        if self.channels is not None:
            return self._named_channels()[name]
        if name == self.used.keep:
            return self.used
        return None if name == 1 else RandomizedResponse(self.used.groups, keep=name)

    def corners(self, results: Mapping[Any, Result]) -> list[list[Any]]:
        """Return which of the channels to combine with those of other sources: the most thorough choice first.

        Of channels all, or those with the lowest or highest value of some number. Of keeps the ends and those keeps,
        or the ends.
        """
        names = list(results)
        if self.keep is not None:
            low, high = check_interval(self.keep, len(self.used.groups))
            names = [name for name in names if low <= name <= high]
        extreme = [names[place] for place in _extremes(np.array([results[name][1] for name in names]))]
        if self.channels is not None:
            return [names, extreme or names[:1]]
        ends = [names[0], names[-1]]
        return [sorted({*ends, *extreme}), ends]

    def _named_channels(self) -> dict[str, Channel]:
        assert self.channels is not None
        given = self.channels if isinstance(self.channels, Mapping) else dict(enumerate(self.channels, start=1))
        if not given:
            raise ValueError("Got channels without any, but expected at least one channel.")
        groups = {label_key(group) for group in self.used.groups}
        named = {IN_USE: self.used}
        for name, channel in given.items():
            if not isinstance(channel, Channel):
                raise TypeError(f"Got channels with a {type(channel).__name__}, but expected a Channel for each.")
            if {label_key(group) for group in channel.groups} != groups:
                raise ValueError(
                    f"Got channels with the groups {list(channel.groups)}, but expected those of the channel in use, "
                    f"{list(self.used.groups)}."
                )
            text = f"channel {name}" if isinstance(name, int) else str(name)
            if text in named:
                raise ValueError(f"Got channels with the name {text!r}, but expected a name of its own for each.")
            if channel != self.used:
                named[text] = channel
        return named


def possible_sources(used: Any, given: dict[str, Any]) -> list[tuple[Any, PossibleChannels]]:
    """Return the channels that are possible for each source whose channel is to change; a single one has no key."""
    if isinstance(used, Channel):
        return [(None, PossibleChannels(used, **given))]
    kind = RandomizedResponse if given["channels"] is None else Channel
    found = {key: channel for key, channel in (used or {}).items() if isinstance(channel, kind)}
    if given["channels"] is not None and not isinstance(given["channels"], Mapping):
        raise ValueError("Got channels for several sources, but expected a mapping of a source's key to its channels.")
    for name, value in given.items():
        if isinstance(value, Mapping):
            unknown = [key for key in value if key not in found]
            if unknown:
                raise ValueError(
                    f"Got {name} for {unknown}, but expected some of the sources with a {kind.__name__}, {list(found)}."
                )
            found = {key: found[key] for key in value}
    if not found:
        raise ValueError(
            "Got a pricer that is not fitted, or no RandomizedResponse or other Channel in use; a sensitivity band "
            "needs a channel to change."
        )
    return [
        (key, PossibleChannels(channel, **{n: v[key] if isinstance(v, Mapping) else v for n, v in given.items()}))
        for key, channel in found.items()
    ]


def tabulate_channels(used: Any, given: dict[str, Any], evaluate: Evaluate) -> pd.DataFrame:
    """Compute with the channels that are possible: `PossibleChannels.tabulate`, or for each of several sources.

    With several sources the column `source` stands first. Their channels are changed one source after the other; if
    there are two or more to change, then together as well, in all combinations of `PossibleChannels.corners` if these
    are at most 64. The rows of combinations have the source "together", and the column `combination` says what it is.
    """
    sources = possible_sources(used, given)
    if isinstance(used, Channel):
        return sources[0][1].tabulate(evaluate)

    def changed(channels: Mapping[Any, Channel | None]) -> Result:
        return evaluate(KeyedChannels({**used, **channels}, groups=used.groups))

    results = {
        key: possible.compute(lambda other, key=key: changed({key: other}))  # type: ignore[misc]
        for key, possible in sources
    }
    tables = [possible.join(results[key]).assign(source=[key] * _length(results[key])) for key, possible in sources]
    choices = list(zip(*(possible.corners(results[key]) for key, possible in sources), strict=True))
    chosen = next((each for each in choices if math.prod(map(len, each)) <= _MOST_TOGETHER), None)
    if len(sources) > 1 and chosen is not None:
        tables = [table.assign(combination="") for table in tables]
        for names in itertools.product(*chosen):
            parts = [(key, possible, name) for (key, possible), name in zip(sources, names, strict=True)]
            if sum(possible.at(name) != possible.used for _, possible, name in parts) < 2:
                continue  # known already
            table, _ = changed({key: possible.at(name) for key, possible, name in parts})
            text = ", ".join(f"{key} {name if isinstance(name, str) else f'{name:.4g}'}" for key, _, name in parts)
            marks = {"source": TOGETHER, "combination": text, "used": False}
            tables.append(table.assign(**marks))
    stacked = pd.concat([table.astype({"source": object}) for table in tables], ignore_index=True)
    front = [name for name in ("source", "keep", "channel", "combination", "used") if name in stacked]
    return stacked[[*front, *(name for name in stacked.columns if name not in front)]]


def _length(results: Mapping[Any, Result]) -> int:
    return sum(len(table) for table, _ in results.values())


def band_of(table: pd.DataFrame, by: str, name: str, limits: tuple[str, str] | None) -> pd.DataFrame:
    """Return the lowest and highest value of a column over all channels, for each of the keys in `by`.

    With `limits` also the outermost ends of the intervals. A channel whose fit has no solution has nan and is left out.
    What several sources do that were not changed together is added up.
    """
    keys = table[by].drop_duplicates()
    used = table[table["used"]].drop_duplicates(by).set_index(by)
    together = are_together(table)

    def outermost(column: str, end: str) -> pd.Series:
        if together is not False:
            return table.groupby(by, sort=False)[column].agg(end)
        moved = table.groupby([by, "source"], sort=False)[column].agg(end).unstack().sub(used[column], axis=0)
        return used[column] + moved.sum(axis=1)

    columns = {name: used[name], f"{name}_lowest": outermost(name, "min"), f"{name}_highest": outermost(name, "max")}
    if limits is not None:
        columns |= {f"{name}_low": outermost(limits[0], "min"), f"{name}_high": outermost(limits[1], "max")}
    return pd.DataFrame(columns).loc[keys].rename_axis(by).reset_index()


def are_together(table: pd.DataFrame) -> bool | None:
    """Tell whether the channels of several sources were changed together; None if one source was changed."""
    if "source" not in table or len(table["source"].unique()) < 2:
        return None
    return "combination" in table


def premium_band(table: pd.DataFrame) -> pd.DataFrame:
    """Reduce a table of `DiscriminationFreePricer.sensitivity` to a band of the premium for each risk.

    Parameters
    ----------
    table : DataFrame
        One row per risk and channel.

    Returns
    -------
    pandas.DataFrame
        One row per risk: ``row``; ``premium``, with the channel in use; ``premium_lowest`` and ``premium_highest`` over
        all channels; with intervals in the table also ``premium_low`` and ``premium_high``, the outermost of their
        ends; ``unaware``; ``channels``, how many there are; ``unsolved``, with how many the fit has no solution. If the
        channels of several sources were changed also ``together``: see the notes.

    Notes
    -----
    If one of the channels is the right one, an interval of level 95 % at that channel covers the premium with
    probability 95 %, and so does the wider [premium_low, premium_high]. Between two values of keep nothing is
    computed: see `DiscriminationFreePricer.sensitivity`.

    If the channels of several sources are in doubt, they may be wrong together. ``together`` is True if combinations
    were computed, too; then the band is over all of these. If there are more than 64 it is False, and the effects of
    the sources, each changed by itself, are added up. This is exact where they do not depend on each other, and an
    approximation else.

    Examples
    --------
    >>> table = pd.DataFrame({"row": [0, 0], "keep": [0.8, 0.9], "premium": [7.0, 9.0], "unaware": 8.0,
    ...                       "used": [True, False]})
    >>> premium_band(table)[["premium", "premium_lowest", "premium_highest", "channels", "unsolved"]]
       premium  premium_lowest  premium_highest  channels  unsolved
    0      7.0             7.0              9.0         2         0
    """
    absent = [name for name in ("row", "premium", "unaware", "used") if name not in table]
    if absent:
        raise ValueError(f"Got a table without the columns {absent}; expected one of `sensitivity`.")
    band = band_of(table, "row", "premium", ("low", "high") if "low" in table else None)
    grouped = table.groupby("row", sort=False)
    further = pd.DataFrame(
        {
            "unaware": grouped["unaware"].first(),
            "channels": grouped.size(),
            "unsolved": grouped["premium"].apply(lambda premium: int(premium.isna().sum())),
        }
    )
    together = are_together(table)
    return band.join(further, on="row").assign(**({} if together is None else {"together": together}))


# --- values of keep ---


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


def check_interval(keep: Any, K: int) -> tuple[float, float]:
    """Return the ends of an interval of keeps."""
    try:
        low, high = (float(end) for end in keep)
    except (TypeError, ValueError):
        raise ValueError(f"Got keep={keep!r}, but expected an interval, such as keep=(0.75, 0.9).") from None
    if not 1 / K < low < high <= 1:
        raise ValueError(f"Got keep={keep!r}, but expected an interval above 1/K = {1 / K:.3g} and up to 1 at most.")
    return low, high


def _refine(at: Callable[[float], Result], low: float, high: float, used: float) -> dict[float, Result]:
    """Compute at a grid of the interval, at all its middles, and then beside the extremes until they stay.

    Nothing says that a premium rises or falls with keep throughout, so that the ends alone are not enough. What happens
    between two neighbours of the final grid is not seen.
    """
    found = {keep: at(keep) for keep in {*map(float, np.linspace(low, high, _FIRST_GRID)), used}}
    for attempt in range(_ROUNDS):
        grid = sorted(keep for keep in found if low <= keep <= high)
        before = np.array([found[keep][1] for keep in grid])
        gaps = set(range(len(grid) - 1)) if attempt == 0 else _beside_extremes(before)
        for i in gaps:
            middle = (grid[i] + grid[i + 1]) / 2
            found[middle] = at(middle)
        after = np.array([numbers for keep, (_, numbers) in found.items() if low <= keep <= high])
        old, new = _ends(before), _ends(after)
        if not (np.abs(old - new) > _MOVED * (new[1] - new[0])).any():
            break
    return found


def _ends(values: Array) -> Array:
    """Return the lowest and highest value of each number over the grid: shape (2, numbers)."""
    ends = [
        np.where(np.isnan(values), np.inf, values).min(axis=0),
        np.where(np.isnan(values), -np.inf, values).max(axis=0),
    ]
    known = np.isfinite(ends[0])
    return np.where(known, ends, 0.0)


def _beside_extremes(values: Array) -> set[int]:
    """Return the gaps of the grid beside the lowest and highest value of each number."""
    return {i for place in _extremes(values) for i in (place - 1, place) if 0 <= i < len(values) - 1}


def _extremes(values: Array) -> list[int]:
    """Return the positions in the grid of the lowest and highest value of each number."""
    known = values[:, ~np.isnan(values).all(axis=0)]
    if not known.size:
        return []
    places: npt.NDArray[np.intp] = np.unique([np.nanargmin(known, axis=0), np.nanargmax(known, axis=0)])
    return [int(place) for place in places]


def _stack(tables: Mapping[Any, pd.DataFrame], column: str, used: Any) -> pd.DataFrame:
    marked = []
    for name, table in tables.items():
        table = table.copy()
        table.insert(0, "used", name == used)
        table.insert(0, column, name)
        marked.append(table)
    return pd.concat(marked, ignore_index=True)
