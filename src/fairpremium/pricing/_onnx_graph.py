"""Prices as an ONNX graph: the caller's columns go in, the premium comes out, and arithmetic is in double precision.

Each column is an input of shape (n, 1). Its features are built as `Design` builds them: levels by one-hot encoding and
a matrix, bands by comparisons, splines by truncated powers. The prices of groups follow as `Prices` computes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fairpremium.arrays import Array
from fairpremium.errors import MissingExtraError
from fairpremium.models import (
    AddedPrices,
    BandsFactor,
    BoostedPrices,
    Categories,
    Column,
    Design,
    LevelsFactor,
    NeuralPrices,
    PolynomialFactor,
    SplineFactor,
)
from fairpremium.pricing._prices import LinearPrices, ModelPrices, Prices

OUTPUT = "premium"
_ARRAY = "X"  # the only input of a model that was fitted on an array
_OPSETS = {"": 18, "ai.onnx.ml": 5}
_IR_VERSION = 10
_MEANS = {"log": "Exp", "logit": "Sigmoid"}  # the operators of links; the identity has none
_LARGEST = float(np.finfo(np.float64).max)
_ACTIVATIONS = {"relu": "Relu", "tanh": "Tanh"}


def to_onnx(prices: Prices, unseen: str, precision: str) -> Any:
    """Return a model of the onnx package that computes h*; see `DiscriminationFreePricer.to_onnx`."""
    if precision not in ("float32", "float64"):
        raise ValueError(f'Got precision={precision!r}, but expected "float32" or "float64".')
    graph = _Graph(precision)
    matrix = _features(graph, prices.design, unseen)
    if isinstance(prices, LinearPrices):
        eta = graph.linear(matrix, prices.coefficients)
    elif isinstance(prices, ModelPrices):
        formula = prices.formula
        start = graph.op("Concat", matrix, _added(graph, formula.unaware, matrix, matrix), axis=1)
        eta = graph.within(_added(graph, formula.best, matrix, start), *formula.bounds)
    else:
        raise TypeError(f"Got {type(prices).__name__}, but expected prices of a linear, boosted or neural model.")
    mean = _MEANS.get(prices.family.link.name)
    mu = eta if mean is None else graph.op(mean, eta)
    mu = graph.within(mu, -_LARGEST, _LARGEST)
    return graph.model(graph.op("MatMul", mu, graph.constant(prices.reference)))


class _Graph:
    """Nodes, constants and inputs while they are put together."""

    def __init__(self, precision: str) -> None:
        try:
            import onnx
        except ImportError as error:
            raise MissingExtraError(
                'An ONNX file needs onnx. Install it with: pip install "fairpremium[onnx]"'
            ) from error
        self.onnx = onnx
        self.number = onnx.TensorProto.FLOAT if precision == "float32" else onnx.TensorProto.DOUBLE
        self.inputs: list[Any] = []
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def input(self, name: str, kind: int, width: int = 1) -> str:
        """Add an input of shape (n, width)."""
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, ["rows", width]))
        return name

    def constant(self, values: Any) -> str:
        """Add an array."""
        name = f"constant {len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(values), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output."""
        name = f"{kind} {len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def double(self, name: str) -> str:
        """Convert to double precision."""
        return self.op("Cast", name, to=self.onnx.TensorProto.DOUBLE)

    def affine(self, x: str, matrix: Array, constant: Array) -> str:
        """Compute x matrix + constant."""
        return self.op("Add", self.op("MatMul", x, self.constant(matrix)), self.constant(constant))

    def linear(self, x: str, coefficients: Array) -> str:
        """Compute a linear predictor of (1, x)."""
        return self.affine(x, coefficients[1:], coefficients[0])

    def within(self, x: str, low: float, high: float) -> str:
        """Return x where it is in a range, and NaN elsewhere: what `predict` refuses has no price."""
        above = self.op("GreaterOrEqual", x, self.constant(low))
        inside = self.op("And", above, self.op("LessOrEqual", x, self.constant(high)))
        return self.op("Where", inside, x, self.constant(np.nan))

    def model(self, output: str) -> Any:
        """Return the whole with its one output."""
        helper, onnx = self.onnx.helper, self.onnx
        self.nodes.append(helper.make_node("Identity", [output], [OUTPUT]))
        found = helper.make_tensor_value_info(OUTPUT, onnx.TensorProto.DOUBLE, ["rows"])
        graph = helper.make_graph(self.nodes, "fairpremium", self.inputs, [found], self.constants)
        opsets = [helper.make_opsetid(*each) for each in _OPSETS.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="fairpremium")
        onnx.checker.check_model(model, full_check=True)
        return model


# --- features --------------------------------------------------------------------------------------------------------


def _features(graph: _Graph, design: Design, unseen: str) -> str:
    """Build the features of a design: shape (n, features)."""
    columns = _columns(graph, design)
    found = []
    for term in design.terms or [column.term for column in design.columns]:
        name, width = "", 1
        for factor in term.factors:
            own = _factor(graph, factor, *columns[factor.column], unseen)
            size = len(factor.names)
            if name:  # all products, those of the first factor's features together
                left = graph.op("Unsqueeze", name, graph.constant([2]))
                right = graph.op("Unsqueeze", own, graph.constant([1]))
                own = graph.op("Reshape", graph.op("Mul", left, right), graph.constant([-1, width * size]))
            name, width = own, width * size
        if width:
            found.append(name)
    return graph.op("Concat", *found, axis=1)


def _columns(graph: _Graph, design: Design) -> dict[str, tuple[str, Column]]:
    """Add the inputs: one per column, or one for an array."""
    if not design.named:
        X = graph.input(_ARRAY, graph.number, len(design.columns))
        picked = (graph.op("Gather", X, graph.constant([j]), axis=1) for j in range(len(design.columns)))
        return {c.name: (x, c) for c, x in zip(design.columns, picked, strict=True)}
    kinds = {str: graph.onnx.TensorProto.STRING, bool: graph.onnx.TensorProto.BOOL, int: graph.onnx.TensorProto.INT64}
    return {
        c.name: (graph.input(c.name, graph.number if c.levels is None else kinds[type(c.levels[0])]), c)
        for c in design.columns
    }


def _factor(graph: _Graph, factor: Any, x: str, column: Column, unseen: str) -> str:
    """Build the features of a factor: shape (n, features)."""
    if isinstance(factor, LevelsFactor):
        return _levels(graph, factor, x, column, unseen)
    x = graph.double(x)
    if isinstance(factor, BandsFactor):
        cuts = np.array(factor.cuts)
        bands = factor.encode(np.array([cuts[0] - 1, *cuts]), "error")  # (bands, features)
        reached = graph.double(graph.op("GreaterOrEqual", x, graph.constant(cuts)))
        return graph.affine(reached, np.diff(bands, axis=0), bands[0])
    if isinstance(factor, PolynomialFactor):
        t = graph.op("Div", graph.op("Sub", x, graph.constant(factor.center)), graph.constant(factor.scale))
        powers = [t]
        for _ in range(1, factor.degree):
            powers.append(graph.op("Mul", powers[-1], t))
        return graph.op("Concat", *powers, axis=1)
    return _spline(graph, factor, x) if isinstance(factor, SplineFactor) else x


def _levels(graph: _Graph, factor: LevelsFactor, x: str, column: Column, unseen: str) -> str:
    """Build indicators; a level that was not seen stops the runtime, unless it has a place among the known ones."""
    assert column.levels is not None
    text = isinstance(column.levels[0], str)
    known = [
        level for level in (*factor.levels, *factor.grouped) if isinstance(level, str) == text
    ]  # "other" is no whole number
    features = factor.encode(Categories(known, np.arange(len(known))), "error")  # (levels, features)
    refuse = unseen == "error" and not factor.grouped
    if text:
        categories: dict[str, Any] = {"cats_strings": known}
    else:
        x = graph.op("Cast", x, to=graph.onnx.TensorProto.INT64)
        categories = {"cats_int64s": [int(level) for level in known]}
    encoded = graph.op("OneHotEncoder", x, domain="ai.onnx.ml", zeros=int(not refuse), **categories)
    indicators = graph.double(graph.op("Reshape", encoded, graph.constant([-1, len(known)])))
    other = features[known.index(factor.grouped[0]) if factor.grouped else 0]  # of rare levels, or of the base
    return graph.affine(indicators, features - other, other)


def _spline(graph: _Graph, factor: SplineFactor, x: str) -> str:
    """Build a natural spline as a line and a truncated cubic at each knot, in units of the knots' range."""
    from scipy.interpolate import CubicSpline

    knots = np.array(factor.knots)
    size = knots[-1] - knots[0]
    at = (knots - knots[0]) / size
    pieces = CubicSpline(at, np.eye(len(at))[:, 1:], bc_type="natural").c  # (power, interval, features)
    jumps = np.diff(pieces[0], axis=0, prepend=0.0, append=0.0)  # of the third derivative, over 6: (knots, features)
    u = graph.op("Div", graph.op("Sub", x, graph.constant(knots[0])), graph.constant(size))
    above = graph.op("Relu", graph.op("Sub", u, graph.constant(at)))
    cubes = graph.op("Mul", above, graph.op("Mul", above, above))
    return graph.affine(graph.op("Concat", u, cubes, axis=1), np.vstack([pieces[2, :1], jumps]), pieces[3, 0])


# --- what model classes add ------------------------------------------------------------------------------------------


def _added(graph: _Graph, added: AddedPrices, matrix: str, start: str) -> str:
    """Compute linear predictors from the features and those of the start: shape (n, groups)."""
    eta = graph.linear(start, added.coefficients)
    prices = added.prices
    if isinstance(prices, BoostedPrices):
        eta = _with_trees(graph, prices, matrix, eta)
    elif isinstance(prices, NeuralPrices):
        low, high = prices.bounds
        eta = graph.within(graph.op("Add", eta, _nets(graph, prices, matrix)), 2 * low - high, 2 * high - low)
    elif prices is not None:
        raise ValueError(
            f"Got prices of a {prices.kind}, but expected those of a linear, boosted or neural model: ONNX has no form "
            "for an arbitrary regressor."
        )
    return graph.op("Add", eta, graph.constant(added.shift))


def _nets(graph: _Graph, prices: NeuralPrices, matrix: str) -> str:
    nets = prices.nets
    spread = np.divide(1.0, nets.spread, where=nets.spread > 0, out=np.zeros_like(nets.spread))
    h = graph.op("Mul", graph.op("Sub", matrix, graph.constant(nets.center)), graph.constant(spread))
    for layer, (weights, biases) in enumerate(zip(nets.weights, nets.biases, strict=True)):
        if layer:
            h = graph.op(_ACTIVATIONS[nets.activation], h)
        h = graph.affine(h, weights, biases[:, None])  # (groups, n, units)
    h = graph.op("Squeeze", h, graph.constant([2]))
    return graph.op("Mul", graph.op("Transpose", h, perm=[1, 0]), graph.constant(prices.scale))


def _with_trees(graph: _Graph, prices: BoostedPrices, matrix: str, eta: str) -> str:
    """Add the leaves of the trees.

    A node that splits by a set of levels asks whether a row is outside of it, which is a column of its own: 1 minus the
    indicators of the levels in the set.
    """
    trees = prices.trees()
    if not trees:
        return eta
    width = prices.encoding.n_features
    columns = [np.eye(width)[:, a] for a, _ in prices.encoding.spans]  # of (features, 1): what a node looks at
    columns = [np.append(column, 0.0) for column in columns]
    splits: dict[str, list[Any]] = {
        name: [] for name in ("roots", "feature", "split", "true", "is_leaf", "false", "leaf")
    }
    weights: list[float] = []
    targets: list[int] = []
    constant = np.zeros(prices.groups)
    for i, tree in enumerate(trees):
        group, first, leaf = i % prices.groups, len(splits["feature"]), len(weights)
        if not len(tree.feature):
            constant[group] += tree.leaf_value[0]
            continue
        splits["roots"].append(first)
        weights += tree.leaf_value.tolist()
        targets += [group] * len(tree.leaf_value)
        for node in range(len(tree.feature)):
            feature, split = int(tree.feature[node]), float(tree.threshold[node])
            levels = tree.levels[node]
            if levels is not None:
                a, b = prices.encoding.spans[feature]
                inside = np.isin(np.arange(b - a + 1), levels)  # the base level first
                outside = np.zeros(width + 1)
                outside[a:b], outside[-1] = float(inside[0]) - inside[1:], 1.0 - inside[0]
                feature, split = len(columns), 0.5
                columns.append(outside)
            splits["feature"].append(feature)
            splits["split"].append(split)
            for side, end, child in (("true", "is_leaf", tree.left[node]), ("false", "leaf", tree.right[node])):
                splits[side].append(leaf + ~child if child < 0 else first + child)
                splits[end].append(int(child < 0))
    eta = graph.op("Add", eta, graph.constant(constant))
    if not weights:
        return eta
    seen = np.array(columns).T  # (features + 1, columns)
    tensor = graph.onnx.numpy_helper.from_array
    added = graph.op(
        "TreeEnsemble",
        graph.affine(matrix, seen[:-1], seen[-1]),
        domain="ai.onnx.ml",
        n_targets=prices.groups,
        aggregate_function=1,
        post_transform=0,
        tree_roots=splits["roots"],
        nodes_modes=tensor(np.zeros(len(splits["feature"]), dtype=np.uint8)),  # left if not above the split
        nodes_featureids=splits["feature"],
        nodes_splits=tensor(np.array(splits["split"])),
        nodes_truenodeids=splits["true"],
        nodes_trueleafs=splits["is_leaf"],
        nodes_falsenodeids=splits["false"],
        nodes_falseleafs=splits["leaf"],
        leaf_targetids=targets,
        leaf_weights=tensor(np.array(weights)),
    )
    return graph.op("Add", eta, added)
