"""The options of fit for claims: which columns hold their numbers and amounts, and how both parts are fitted."""

from dataclasses import dataclass
from typing import Annotated, Any

from fairpremium.cli._command import option_panel
from fairpremium.cli._model_options import PricerOptions, make_family
from fairpremium.cli._parsing import split_list, split_numbers
from fairpremium.cli._portfolio import Roles, column_option
from fairpremium.pricing import FrequencySeverityPricer

_option = option_panel("Claims")
ONE_PERIL = "all"


@dataclass(frozen=True)
class FitRoles(Roles):
    """The columns of a fit: one outcome, or the number and the amount of claims."""

    outcome: Annotated[
        str,
        column_option(
            help="Column with losses per unit of volume; with --exposure their totals (claim counts, amounts). Or give "
            "--claims and --amount."
        ),
    ] = ""
    claims: Annotated[
        str | None, column_option(help="Column with the number of claims; by peril: fire=n_fire,theft=n_theft.")
    ] = None
    amount: Annotated[
        str | None, column_option(help="Column with the total amount of a row's claims; by peril as --claims.")
    ] = None

    def __post_init__(self) -> None:
        """Refuse columns that contradict each other."""
        if self.claims is None and self.amount is None:
            if not self.outcome:
                raise ValueError("Got neither --outcome nor --claims with --amount, but expected one of them.")
        else:
            if self.claims is None or self.amount is None:
                raise ValueError("Got one of --claims and --amount, but expected both.")
            for option, given in (("--outcome", self.outcome), ("--weight", self.weight)):
                if given:
                    raise ValueError(f"Got {option} with --claims, but expected --claims, --amount and --exposure.")
        super().__post_init__()

    @property
    def perils(self) -> dict[str, tuple[str, str]]:
        """Columns with the number and the amount of claims by peril."""
        if self.claims is None or self.amount is None:
            return {}
        counts, amounts = _by_peril(self.claims, "--claims"), _by_peril(self.amount, "--amount")
        if set(counts) != set(amounts):
            raise ValueError(f"Got --claims for {', '.join(counts)}, but --amount for {', '.join(amounts)}.")
        return {name: (column, amounts[name]) for name, column in counts.items()}

    @property
    def columns(self) -> dict[str, str]:
        """The columns that are given, by role."""
        found = {role: name for role, name in super().columns.items() if name}
        for peril, pair in self.perils.items():
            of = "" if peril == ONE_PERIL else f" {peril}"
            found |= {f"claims{of}": pair[0], f"amount{of}": pair[1]}
        return found


@dataclass(frozen=True)
class ClaimOptions:
    """How claims are fitted."""

    frequency: Annotated[str, _option(help="With --claims: family of the number of claims.")] = "poisson"
    severity: Annotated[str, _option(help="With --claims: family of the amount of a claim.")] = "gamma"
    cap: Annotated[
        str | None, _option(help="With --claims: amount above which a claim is large; by peril: theft=50000.")
    ] = None

    def make_pricer(self, options: PricerOptions) -> FrequencySeverityPricer:
        """Return the pricer that the options describe, without a channel."""
        if options.family != "normal":
            raise ValueError(f"Got --family {options.family} with --claims, but expected --frequency and --severity.")
        caps: Any = split_numbers(self.cap, "--cap")
        if isinstance(caps, list):
            if len(caps) > 1:
                raise ValueError(f"Got --cap {self.cap}, but expected one amount, or one by peril: fire=1e5,theft=5e4.")
            caps = caps[0]
        return FrequencySeverityPricer(
            frequency=make_family(self.frequency, None),
            severity=make_family(self.severity, options.power),
            reference=options.weights(),
            cap=caps,
            model=options.models(),
            correction=options.correction,
            pooling=options.strength(),
            intervals=options.intervals,
            random_state=options.random_state,
            unseen_levels=options.unseen_levels,  # type: ignore[arg-type]
        )

    def refuse(self) -> None:
        """Refuse options that belong to claims, where there are none."""
        for name, default in (("frequency", "poisson"), ("severity", "gamma"), ("cap", None)):
            if getattr(self, name) != default:
                raise ValueError(f"Got --{name} without --claims and --amount, but expected all three.")


def _by_peril(text: str, option: str) -> dict[str, str]:
    parts = split_list(text, option) or []
    if len(parts) == 1 and "=" not in parts[0]:
        return {ONE_PERIL: parts[0]}
    found: dict[str, str] = {}
    for part in parts:
        name, equals, column = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not column or name in found:
            raise ValueError(f"Got {option} with {part!r}, but expected every peril once, such as fire=n,theft=m.")
        found[name] = column
    return found
