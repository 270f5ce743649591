"""The options that say what is fitted, for ``fairpremium fit`` here and ``fairpremium insurer fit`` at the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fairpremium.cli._command import option_panel
from fairpremium.cli._parsing import split_list, split_weights
from fairpremium.families import FAMILIES, get_family

if TYPE_CHECKING:
    from fairpremium.pricing import DiscriminationFreePricer

model_option = option_panel("Model")


TermsOption = Annotated[
    str | None,
    model_option(help='What the columns become, such as "bands(age, 25, 40) + region"; "." for all others.'),
]


@dataclass(frozen=True)
class ModelOptions:
    """The options of a fit, wherever it runs."""

    family: Annotated[str, model_option(help=f"{', '.join(list(FAMILIES)[:-1])} or {list(FAMILIES)[-1]}.")] = "normal"
    power: Annotated[float | None, model_option(help="Variance power of tweedie; 1.5.")] = None
    model: Annotated[str, model_option(help="linear, boosted or neural.")] = "linear"
    correction: Annotated[
        str, model_option(help="How the noise is undone: auto, inverse, score, posterior or likelihood.")
    ] = "auto"
    pooling: Annotated[str, model_option(help="auto, or a strength in rows; 0 for none.")] = "auto"
    reference: Annotated[
        str, model_option(help="Weights of the groups: marginal, uniform, balanced, or F=0.5,M=0.5.")
    ] = "marginal"

    def strength(self) -> Any:
        """Return the strength of pooling, or "auto"."""
        try:
            return "auto" if self.pooling == "auto" else float(self.pooling)
        except ValueError:
            raise ValueError(f"Got --pooling {self.pooling}, but expected auto or a number.") from None

    def weights(self) -> Any:
        """Return the reference distribution: its name, or weights by group."""
        return split_weights(self.reference, "--reference") if "=" in self.reference else self.reference


@dataclass(frozen=True)
class PricerOptions(ModelOptions):
    """The options of a fit that runs here."""

    model: Annotated[
        str, model_option(help="linear, boosted or neural; several, such as linear,boosted, to choose.")
    ] = "linear"
    ridge: Annotated[float, model_option(help="Ridge penalty of a linear model.")] = 0.0
    terms: TermsOption = None
    slopes: Annotated[str, model_option(help="Effects of the features: own for each group, or common to all.")] = "own"
    intervals: Annotated[bool, model_option("--intervals/--no-intervals", help="Confidence limits.")] = True
    unseen_levels: Annotated[
        str, model_option(help="Price a text level that fit did not see: error, or base for the base level.")
    ] = "error"
    unreported: Annotated[
        str,
        model_option(
            help="Rows without a report: exclude, or include them in the corrections that can learn from them."
        ),
    ] = "exclude"
    random_state: Annotated[int | None, model_option(help="Seed of folds and training.")] = None

    def columns(self) -> list[str] | None:
        """Return the columns that --terms names; None if all without a role may be features."""
        from fairpremium.models import parse_terms

        parsed = None if self.terms is None else parse_terms(self.terms)
        return None if parsed is None or parsed.others else list(parsed.columns)

    def models(self) -> Any:
        """Return the model class, or the list of those to choose from."""
        from fairpremium.models import LinearModel

        names = split_list(self.model, "--model") or []
        for option, given in (("ridge", self.ridge), ("terms", self.terms), ("slopes", self.slopes != "own")):
            if given and "linear" not in names:
                raise ValueError(f"Got --{option} with --model {self.model}, but expected --model linear.")
        linear = LinearModel(ridge=self.ridge, slopes=self.slopes, terms=self.terms)  # type: ignore[arg-type]
        models = [linear if name == "linear" else name for name in names]
        return models[0] if len(models) == 1 else models

    def make_pricer(self) -> DiscriminationFreePricer:
        """Return the pricer that the options describe, without a channel."""
        from fairpremium.pricing import DiscriminationFreePricer

        return DiscriminationFreePricer(
            family=make_family(self.family, self.power),
            model=self.models(),
            correction=self.correction,
            pooling=self.strength(),
            reference=self.weights(),
            intervals=self.intervals,
            unseen_levels=self.unseen_levels,  # type: ignore[arg-type]
            unreported=self.unreported,  # type: ignore[arg-type]
            random_state=self.random_state,
        )


def make_family(name: str, power: float | None) -> Any:
    """Return the family that --family and --power name."""
    if power is None:
        return get_family(name)
    if name != "tweedie":
        raise ValueError(f"Got --power with --family {name}, but expected --family tweedie.")
    return get_family({"name": name, "power": power})
