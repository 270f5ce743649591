"""The tree of hashes over the log: roots and proofs of RFC 6962, section 2.1.

Entry `n` (from 1) is the leaf with index ``n - 1``. What is stored are the hashes of complete subtrees: the one over
``2**level`` leaves that ends with leaf number `end` is ``node(level, end)``. Every root and every proof is made of a
few of them, so that none reads the whole log.
"""

import hashlib
from collections.abc import Callable, Sequence

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()

Node = Callable[[int, int], bytes]


def leaf_hash(content: bytes) -> bytes:
    """Return the hash of a leaf."""
    return hashlib.sha256(b"\x00" + content).digest()


def _join(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def append_leaf(size: int, peaks: Sequence[bytes], leaf: bytes) -> tuple[list[bytes], list[bytes]]:
    """Add a leaf to a tree; return its new peaks, and the nodes that it completes, from level 0 upwards.

    - `size`: Leaves before.
    - `peaks`: Hashes of the complete subtrees that the tree consists of, the largest first: one for each 1 in the
      binary form of `size`.
    """
    left, nodes = list(peaks), [leaf]
    while size & 1:
        nodes.append(_join(left.pop(), nodes[-1]))
        size >>= 1
    return [*left, nodes[-1]], nodes


def root_of(peaks: Sequence[bytes]) -> bytes:
    """Return the root of a tree from its peaks."""
    if not peaks:
        return EMPTY_ROOT
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = _join(peak, root)
    return root


def read_root(size: int, node: Node) -> bytes:
    """Return the root over the first leaves."""
    return _subtree(0, size, node) if size else EMPTY_ROOT


def _subtree(start: int, end: int, node: Node) -> bytes:
    """Return MTH(D[start:end]). Where the number of leaves is a power of two, the subtree is complete and stored."""
    n = end - start
    if n & (n - 1) == 0:
        return node(n.bit_length() - 1, end)
    middle = start + _split(n)
    return _join(_subtree(start, middle, node), _subtree(middle, end, node))


def _split(n: int) -> int:
    """Return the largest power of two below `n`."""
    return int(1 << ((n - 1).bit_length() - 1))


def prove_inclusion(index: int, size: int, node: Node) -> list[bytes]:
    """Return PATH(index, D[0:size]): that a leaf is in the tree over the first `size` leaves."""
    start, end, path = 0, size, []
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            path.append(_subtree(middle, end, node))
            end = middle
        else:
            path.append(_subtree(start, middle, node))
            start = middle
    return path[::-1]


def prove_consistency(first: int, second: int, node: Node) -> list[bytes]:
    """Return PROOF(first, D[0:second]): that the tree over `first` leaves is the beginning of that over `second`."""
    if not 0 < first < second:
        return []
    start, end, is_known, proof = 0, second, True, []
    while first != end:
        middle = start + _split(end - start)
        if first <= middle:
            proof.append(_subtree(middle, end, node))
            end = middle
        else:
            proof.append(_subtree(start, middle, node))
            start, is_known = middle, False
    if not is_known:
        proof.append(_subtree(start, end, node))
    return proof[::-1]


def check_inclusion(leaf: bytes, index: int, size: int, root: bytes, path: Sequence[bytes]) -> bool:
    """Say whether a path proves that a leaf is in the tree with a root (RFC 9162, section 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    f, s, found = index, size - 1, leaf
    for p in path:
        if s == 0:
            return False
        if f & 1 or f == s:
            found = _join(p, found)
            while f and not f & 1:
                f, s = f >> 1, s >> 1
        else:
            found = _join(found, p)
        f, s = f >> 1, s >> 1
    return s == 0 and found == root


def check_consistency(first: int, second: int, old: bytes, new: bytes, proof: Sequence[bytes]) -> bool:
    """Say whether a proof shows that the tree with root `old` is the beginning of that with `new` (RFC 9162, 2.1.4.2).

    A tree without leaves is the beginning of every tree.
    """
    if not 0 <= first <= second:
        return False
    if first == second:
        return old == new and not proof
    if first == 0:
        return old == EMPTY_ROOT and not proof
    path = list(proof)
    if first & (first - 1) == 0:
        path.insert(0, old)
    if not path:
        return False
    f, s = first - 1, second - 1
    while f & 1:
        f, s = f >> 1, s >> 1
    found_old = found_new = path[0]
    for c in path[1:]:
        if s == 0:
            return False
        if f & 1 or f == s:
            found_old, found_new = _join(c, found_old), _join(c, found_new)
            while f and not f & 1:
                f, s = f >> 1, s >> 1
        else:
            found_new = _join(found_new, c)
        f, s = f >> 1, s >> 1
    return s == 0 and found_old == old and found_new == new
