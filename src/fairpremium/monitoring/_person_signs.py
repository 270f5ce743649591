"""Sums over persons that remember who is who, without a list of persons: 512 random signs for each."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.errors import ModelFileError

SIGNS = 512  # bits of one BLAKE2b digest
_PROTOCOL = b"fairpremium mon1"  # at most 16 bytes
_PIECE = 4096


@dataclass(frozen=True)
class Persons:
    """Whose rows those of a period are: every person once, by the text of the key."""

    code: npt.NDArray[np.intp]  # (n,), position in keys
    keys: list[str]

    @classmethod
    def read(cls, person: Any, n: int) -> Persons:
        """Read the keys of n rows. A whole number and its text are the same key."""
        code, found = pd.factorize(pd.Series(person), use_na_sentinel=True)
        if len(code) != n:
            raise ValueError(f"Got person with {len(code)} rows, but premiums has {n}; expected the same number.")
        if (code < 0).any():
            raise ValueError(f"Got person with {int((code < 0).sum())} missing values; expected a key for every row.")
        keys = found.tolist()
        return cls(code, list(map(str if found.dtype.kind in "iu" else key_text, keys)))

    def total(self, rows: Array) -> tuple[Array, Array]:
        """Return the total of the rows, and for every sign the total of the persons' sums times their sign.

        - `rows`, shape (n, m): What each row contributes.

        Returns the total, shape (m,), and the signed totals, shape (SIGNS, m).

        Notes
        -----
        Let Z_c be the sum of a person's rows in all periods, and g_cb random signs. R_b = sum_c g_cb Z_c has the
        expected square sum_c Z_c Z_c', whoever has rows in which period: the covariance of sum_c Z_c if persons are
        independent. R_b is a sum over rows. Periods are therefore added up, and no list of persons is kept. It is the
        wild bootstrap with the person as its cluster; the signs come from a hash of the key, so that a person has the
        same ones in every period. The relative error of a variance is sqrt(2 / SIGNS), 6 %.

        References
        ----------
        Alon, Matias and Szegedy (1999), The space complexity of approximating the frequency moments, Journal of
        Computer and System Sciences 58(1).
        Cameron, Gelbach and Miller (2008), Bootstrap-based improvements for inference with clustered errors, Review of
        Economics and Statistics 90(3).
        """
        sums = np.column_stack([np.bincount(self.code, weights=column, minlength=len(self.keys)) for column in rows.T])
        total = sums.sum(axis=0)
        signed = np.zeros((SIGNS, rows.shape[1]))
        for first in range(0, len(self.keys), _PIECE):
            piece = slice(first, first + _PIECE)
            signed += _bits(self.keys[piece]).T.astype(np.float64) @ sums[piece]
        return total, 2 * signed - total  # signs are 2 bit - 1

    def digest(self, columns: dict[str, npt.NDArray[Any]]) -> str:
        """Return the SHA-256 of a period's rows, whatever their order."""
        keys, rank = np.unique(np.array(self.keys), return_inverse=True)
        values = np.column_stack([rank[self.code], *columns.values()]) + 0.0  # no negative zeros
        names = "\x00".join([*columns, *keys.tolist()])
        values = values[np.lexsort(values.T[::-1])]
        return hashlib.sha256(names.encode() + np.ascontiguousarray(values, dtype="<f8").tobytes()).hexdigest()


def person_signs(keys: list[str]) -> Array:
    """Return the signs of persons, -1 or 1: shape (n, SIGNS)."""
    return np.asarray(2 * _bits(keys).astype(np.float64) - 1)


def _bits(keys: list[str]) -> npt.NDArray[np.uint8]:
    digests = [hashlib.blake2b(key.encode(), digest_size=64, person=_PROTOCOL).digest() for key in keys]
    return np.unpackbits(np.frombuffer(b"".join(digests), dtype=np.uint8)).reshape(-1, SIGNS)


def key_text(key: Any) -> str:
    """Return a key as text: 17, 17.0 and "17" are one person, in whatever type a file was read."""
    return str(int(key)) if isinstance(key, float) and key.is_integer() else str(key)


def to_text(values: Array) -> str:
    """Return an array as text for JSON: base64 of its numbers, 8 bytes each, least significant byte first."""
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode("ascii")


def from_text(text: Any, shape: tuple[int, ...]) -> Array:
    """Return the array of `to_text`; raise if it has another size or is not finite."""
    try:
        values = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8").reshape(shape)
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"The state of the monitor has no array of shape {shape} where it should.") from error
    if not np.isfinite(values).all():
        raise ModelFileError("The state of the monitor has numbers that are not finite.")
    return values.astype(np.float64)
