"""The tree of hashes: against the definition in RFC 6962, and the roots and proofs of its reference implementation."""

from __future__ import annotations

import hashlib

import pytest

from fairpremium.parties.protocol._merkle import (
    EMPTY_ROOT,
    append_leaf,
    check_consistency,
    check_inclusion,
    leaf_hash,
    prove_consistency,
    prove_inclusion,
    read_root,
    root_of,
)

# certificate-transparency: cpp/merkletree/merkle_tree_test.cc; transparency-dev/merkle: testonly/constants.go
LEAVES = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
PATHS = {
    (0, 1): [],
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
}
PROOFS = {
    (1, 1): [],
    (1, 8): PATHS[0, 8],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}


# --- the definition, word by word (RFC 6962, 2.1, 2.1.1, 2.1.2) ---


def sha(data):
    return hashlib.sha256(data).digest()


def split(n):
    return max(2**i for i in range(20) if 2**i < n)


def mth(data):
    if not data:
        return sha(b"")
    if len(data) == 1:
        return sha(b"\0" + data[0])
    k = split(len(data))
    return sha(b"\1" + mth(data[:k]) + mth(data[k:]))


def path(m, data):
    if len(data) == 1:
        return []
    k = split(len(data))
    return [*path(m, data[:k]), mth(data[k:])] if m < k else [*path(m - k, data[k:]), mth(data[:k])]


def subproof(m, data, b):
    n = len(data)
    if m == n:
        return [] if b else [mth(data)]
    k = split(n)
    if m <= k:
        return [*subproof(m, data[:k], b), mth(data[k:])]
    return [*subproof(m - k, data[k:], False), mth(data[:k])]


# --- ours ---


class Stored:
    """The nodes that appending left behind, and how many were read."""

    def __init__(self, data):
        self.nodes, self.peaks, self.reads = {}, [], 0
        for n, content in enumerate(data):
            self.peaks, made = append_leaf(n, self.peaks, leaf_hash(content))
            self.nodes.update({(level, n + 1): node for level, node in enumerate(made)})

    def __call__(self, level, end):
        self.reads += 1
        return self.nodes[level, end]


def unhex(texts):
    return [bytes.fromhex(text) for text in texts]


@pytest.mark.parametrize("n", range(9))
def test_roots_of_the_reference(n):
    stored = Stored(LEAVES[:n])
    assert root_of(stored.peaks).hex() == read_root(n, stored).hex() == ROOTS[n]


@pytest.mark.parametrize(("index", "size"), PATHS)
def test_paths_of_the_reference(index, size):
    found = prove_inclusion(index, size, Stored(LEAVES))
    assert found == unhex(PATHS[index, size])
    assert check_inclusion(leaf_hash(LEAVES[index]), index, size, bytes.fromhex(ROOTS[size]), found)


@pytest.mark.parametrize(("first", "second"), PROOFS)
def test_proofs_of_the_reference(first, second):
    found = prove_consistency(first, second, Stored(LEAVES))
    assert found == unhex(PROOFS[first, second])
    assert check_consistency(first, second, bytes.fromhex(ROOTS[first]), bytes.fromhex(ROOTS[second]), found)


def test_everything_agrees_with_the_definition():
    data = [f"entry {i}".encode() for i in range(40)]
    for n in range(1, len(data) + 1):
        stored = Stored(data[:n])
        assert root_of(stored.peaks) == mth(data[:n])
        assert len(stored.nodes) < 2 * n
        for m in range(1, n + 1):
            assert read_root(m, stored) == mth(data[:m])  # of every earlier moment, too
            assert prove_consistency(m, n, stored) == subproof(m, data[:n], True)
            assert prove_inclusion(m - 1, n, stored) == path(m - 1, data[:n])


def test_what_is_proven_holds_and_what_is_changed_does_not():
    data = [f"entry {i}".encode() for i in range(33)]
    other = [*data[:20], b"another", *data[21:]]
    roots, forked = [mth(data[:n]) for n in range(34)], [mth(other[:n]) for n in range(34)]
    stored, fork = Stored(data), Stored(other)
    for n in range(1, 34):
        for m in range(1, n + 1):
            proof = prove_consistency(m, n, stored)
            assert check_consistency(m, n, roots[m], roots[n], proof)
            is_before = m <= 20
            assert check_consistency(m, n, roots[m], forked[n], prove_consistency(m, n, fork)) == (is_before or n <= 20)
            where = prove_inclusion(m - 1, n, stored)
            leaf = leaf_hash(data[m - 1])
            assert check_inclusion(leaf, m - 1, n, roots[n], where)
            assert not check_inclusion(leaf_hash(b"x"), m - 1, n, roots[n], where)
            for wrong in ([*proof, bytes(32)], proof[:-1], [bytes(32), *proof[1:]], proof[::-1]):
                if wrong != proof:
                    assert not check_consistency(m, n, roots[m], roots[n], wrong)
            for wrong in ([*where, bytes(32)], where[:-1], [bytes(32), *where[1:]]):
                if wrong != where:
                    assert not check_inclusion(leaf, m - 1, n, roots[n], wrong)
            assert not check_consistency(m, n, roots[m], bytes(32), proof)
    assert not check_consistency(5, 4, roots[5], roots[4], [])
    assert not check_inclusion(leaf_hash(data[0]), 4, 4, roots[4], [])
    assert check_consistency(0, 4, EMPTY_ROOT, roots[4], [])
    assert not check_consistency(0, 4, roots[1], roots[4], [])


def test_a_proof_reads_few_nodes():
    n = 5_000
    stored = Stored([b"%d" % i for i in range(n)])
    for make in (lambda m: prove_consistency(m, n, stored), lambda m: prove_inclusion(m - 1, n, stored)):
        for m in (1, 2, 777, 4096, 4097, 4999):
            stored.reads = 0
            make(m)
            assert stored.reads <= 2 * n.bit_length()
