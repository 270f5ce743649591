"""Batches of reports on their way to the third party: each is the file in which it stores them (`_batch_file`).

A batch is plain arrays of a length that its first bytes tell: keys in order, none repeated, and the code of the report
of each. There is nothing in it that could be unpacked, so it is checked as it is; and nothing that shows in which
order people reported. The code of a report is its position among the labels of the study; labels and channel are named
by a digest, so that codes are never taken for those of another channel.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fairpremium.documents import canonical_json
from fairpremium.labels import encode_labels
from fairpremium.privacy import Channel

from ._batch_file import ReportBatch, batch_pieces, code_width, open_batch, sort_batch
from ._policy_keys import as_keys, is_sorted
from ._problems import Problem

BATCH_TYPE = "application/vnd.fairpremium.reports"


def meaning(labels: Sequence[Any], descriptor: Mapping[str, Any] | None, attribute: str | None = None) -> bytes:
    """Return the digest that says what codes mean.

    - `labels` (sequence of str, of int or of bool): The reports that a study knows; the code of a report is its
      position here.
    - `descriptor` (dict or None): The description of the channel that drew the reports; None if it is not known, or
      there is none.
    - `attribute`: The name of the attribute in a study of several: two of them can have the same labels and channel.
    """
    said: dict[str, Any] = {"channel": descriptor, "labels": list(labels)}
    return hashlib.sha256(canonical_json(said if attribute is None else {**said, "attribute": attribute})).digest()


def write_batches(
    keys: Any,
    reports: Any,
    labels: Sequence[Any],
    channel: Channel | None = None,
    *,
    batches: int,
    attribute: str | None = None,
) -> Iterator[bytes]:
    """Write reports as batches of about equal size that follow each other in the order of keys.

    The same reports in any order give the same bytes. Batches that do not overlap are compared with each other in no
    time.

    - `keys` (sequence of bytes of length 16, or array of dtype V16)
    - `reports` (sequence of shape (n,))
    - `labels` (sequence): The reports that the study knows, in its order.
    - `channel`: The channel that drew the reports.
    - `batches`: How many batches.
    - `attribute`: The name of the attribute, if the study has several.
    """
    if any(isinstance(label, tuple) for label in labels):
        raise ValueError("Got reports of several attributes, but expected one. Send each attribute by itself.")
    codes = encode_labels(reports, tuple(labels), name="reports")
    rows = as_keys(keys)
    if len(rows) != len(codes):
        raise ValueError(f"Got {len(rows)} keys for {len(codes)} reports, but expected one key per report.")
    descriptor = None if channel is None else channel.descriptor()
    whole = sort_batch(rows, codes.astype(f"u{code_width(len(labels))}"), meaning(labels, descriptor, attribute))
    for i in range(batches):
        some = slice(len(whole) * i // batches, len(whole) * (i + 1) // batches)
        yield b"".join(batch_pieces(ReportBatch(whole.high[some], whole.low[some], whole.codes[some], whole.meaning)))


def check_batch(
    path: str | os.PathLike[str],
    labels: Sequence[Any],
    descriptor: Mapping[str, Any] | None,
    attribute: str | None = None,
) -> ReportBatch:
    """Check a batch of reports that came from outside; all that can be wrong is a `Problem`.

    - `path`: A file that nobody changes meanwhile.
    - `labels`, `descriptor`, `attribute`: Of the study; see `meaning`.
    """
    try:
        batch = open_batch(path)
    except ValueError:
        raise Problem("bad-batch", "its header or its length") from None
    if not len(batch) or batch.codes.dtype.itemsize != code_width(len(labels)):
        raise Problem("bad-batch", "no rows, or codes of another width")
    if batch.meaning != meaning(labels, descriptor, attribute):
        raise Problem("wrong-channel")
    if not is_sorted(batch.high, batch.low, distinct=True):
        raise Problem("bad-batch", "keys out of order or repeated")
    if int(np.max(batch.codes)) >= len(labels):
        raise Problem("bad-batch", "a report that the study does not know")
    return batch
