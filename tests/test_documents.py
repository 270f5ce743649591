"""Documents with a hash: one text per value, and damage is found."""

from __future__ import annotations

import pytest

from fairpremium.documents import canonical_json, check_document, digest, read_document, seal, write_document
from fairpremium.errors import ModelFileError

BODY = {"format": "test", "version": 1, "values": [1.5, True, "é"]}


def test_canonical_json_is_ascii_and_sorted():
    assert canonical_json({"é": 1, "a": [True, 1.5]}) == b'{"a":[true,1.5],"\\u00e9":1}'
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json(float("nan"))


def test_a_document_returns_without_its_hash(tmp_path):
    write_document(BODY, tmp_path / "file.json")
    assert read_document(tmp_path / "file.json", "test", 1, "test file") == BODY
    assert seal(BODY)["sha256"] == digest(BODY)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "is not a test file"),
        ({"version": 2}, "has version 2, but this fairpremium reads version 1"),
        ({"values": []}, "is damaged or was edited"),
        ({"values": [float("nan")]}, "is damaged or was edited"),
    ],
)
def test_a_document_that_was_changed_is_refused(change, message):
    with pytest.raises(ModelFileError, match=message):
        check_document({**seal(BODY), **change}, "test", 1, "test file", "file.json")
