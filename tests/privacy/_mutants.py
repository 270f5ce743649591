"""Broken mechanisms, one bug each. The tests must notice every one of them."""

from __future__ import annotations

import os
import secrets
from typing import Any

import numpy as np

from fairpremium.labels import decode_labels, encode_labels
from fairpremium.privacy import MemoizedReports, RandomizedResponse
from fairpremium.privacy._sampling import uniform_integers


class Mutant(RandomizedResponse):
    """Randomized response whose choice of the report can be broken."""

    def privatize(self, values: Any, *, rng: Any = None) -> Any:
        codes = encode_labels(values, self.groups).astype(np.int64)
        return decode_labels(self.broken(codes), self.reports)

    def broken(self, codes: np.ndarray) -> np.ndarray:
        return self._choose(codes, uniform_integers(len(codes), self.total, None))


class UnnoisedLastGroup(Mutant):
    def broken(self, codes):
        return np.where(codes == len(self.groups) - 1, codes, super().broken(codes))


class LieMayEqualTheTruth(Mutant):
    def broken(self, codes):
        u = uniform_integers(len(codes), self.total, None)
        lie = uniform_integers(len(codes), len(self.groups), None)
        return np.where(u < self.a, codes, lie)


class WrongK(Mutant):
    """Lies among the first K - 1 groups only; the last is never a lie."""

    def broken(self, codes):
        smaller = RandomizedResponse(self.groups[:-1], epsilon=self.epsilon)
        last = codes == len(self.groups) - 1
        report = super().broken(codes)
        report[~last] = smaller._draw(codes[~last], None)
        return report


class EpsilonDoubled(Mutant):
    def broken(self, codes):
        return RandomizedResponse(self.groups, epsilon=2 * self.epsilon)._draw(codes, None)


class FloatProbabilities(Mutant):
    """The truth if a uniform float from the system is below keep: right to 9 digits, and not exact."""

    def broken(self, codes):
        uniform = np.frombuffer(os.urandom(4 * len(codes)), dtype=np.uint32) * 2.0**-32
        other = np.minimum((uniform - self.keep) / (1 - self.keep) * (len(self.groups) - 1), len(self.groups) - 2)
        other = other.astype(np.int64)
        return np.where(uniform < self.keep, codes, other + (other >= codes))


class ModuloBias(Mutant):
    """A 16-bit word modulo N, without rejection."""

    def broken(self, codes):
        words = np.frombuffer(os.urandom(2 * len(codes)), dtype=np.uint16).astype(np.int64)
        return self._choose(codes, words % self.total)


class MemoOff(MemoizedReports):
    """Forgets: a fresh draw for every question."""

    def privatize(self, persons, values):
        return self.channel.privatize(values)


class MemoIgnoresTheAnswer(MemoizedReports):
    """Uses the person's first report as a mask that is the same for every answer: deterministic, no noise."""

    def privatize(self, persons, values):
        secrets.token_bytes(1)
        return np.asarray(values, dtype=object)


MUTANTS = [UnnoisedLastGroup, LieMayEqualTheTruth, WrongK, EpsilonDoubled, FloatProbabilities, ModuloBias]
