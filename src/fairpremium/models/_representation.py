"""The insurer's learned representation X~ = T(X): the last hidden layer of a net that prices without the attribute."""

from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from fairpremium.arrays import Array
from fairpremium.blocks import Rows
from fairpremium.documents import digest, read_document, write_document
from fairpremium.errors import ModelFileError
from fairpremium.families import Family, get_family
from fairpremium.models._checks import check_outcome, check_setting, check_weight, is_number
from fairpremium.models._design import Design, as_frame, frame_like
from fairpremium.models._group_model import TrainingData
from fairpremium.models._nets import check_numbers
from fairpremium.models._neural import NeuralModel, NeuralPrices, check_layers
from fairpremium.models._training import Units

_FORMAT = "fairpremium-representation"
_VERSION = 1
_NET = ("activation", "learning_rate", "batch_size", "max_epochs", "patience", "weight_decay", "averaging", "device")


@dataclass(eq=False, repr=False)
class NeuralRepresentation(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Features that a net has learned: what an insurer sends in place of its raw columns.

    A net u(x) is trained on features and outcomes by deviance, without any sensitive attribute; its last hidden layer
    is the representation, on which linear prices are a good fit. Raw columns stay with the insurer.

    Parameters
    ----------
    family : str or Family
        Outcome distribution, as for `DiscriminationFreePricer`.
    layers : tuple of int
        Units of the hidden layers; the last is the number of columns of the representation.
    activation : {"relu", "tanh"}
        Of the hidden layers. A unit of "relu" can be zero for every row, one of "tanh" cannot.
    learning_rate, batch_size, max_epochs, patience, weight_decay, averaging, device
        Training, as for `NeuralModel`.
    held_out : float
        Share of the rows that decide when to stop, rounded to whole rows; none (0, or less than half a row) trains for
        `max_epochs`.
    random_state : None, int, RandomState
        Starting weights, mini-batches and held-out rows.

    Attributes
    ----------
    fingerprint_ : str
        SHA-256 of the fitted transform, which is also that of its file: shows which transform made an upload.
    history_ : dict of lists
        Loss after each epoch: `train_loss` and `held_loss`.
    n_features_in_, feature_names_in_
        The caller's columns.

    Notes
    -----
    The representation is a function of what x says about y, and proxies of the attribute are in it as they are in
    x: it replaces neither the correction nor the discrimination-free price, and hides nothing that x shows.

    References
    ----------
    T. Zhang, S. Liu and P. Shi (2025), "Discrimination-Free Insurance Pricing with Privatized Sensitive Attributes",
    Section 3: T(X) as the last hidden layer of a feed-forward net.

    Examples
    --------
    >>> from fairpremium.portfolios import zhang_liu_shi_2025
    >>> p = zhang_liu_shi_2025(n=500, rng=0)
    >>> representation = NeuralRepresentation(layers=(16, 4), max_epochs=20, random_state=0).fit(p.X, p.y)
    >>> list(representation.transform(p.X).columns)
    ['z0', 'z1', 'z2', 'z3']
    """

    family: str | Family = "normal"
    layers: tuple[int, ...] = (64, 16)
    activation: str = "tanh"
    learning_rate: float = 0.02
    batch_size: int | Literal["auto"] = "auto"
    max_epochs: int = 200
    patience: int = 50
    weight_decay: float = 0.0
    averaging: float = 0.99
    device: str = "auto"
    held_out: float = 0.2
    random_state: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train u(x) on the outcomes.

        Parameters
        ----------
        X : data frame (pandas, polars, Arrow) or array of shape (n, features)
            Non-sensitive features; text and boolean columns are encoded.
        y : array of shape (n,)
            Outcome; for frequencies and pure premiums per unit of exposure.
        sample_weight : array of shape (n,), optional
            Volume.

        Returns
        -------
        self
        """
        family, model = get_family(self.family), self._model()
        share = self.held_out
        check_setting(self, "held_out", is_number(share) and 0 <= share < 1, "a share of the rows from 0 to below 1")
        design, matrix = Design.learn_transform(X, least_rows=2)
        n = len(matrix)
        m = round(self.held_out * n)
        if m == n:
            raise ValueError(f"Got held_out={self.held_out!r} of {n} rows, which leaves none to learn from.")
        outcome = check_outcome(y, n, family)
        rows = Rows(matrix, outcome, check_weight(sample_weight, n), np.zeros(n, dtype=np.intp))
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        order = rng.permutation(n)
        train, held = rows.take(np.sort(order[m:])), rows.take(np.sort(order[:m])) if m else None
        center = Units.learn(train.y, train.weight, family).center
        start, held_start = np.full((n - m, 1), center), np.full((m, 1), center)
        data = TrainingData(design, family, train, start, _Deviance(family, train, held), held, held_start)
        self._set(family, design, center, model.train(data, rng))
        return self

    def transform(self, X: Any) -> Any:
        """Compute the representation: columns z0, z1, ..., as a data frame of X's library, or an array for arrays."""
        values = self._prices.nets.last_hidden(self._matrix(X))
        return values if as_frame(X) is None else frame_like(X, values, tuple(self.get_feature_names_out()))

    def predict(self, X: Any) -> Array:
        """Compute the unaware price u(x) that the net was trained to give."""
        matrix = self._matrix(X)
        start = np.full((len(matrix), 1), self._center)
        return self._family.link.mean_of(self._prices.predictor(matrix, start)[:, 0])

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Return the names of the columns: z0, z1, ..."""
        check_is_fitted(self)
        known = getattr(self, "feature_names_in_", None)
        if input_features is not None and known is not None and list(input_features) != list(known):
            raise ValueError("input_features is not equal to feature_names_in_")
        return np.array([f"z{j}" for j in range(self._prices.nets.weights[-1].shape[1])], dtype=object)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted representation to a JSON file; `load` reads it back and never executes code."""
        check_is_fitted(self)
        write_document(self._body(), path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a representation that `save` wrote.

        Raises
        ------
        ModelFileError
            The file is not one, or was damaged.
        """
        body = read_document(path, _FORMAT, _VERSION, "fairpremium representation")
        try:
            family, settings = get_family(body["family"]), dict(body["settings"])
            representation = cls(family=family, **{**settings, "layers": tuple(settings["layers"])})
            representation._model()
            design = Design.from_dict(body["design"])
            center = float(check_numbers(body["center"], (), "center"))
            prices = NeuralPrices.from_dict(body["prices"])
            if prices.nets.groups != 1 or len(prices.nets.center) != len(design.features):
                raise ValueError("the net does not fit the columns")
            representation._set(family, design, center, prices)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            message = f"{path} is not a valid fairpremium representation: {type(error).__name__}: {error}"
            raise ModelFileError(message) from error
        return representation

    def _model(self) -> NeuralModel:
        check_layers(self, "layers")
        model = NeuralModel(hidden=self.layers, **{name: getattr(self, name) for name in _NET})
        model.check()
        return model

    def _set(self, family: Family, design: Design, center: float, prices: NeuralPrices) -> None:
        settings = {name: getattr(self, name) for name in (*_NET, "held_out")}
        settings = {k: v.item() if isinstance(v, np.generic) else v for k, v in settings.items()}
        # as plain data: parameters may be set anew after the fit, and say nothing about it then
        self._trained_with = {"layers": [int(units) for units in self.layers], **settings}
        self._family, self._design, self._center, self._prices = family, design, center, prices
        design.name_features(self)
        self.history_ = prices.history
        self.fingerprint_ = digest(self._body())

    def _body(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "family": self._family.to_dict(),
            "settings": self._trained_with,
            "design": self._design.to_dict(),
            "center": self._center,
            "prices": self._prices.to_dict(),
        }

    def _matrix(self, X: Any) -> npt.NDArray[Any]:
        check_is_fitted(self)
        return self._design.transform(X, of=type(self).__name__)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class _Deviance:
    """The deviance of one price for all rows, by volume."""

    signed = False

    def __init__(self, family: Family, train: Rows, held: Rows | None):
        self.family, self.train, self.held = family, train, held

    def weights(self, eta: Array) -> Array:
        return np.ones_like(eta) if self.train.weight is None else self.train.weight[:, None]

    def held_loss(self, eta: Array) -> float:
        assert self.held is not None
        loss = self.family.loss_terms(self.held.y, eta[:, 0])[0]
        return float(np.average(loss, weights=self.held.weight))
