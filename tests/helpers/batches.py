"""Batches of reports for tests: as few lines as possible, beside plain dicts of keys and codes."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import strategies as st

from fairpremium.parties.protocol._batch_file import ReportBatch, sort_batch
from fairpremium.parties.protocol._policy_keys import as_keys
from fairpremium.parties.protocol._report_batch import write_batches

ENDS = [bytes(8), b"\xff" * 8, b"\0" * 7 + b"\1", b"\1" + b"\0" * 7, b"\x7f" + b"\xff" * 7, b"\x80" + b"\0" * 7]
WORDS = st.sampled_from(ENDS) | st.binary(min_size=8, max_size=8)
KEYS = st.builds(bytes.__add__, WORDS, WORDS)
CODES = st.integers(0, 300)
REPORTS = st.dictionaries(KEYS, CODES, max_size=60)


def write_batch(keys, reports, labels, channel=None) -> bytes:
    """Write one batch of reports; see `write_batches`."""
    return next(write_batches(keys, reports, labels, channel, batches=1))


def batch_of(reports: dict[bytes, int]) -> ReportBatch:
    return sort_batch(as_keys(list(reports)), np.array(list(reports.values()), dtype=np.int64))


def dict_of(batch: ReportBatch) -> dict[bytes, int]:
    keys = [bytes(key) for key in batch.keys.tolist()]
    assert keys == sorted(set(keys))
    return dict(zip(keys, batch.codes.tolist(), strict=True))


def many(rows: int, seed: int, prefixes: int | None = None) -> dict[bytes, int]:
    """Random reports; with few prefixes, keys that share their first eight bytes."""
    rng = random.Random(seed)
    some = [rng.randbytes(8) for _ in range(prefixes or 0)]
    return {(rng.choice(some) if some else rng.randbytes(8)) + rng.randbytes(8): rng.randrange(3) for _ in range(rows)}


def overlapping(reports: dict[bytes, int], count: int, rng: random.Random) -> list[ReportBatch]:
    """Batches whose union are the reports; some are in several."""
    parts: list[dict[bytes, int]] = [{} for _ in range(count)]
    for key, code in reports.items():
        for part in rng.sample(parts, rng.choice([1, 1, 1, min(2, count)])):
            part[key] = code
    return [batch_of(part) for part in parts]
