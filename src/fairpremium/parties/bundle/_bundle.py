"""What the insurer gets: one signed file with the model, the premiums, the report and a test of itself.

A bundle is a zip file (`fairpremium.parties.bundle._archive`) with these members, in this order::

    manifest.json      what it is: format, version, SHA-256 and size of each member, columns, study, guarantees
    manifest.sig       64 bytes: Ed25519 signature of the manifest
    manifest.keys      the chain of the service's keys, if its key was ever changed
    model.json         the pricer, as its `save` writes it; `format` in it says of which kind it is
    selftest.parquet   synthetic rows with the prices that the model must give them
    report.html        the audit, if there is one
    premiums.parquet   key, premium, low, high, unaware, and one column per group

Nothing in it is code. Before the signature is known to be good, only the directory of the zip file and the chain of
keys, which is signed itself, are looked at.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fairpremium.documents import canonical_json
from fairpremium.errors import BundleError, MissingExtraError, ModelFileError
from fairpremium.labels import label_to_json
from fairpremium.parties.protocol import (
    LARGEST_CHAIN,
    KeyChain,
    ServiceKey,
    SigningKey,
    VerifyKey,
    as_chains,
    settle,
)
from fairpremium.pricing import (
    DiscriminationFreePricer,
    FrequencySeverityPricer,
    check_level,
    read_pricer,
    write_pricer,
)

from ._archive import Archive, write_archive
from ._selftest import Ranges, draw_selftest, price_columns, run_selftest

Pricer = DiscriminationFreePricer | FrequencySeverityPricer

FORMAT = "fairpremium-bundle"
VERSION = 1
MEMBERS = (
    "manifest.json",
    "manifest.sig",
    "manifest.keys",
    "model.json",
    "selftest.parquet",
    "report.html",
    "premiums.parquet",
)
_OPTIONAL = {"manifest.keys", "report.html"}

# What is signed begins with this line, so that no other signature of the same key can be passed off as one of these.
_DOMAIN = b"fairpremium bundle manifest 1\n"
_LARGEST = {
    "manifest.json": 1 << 25,
    "manifest.sig": 64,
    "manifest.keys": LARGEST_CHAIN,
    "model.json": 1 << 30,
    "selftest.parquet": 1 << 28,
}
_LARGEST_REPORT = 1 << 27
_KEY = pa.binary(16)
_BROKEN = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, OSError,
           RecursionError, TypeError, ValueError, pa.ArrowException)  # fmt: skip


# --- writing ---------------------------------------------------------------------------------------------------------


def write_bundle(
    path: str | os.PathLike[str],
    *,
    pricer: Pricer,
    manifest: Mapping[str, Any],
    premiums: pa.Table | str | os.PathLike[str],
    report_html: str | None,
    sign: SigningKey,
    ranges: Ranges | None = None,
    level: float = 0.95,
) -> str:
    """Write a bundle; the same arguments give the same bytes.

    - `path`: Written beside its place and moved there when it is whole; an earlier file is replaced.
    - `pricer`: Fitted. **It is written as it is**, with its number of rows and missing reports, shares of groups,
      covariance and table of candidates: what may not leave must not be in it.
    - `manifest` (mapping): What the bundle says about itself beside what is found here: study, channel, epsilon,
      reference, versions, disclosure report, metrics, checkpoint of the log. Plain data with text as keys.
    - `premiums`: With the columns ``key`` (16 bytes), ``premium``, ``low`` and ``high`` (if the pricer has intervals),
      ``unaware``, and ``group <label>`` for each group. A file is copied as it is.
    - `ranges`: Smallest and largest value of numeric features, for the rows of the self-test; see `feature_ranges`.
    - `level`: Of the intervals.

    Returns sHA-256 of the file.
    """
    target, level = Path(path), check_level(level)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".bundle-") as folder:
        source = _premiums_file(premiums, Path(folder))
        _check_premiums(pq.read_schema(source), pricer)
        contents: dict[str, bytes | Path] = {
            "model.json": canonical_json(write_pricer(pricer)),
            "selftest.parquet": _parquet(draw_selftest(pricer, ranges, level)),
        }
        if report_html is not None:
            contents["report.html"] = report_html.encode()
        contents["premiums.parquet"] = source
        own = {
            "format": FORMAT,
            "version": VERSION,
            "key_id": sign.key_id,
            "members": {name: _digest(content) for name, content in contents.items()},
            "level": level if pricer.has_intervals_ else None,
            **_schema(pricer),
        }
        text = _manifest_bytes(manifest, own)
        contents = {"manifest.json": text, "manifest.sig": sign.sign(_DOMAIN + text), **contents}
        if isinstance(sign, ServiceKey) and sign.chain.successions:
            contents["manifest.keys"] = sign.chain.text().encode()
        for name, size in {"manifest.json": len(text), **{n: m["size"] for n, m in own["members"].items()}}.items():
            if size > _largest(name):
                raise ValueError(f"Got {name} of {size} bytes for the bundle, but expected at most {_largest(name)}.")
        whole = Path(folder) / "bundle"
        whole.touch(mode=0o600)
        with whole.open("wb") as file:
            write_archive(file, {name: contents[name] for name in MEMBERS if name in contents})
        sha256 = _digest(whole)["sha256"]
        settle(whole, target)
    return str(sha256)


def _digest(content: bytes | Path) -> dict[str, Any]:
    """Return SHA-256 and size of bytes or of a file."""
    if isinstance(content, bytes):
        return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    with content.open("rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "size": file.tell()}


def _premiums_file(premiums: Any, folder: Path) -> Path:
    if not isinstance(premiums, pa.Table):
        return Path(premiums)
    path = folder / "premiums.parquet"
    pq.write_table(premiums.replace_schema_metadata(None), path)
    return path


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())


def _manifest_bytes(given: Mapping[str, Any], own: dict[str, Any]) -> bytes:
    clash = sorted(name for name in own if name in given and given[name] != own[name])
    if clash:
        raise ValueError(f"Got a manifest with {clash}, but expected one without: `write_bundle` finds them.")
    text = canonical_json({**given, **own})
    if canonical_json(json.loads(text)) != text:
        raise ValueError("Got a manifest with keys that are not text, but expected plain data.")
    return text


# --- what model and premiums must have in common ---------------------------------------------------------------------


def _schema(pricer: Pricer) -> dict[str, Any]:
    design = pricer.design_
    features = [
        {"name": c.name, "kind": "number"}
        if c.levels is None
        else {"name": c.name, "kind": "category", "levels": list(c.levels)}
        for c in design.columns
    ]
    return {
        "features": features,
        "groups": [label_to_json(group) for group in pricer.groups_],
        "columns": ["key", *price_columns(pricer)],
    }


def _check_premiums(schema: pa.Schema, pricer: Pricer) -> None:
    expected = ["key", *price_columns(pricer)]
    if schema.names != expected:
        raise ValueError(f"Got premiums with other columns, but expected {expected}.")
    if schema.types != [_KEY, *[pa.float64()] * (len(expected) - 1)]:
        raise ValueError("Got premiums of other types, but expected keys of 16 bytes (fixed) and numbers (double).")


# --- reading ---------------------------------------------------------------------------------------------------------


class Bundle:
    """A bundle that passed all checks.

    Attributes
    ----------
    path : Path
    manifest : dict
        What it says about itself.
    key : VerifyKey
        Who signed it.
    pricer : DiscriminationFreePricer or FrequencySeverityPricer
        Prices alone, offline, without the sensitive attribute.
    """

    def __init__(self, archive: Archive, manifest: dict[str, Any], key: VerifyKey, pricer: Pricer) -> None:
        self._archive = archive
        self.path = archive.path
        self.manifest = manifest
        self.key = key
        self.pricer = pricer

    @property
    def premiums(self) -> pa.Table:
        """The premiums of all rows, read now; its bytes are compared with the signed digest once more."""
        return self.open_premiums().read()

    def open_premiums(self) -> pq.ParquetFile:
        """Open the premiums without reading them, for ``iter_batches`` where they are larger than memory."""
        _check_digest(self._archive, self.manifest, "premiums.parquet")
        return pq.ParquetFile(self._archive.open("premiums.parquet"))

    @property
    def report(self) -> str | None:
        """The report, a page of HTML; None if there is none."""
        if "report.html" not in self._archive:
            return None
        _check_digest(self._archive, self.manifest, "report.html")
        return self._archive.read("report.html", _LARGEST_REPORT).decode()

    def __repr__(self) -> str:
        return f"Bundle({str(self.path)!r}, signed by {self.key.key_id!r})"


def load_bundle(path: str | os.PathLike[str], *, keys: Sequence[VerifyKey | KeyChain]) -> Bundle:
    """Read a bundle, checking in this order: form of the file, signature, version, digests, columns, self-test.

    Parameters
    ----------
    path : str or path
    keys : sequence of VerifyKey or KeyChain
        Whose signatures count: the keys of the third party, from a place that is not the bundle
        (`read_trusted_keys`). The signature of a later key counts if the bundle shows the chain that leads to it, and
        that of a former key up to the length of the log at its end. With a single key nothing is known of its end.

    Raises
    ------
    BundleError
        Its `check` says which check failed. Nothing of the bundle was used then.
    """
    if isinstance(keys, KeyChain) or not keys or not all(isinstance(key, VerifyKey | KeyChain) for key in keys):
        raise ValueError(
            "Got keys without a VerifyKey or KeyChain, but expected a sequence with those of the third party, such as "
            '[read_trusted_keys("service.key.pub")].'
        )
    archive = Archive(path, MEMBERS)
    missing = [name for name in MEMBERS if name not in archive and name not in _OPTIONAL]
    if missing:
        raise BundleError(f"The file is not a bundle: it has no {missing[0]}.", check="archive")
    text = archive.read("manifest.json", _largest("manifest.json"))
    trusted = _follow(archive, as_chains(keys))
    key = _signer(text, archive.read("manifest.sig", _largest("manifest.sig")), trusted)
    # The version comes before the digests, because it says where they are.
    manifest = _read_manifest(text, key)
    _check_in_force(manifest, key, trusted)
    _check_members(archive, manifest)
    pricer = _read_pricer(archive)
    bundle = Bundle(archive, manifest, key, pricer)
    _check_schema(bundle)
    _check_selftest(bundle)
    return bundle


def _largest(name: str) -> int:
    return _LARGEST.get(name, _LARGEST_REPORT if name == "report.html" else 1 << 32)


def _follow(archive: Archive, trusted: list[KeyChain]) -> list[KeyChain]:
    """Return the chains that are trusted, and what follows from them by the one in the bundle.

    That one does not count if it contradicts any of them: a stolen former key may have signed a successor of its own.
    """
    if "manifest.keys" not in archive:
        return trusted
    content = archive.read("manifest.keys", _largest("manifest.keys"))
    try:
        shown = KeyChain.read(content.decode("ascii"))
    except ValueError:
        raise BundleError("The chain of keys in the bundle is not signed by its keys.", check="signature") from None
    if any(shown.contradicts(chain) for chain in trusted):
        return trusted
    return [*trusted, *(chain.follow(shown) for chain in trusted)]


def _signer(text: bytes, signature: bytes, trusted: Sequence[KeyChain]) -> VerifyKey:
    for key in dict.fromkeys(key for chain in trusted for key in chain.keys):
        if key.verify(signature, _DOMAIN + text):
            return key
    raise BundleError(
        "The bundle is not signed by a key that was given as trusted, or was changed after it was signed.",
        check="signature",
    )


def _read_manifest(text: bytes, key: VerifyKey) -> dict[str, Any]:
    try:
        manifest = json.loads(text)
        plain = isinstance(manifest, dict) and canonical_json(manifest) == text
    except (ValueError, RecursionError):
        plain = False
    if not plain or manifest.get("format") != FORMAT:
        raise BundleError(f'The manifest is not that of a bundle: expected "format": "{FORMAT}".', check="version")
    if manifest.get("version") != VERSION:
        raise BundleError(
            f"The bundle has version {manifest.get('version')!r}, but this fairpremium reads version {VERSION}. "
            "Install a version that reads it.",
            check="version",
        )
    if manifest.get("key_id") != key.key_id:
        raise BundleError("The manifest names another key than the one that signed it.", check="signature")
    return dict(manifest)


def _check_in_force(manifest: dict[str, Any], key: VerifyKey, trusted: Sequence[KeyChain]) -> None:
    """Insist that the log of the bundle is no longer than the log at the end of the key that signed it."""
    ends = [chain.last_size(key) for chain in trusted if key in chain.keys]
    last = min((size for size in ends if size is not None), default=None)
    if last is None:
        return
    log = manifest.get("log")
    size = log.get("size", log.get("seq")) if isinstance(log, dict) else None  # seq: as 0.1.0 wrote it
    if type(size) is not int or size > last:
        raise BundleError(
            "The bundle is signed by a former key of the service, which was no longer in force. Tell its operator: "
            "the key may be stolen.",
            check="signature",
        )


def _check_members(archive: Archive, manifest: dict[str, Any]) -> None:
    told = manifest.get("members")
    names = [name for name in archive if not name.startswith("manifest.")]
    if not isinstance(told, dict) or sorted(told) != sorted(names):
        raise BundleError("The members of the bundle are not those that its manifest names.", check="digests")
    for name in names:
        _check_digest(archive, manifest, name)


def _check_digest(archive: Archive, manifest: dict[str, Any], name: str) -> None:
    size, sha256 = 0, hashlib.sha256()
    for chunk in archive.chunks(name):
        size += len(chunk)
        sha256.update(chunk)
    if manifest["members"][name] != {"sha256": sha256.hexdigest(), "size": size}:
        raise BundleError(f"{name} is not what the manifest says: its SHA-256 differs.", check="digests")


@contextmanager
def _checking(check: str, message: str) -> Iterator[None]:
    """Turn whatever a broken content raises into the error of a check; ``{}`` in the message takes the reason."""
    try:
        yield
    except (BundleError, MissingExtraError):
        raise
    except ModelFileError as error:  # says what is wrong with the file
        raise BundleError(str(error), check=check) from error
    except _BROKEN as error:
        raise BundleError(message.format(error), check=check) from error


def _read_pricer(archive: Archive) -> Pricer:
    content = archive.read("model.json", _largest("model.json"))
    with _checking("model", "model.json of the bundle is not a model."):
        return read_pricer(json.loads(content), "model.json of the bundle")


def _check_schema(bundle: Bundle) -> None:
    schema, manifest = _schema(bundle.pricer), bundle.manifest
    wrong = sorted(name for name in schema if manifest.get(name) != schema[name])
    if wrong:
        raise BundleError(f"The model does not have the {wrong[0]} that the manifest says.", check="schema")
    with _checking("schema", "The bundle's premiums do not fit the model: {}"):
        _check_premiums(pq.read_schema(bundle._archive.open("premiums.parquet")), bundle.pricer)
        if bundle.pricer.has_intervals_:
            check_level(manifest["level"])


def _check_selftest(bundle: Bundle) -> None:
    with _checking("self-test", "The bundle's self-test cannot be run."):
        table = pq.read_table(bundle._archive.open("selftest.parquet"))
        wrong = run_selftest(bundle.pricer, table, bundle.manifest["level"] or 0.95)
    if wrong is not None:
        raise BundleError(f"The bundle failed its self-test: {wrong}.", check="self-test")
