"""Reports from given random words: what another implementation of the sampler is compared with."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ..labels import encode_labels
from ._channel import Channel
from ._containers import labels_like
from ._sampling import WORD, accepted_integers


def draw_from_words(channel: Channel, values: Any, words: npt.ArrayLike) -> Any:
    """Return the report of each value that the given random words decide.

    Other implementations of the sampler, such as ``report.js`` for the browser, must give the same reports from the
    same words. For nothing else: whoever knows the words knows the truth.

    Parameters
    ----------
    channel : Channel
    values : array-like of shape (n,), or a table with one column per attribute for tuple groups
        True values of D.
    words : array-like of int, shape (n, m)
        Integers below 2**32. Each row is read from the left.

    Returns
    -------
    reports : as :meth:`Channel.privatize` returns them

    Notes
    -----
    For each component of the channel in turn, words w >= 2**32 - (2**32 mod N) are thrown away; the first other word
    gives u = w mod N, which decides the report of that component as in :meth:`Channel.privatize`.

    Examples
    --------
    >>> from fairpremium.privacy import RandomizedResponse
    >>> channel = RandomizedResponse(["F", "M"], keep=0.8)  # N = 5, and u = 4 is the lie
    >>> draw_from_words(channel, ["F", "F"], [[3, 0], [2**32 - 1, 9]]).tolist()
    ['F', 'M']
    """
    codes = encode_labels(values, channel.groups, name="values", missing="error")
    table = _check_words(words, len(codes))
    u = [np.empty(len(codes), dtype=np.int64) for _ in channel.components]
    position = np.zeros(len(codes), dtype=np.int64)
    rows = np.arange(len(codes))
    for component, drawn in zip(channel.components, u, strict=True):
        accepted = table < WORD - WORD % component.total  # (n, m)
        accepted &= np.arange(table.shape[1]) >= position[:, None]
        if not accepted.any(axis=1).all():
            raise ValueError(
                "Got words of which a row is used up before its report is decided. Give more words per row."
            )
        first = accepted.argmax(axis=1)
        drawn[:] = accepted_integers(table[rows, first].astype(np.uint32), component.total)
        position = first + 1
    return labels_like(values, channel._choose_all(codes, u), channel.reports)


def _check_words(words: npt.ArrayLike, n: int) -> npt.NDArray[np.int64]:
    table = np.asarray(words)
    if table.ndim != 2 or len(table) != n or table.dtype.kind not in "iu":
        raise ValueError(
            f"Got words of shape {table.shape} and dtype {table.dtype}, but expected integers of shape ({n}, m), one "
            "row per value."
        )
    if table.size and not (table.min() >= 0 and table.max() < WORD):
        raise ValueError("Got words outside 0 to 2**32 - 1, but expected 32-bit words.")
    return table.astype(np.int64)
