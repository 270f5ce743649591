"""LightGBM's text of boosted trees, reduced to what a price needs and checked down to every child of every node.

LightGBM writes how many rows of each group fell into each leaf, and the range of every column: nothing that a price
needs, so a model file does not hold it. It reads what it is given on trust, and a node that points outside its tree
reads memory that is not its own: text is therefore written anew from checked numbers before LightGBM sees it.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array

_NODES = ("split_feature", "threshold", "decision_type", "left_child", "right_child")
_LEVELS = ("cat_boundaries", "cat_threshold")
_INTEGER = re.compile(r"-?[0-9]{1,10}")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]{1,3})?", re.IGNORECASE)


class Tree(NamedTuple):
    """The nodes of one tree, the root first: a row goes left up to the threshold, and the child -1 - i is leaf i."""

    feature: npt.NDArray[np.int64]
    threshold: Array
    levels: list[npt.NDArray[np.int64] | None]  # of nodes that send the rows with some codes of levels left
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    leaf_value: Array


def read_trees(text: str) -> list[Tree]:
    """Return the trees of a text that `compact_trees` wrote."""
    found = []
    for part in re.split(r"^Tree=[0-9]+$", text.partition("end of trees")[0], flags=re.MULTILINE)[1:]:
        fields = _fields(part)

        def integers(name: str, fields: dict[str, str] = fields) -> npt.NDArray[np.int64]:
            return np.array(fields.get(name, "").split(), dtype=np.int64)

        bounds, bits = map(integers, _LEVELS)
        threshold = np.array(fields.get("threshold", "").split(), dtype=np.float64)
        levels: list[npt.NDArray[np.int64] | None] = [None] * len(threshold)
        for node in np.flatnonzero(integers("decision_type") & 1):
            start, stop = bounds[int(threshold[node]) : int(threshold[node]) + 2]
            words = bits[start:stop].astype(np.uint32)  # one bit for each code
            levels[node] = np.flatnonzero(words[:, None] >> np.arange(32, dtype=np.uint32) & 1)
        leaves = np.array(fields["leaf_value"].split(), dtype=np.float64)
        children = integers("left_child"), integers("right_child")
        found.append(Tree(integers("split_feature"), threshold, levels, *children, leaves))
    return found


def compact_trees(text: str, outputs: int, columns: int) -> str:
    """Check trees and return the text that LightGBM needs to predict with them.

    `text` is what `Booster.model_to_string` returned, or this function, for so many scores and features.

    Raises
    ------
    ValueError
        If the text does not describe such trees.
    """
    head, *trees = re.split(r"^Tree=[0-9]+$", text.partition("end of trees")[0], flags=re.MULTILINE)
    fields = _fields(head)
    expected = {"num_class": outputs, "num_tree_per_iteration": outputs, "max_feature_idx": columns - 1}
    if not head.startswith("tree\n") or any(fields.get(name) != str(value) for name, value in expected.items()):
        raise ValueError("the trees do not fit the groups and columns of the file")
    if "average_output" in fields or len(trees) % outputs:
        raise ValueError("the trees are not one per group and round")
    lines = ["tree", f"version={_version(fields)}", *(f"{name}={value}" for name, value in expected.items())]
    lines += ["label_index=0", "feature_names=" + " ".join(f"x{j}" for j in range(columns))]
    lines += ["feature_infos=" + " ".join(["none"] * columns), ""]
    for i, tree in enumerate(trees):
        lines += [f"Tree={i}", *_compact_tree(_fields(tree), columns), "", ""]
    return "\n".join([*lines, "end of trees", ""])


def _compact_tree(fields: dict[str, str], columns: int) -> list[str]:
    leaves, levels = (int(_tokens(fields, name, 1, _INTEGER)[0]) for name in ("num_leaves", "num_cat"))
    if leaves < 1 or levels < 0 or fields.get("is_linear", "0") != "0":
        raise ValueError("a tree is not one of constant leaves")
    tree = {"leaf_value": _tokens(fields, "leaf_value", leaves, _NUMBER)}
    nodes = leaves - 1
    if nodes:
        tree |= {name: _tokens(fields, name, nodes, _NUMBER if name == "threshold" else _INTEGER) for name in _NODES}
        _check_nodes(tree, leaves, columns)
    if levels:
        tree["cat_boundaries"] = _tokens(fields, "cat_boundaries", levels + 1, _INTEGER)
        bounds = np.array(tree["cat_boundaries"], dtype=np.int64)
        if bounds[0] != 0 or (np.diff(bounds) < 1).any():
            raise ValueError("the sets of levels of a tree are damaged")
        tree["cat_threshold"] = _tokens(fields, "cat_threshold", int(bounds[-1]), _INTEGER)
    if nodes:
        by_level = np.array(tree["decision_type"], dtype=np.int64) & 1 == 1
        which = np.array(tree["threshold"], dtype=np.float64)[by_level]
        if not np.isin(which, np.arange(levels)).all():
            raise ValueError("the sets of levels of a tree are damaged")
    head = [f"num_leaves={leaves}", f"num_cat={levels}"]
    body = [f"{name}={' '.join(tree[name])}" for name in (*_NODES, "leaf_value", *_LEVELS) if name in tree]
    return [*head, *body, "is_linear=0", "shrinkage=1"]


def _check_nodes(tree: dict[str, list[str]], leaves: int, columns: int) -> None:
    """Raise unless every node and leaf but the root is the child of exactly one earlier node."""
    feature, kind, left, right = (
        np.array(tree[name], dtype=np.int64) for name in ("split_feature", "decision_type", "left_child", "right_child")
    )
    if (feature < 0).any() or (feature >= columns).any() or (kind < 0).any() or (kind > 15).any():
        raise ValueError("a tree splits by a column that is not there")
    everyone: npt.NDArray[np.int64] = np.concatenate([np.arange(-leaves, 0), np.arange(1, leaves - 1)])
    own = np.arange(leaves - 1)
    later = all(((child < 0) | (child > own)).all() for child in (left, right))
    if not later or not np.array_equal(np.sort(np.concatenate([left, right])), everyone):
        raise ValueError("the nodes of a tree do not form a tree")


def _fields(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name and name in found:
            raise ValueError("the trees name a field twice")
        found[name] = value
    return found


def _tokens(fields: dict[str, str], name: str, count: int, form: re.Pattern[str]) -> list[str]:
    tokens = fields.get(name, "").split(" ") if fields.get(name) else []
    if len(tokens) != count or not all(form.fullmatch(token) for token in tokens) or not _finite(tokens):
        raise ValueError(f"{name} of a tree should be {count} finite numbers")
    return tokens


def _finite(tokens: Sequence[str]) -> bool:
    return bool(np.isfinite(np.array(tokens, dtype=np.float64)).all())


def _version(fields: dict[str, str]) -> str:
    version = fields.get("version", "")
    if not re.fullmatch(r"v[0-9]{1,2}", version):
        raise ValueError("the trees have no version")
    return version
