"""JSON documents that carry a SHA-256 of their content, which finds damage; reading one never executes code."""

import hashlib
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from fairpremium.errors import ModelFileError

__all__ = [
    "canonical_json",
    "check_document",
    "digest",
    "load_json",
    "read_document",
    "seal",
    "whole_file",
    "write_document",
]


@contextmanager
def whole_file(path: str | PathLike[str]) -> Iterator[Path]:
    """Yield the path of a draft that becomes the file when it is complete, and is removed if that fails.

    What is no regular file, such as a pipe or a link, is written as it is.
    """
    target = Path(path)
    if target.is_symlink() or (target.exists() and not target.is_file()):
        yield target
        return
    draft = target.with_name(f".{uuid.uuid4().hex[:8]}.{target.name}")
    try:
        yield draft
        draft.replace(target)
    except OSError as error:
        if error.filename in (draft, str(draft)):
            error.filename, error.filename2 = str(target), None  # a name that the caller knows
        raise
    finally:
        draft.unlink(missing_ok=True)


def canonical_json(value: Any) -> bytes:
    """Return the one JSON text of a value: sorted keys, no spaces, ASCII.

    Examples
    --------
    >>> canonical_json({"b": [1, True], "a": "1"})
    b'{"a":"1","b":[1,true]}'
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


def digest(value: Any) -> str:
    """Compute the SHA-256 of the canonical JSON of plain data, in hexadecimal digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def seal(fields: dict[str, Any]) -> dict[str, Any]:
    """Add the SHA-256 of the canonical JSON of the fields."""
    return {**fields, "sha256": digest(fields)}


def write_document(body: dict[str, Any], path: str | PathLike[str]) -> None:
    """Write plain data with its hash."""
    text = json.dumps(seal(body), indent=1, allow_nan=False) + "\n"
    with whole_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


def read_document(path: str | PathLike[str], form: str, version: int, noun: str) -> dict[str, Any]:
    """Read what `write_document` wrote, without the hash; see `check_document`."""
    return check_document(load_json(path, noun), form, version, noun, str(path))


def load_json(path: str | PathLike[str], noun: str) -> Any:
    """Read a JSON file, or say that it is no such thing."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ModelFileError(f"{path} is not a {noun}: it is not JSON text.") from error


def check_document(document: Any, form: str, version: int | tuple[int, ...], noun: str, where: str) -> dict[str, Any]:
    """Return the content of a document without its hash.

    The fields "format" and "version" must be `form` and `version`, or one of several versions. Messages say what the
    document should hold (`noun`) and where it is from (`where`).
    """
    if not isinstance(document, dict) or document.get("format") != form:
        raise ModelFileError(f'{where} is not a {noun}: expected "format": "{form}".')
    known = version if isinstance(version, tuple) else (version,)
    if document.get("version") not in known:
        raise ModelFileError(
            f"{where} has version {document.get('version')!r}, but this fairpremium reads version "
            f"{' or '.join(map(str, known))}. "
            "Install a version that reads it, or fit again."
        )
    body = {key: value for key, value in document.items() if key != "sha256"}
    try:
        intact = document.get("sha256") == digest(body)
    except ValueError:  # NaN or infinity, which no file of ours holds
        intact = False
    if not intact:
        raise ModelFileError(f"{where} is damaged or was edited: its content does not match its sha256.")
    return body
