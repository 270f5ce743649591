"""What is signed about the log: leaves of the tree of hashes, its root, and who may have signed it."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from fairpremium.documents import canonical_json

from ._key_chain import KeyChain
from ._keys import SigningKey, VerifyKey
from ._merkle import leaf_hash
from ._messages import ChainCheckpoint, Checkpoint, Entry

_CHAIN, _TREE = b"fairpremium log checkpoint 1\n", b"fairpremium log checkpoint 2\n"


def leaf_of(entry: Mapping[str, Any]) -> bytes:
    """Return the hash of an entry, by its fields, as a leaf of the tree."""
    return leaf_hash(canonical_json(entry))


def sign_root(key: SigningKey, size: int, root: bytes) -> Checkpoint:
    """Sign the root of the tree over the first entries of the log."""
    signature = base64.b64encode(key.sign(_TREE + f"{size} {root.hex()}".encode())).decode()
    return Checkpoint(size=size, root=root.hex(), key_id=key.key_id, signature=signature)


def what_is_wrong(point: Checkpoint | ChainCheckpoint, chain: KeyChain) -> str | None:
    """Say why a checkpoint does not count for those who trust a service's keys; None if it does."""
    key = chain.find(point.key_id)
    if key is None:
        return "a checkpoint is signed by a key that is not in the chain of the service's keys"
    if isinstance(point, Checkpoint):
        size, said = point.size, _TREE + f"{point.size} {point.root}".encode()
    else:
        size, said = point.seq, _CHAIN + f"{point.seq} {point.hash}".encode()
    if not _is_signed(key, point.signature, said):
        return "a checkpoint has a wrong signature"
    last = chain.last_size(key)
    if last is not None and size > last:
        return "a checkpoint is signed by a key that was no longer in force"
    return None


def _is_signed(key: VerifyKey, signature: str, message: bytes) -> bool:
    try:
        return key.verify(base64.b64decode(signature, validate=True), message)
    except ValueError:
        return False


def chain_hash(entry: Entry, previous: str) -> str:
    """Return the hash by which 0.1.0 chained an entry to the one before; its checkpoints signed this hash."""
    content = {**entry.model_dump(exclude={"salt"}), "previous": previous}
    return hashlib.sha256(canonical_json(content)).hexdigest()
