"""The options of fit for claims: which columns hold their numbers and amounts, and how both parts are fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fairpremium.cli._command import option_panel
from fairpremium.cli._model_options import ModelOptions, PricerOptions, make_family
from fairpremium.cli._parsing import split_list, split_numbers
from fairpremium.cli._portfolio import Roles, column_option

if TYPE_CHECKING:
    from fairpremium.pricing import FrequencySeverityPricer

claim_option = option_panel("Claims")
ONE_PERIL = "all"


LossesOption = Annotated[
    str,
    column_option(
        help="Column with losses per unit of volume; with --exposure their totals (claim counts, amounts). Or give "
        "--claims and --amount."
    ),
]
ClaimsOption = Annotated[
    str | None, column_option(help="Column with the number of claims; by peril: fire=n_fire,theft=n_theft.")
]
AmountOption = Annotated[
    str | None, column_option(help="Column with the total amount of a row's claims; by peril as --claims.")
]


@dataclass(frozen=True)
class FitRoles(Roles):
    """The columns of a fit: one outcome, or the number and the amount of claims."""

    outcome: LossesOption = ""
    claims: ClaimsOption = None
    amount: AmountOption = None

    def __post_init__(self) -> None:
        """Refuse columns that contradict each other."""
        check_losses(self.outcome, self.claims, self.amount, self.weight)
        super().__post_init__()

    @property
    def perils(self) -> dict[str, tuple[str, str]]:
        """Columns with the number and the amount of claims by peril."""
        return claim_columns(self.claims, self.amount)

    @property
    def columns(self) -> dict[str, str]:
        """The columns that are given, by role."""
        found = {role: name for role, name in super().columns.items() if name}
        for peril, pair in self.perils.items():
            of = "" if peril == ONE_PERIL else f" {peril}"
            found |= {f"claims{of}": pair[0], f"amount{of}": pair[1]}
        return found


def check_losses(outcome: str, claims: str | None, amount: str | None, weight: str | None) -> None:
    """Refuse columns of losses that contradict each other."""
    if claims is None and amount is None:
        if not outcome:
            raise ValueError("Got neither --outcome nor --claims with --amount, but expected one of them.")
        return
    if claims is None or amount is None:
        raise ValueError("Got one of --claims and --amount, but expected both.")
    for option, given in (("--outcome", outcome), ("--weight", weight)):
        if given:
            raise ValueError(f"Got {option} with --claims, but expected --claims, --amount and --exposure.")


def claim_columns(claims: str | None, amount: str | None) -> dict[str, tuple[str, str]]:
    """Return the columns with the number and the amount of claims by peril; none if they are not given."""
    if claims is None or amount is None:
        return {}
    counts, amounts = _by_peril(claims, "--claims"), _by_peril(amount, "--amount")
    if set(counts) != set(amounts):
        raise ValueError(f"Got --claims for {', '.join(counts)}, but --amount for {', '.join(amounts)}.")
    return {name: (column, amounts[name]) for name, column in counts.items()}


@dataclass(frozen=True)
class ClaimOptions:
    """How claims are fitted."""

    frequency: Annotated[str, claim_option(help="With --claims: family of the number of claims.")] = "poisson"
    severity: Annotated[str, claim_option(help="With --claims: family of the amount of a claim.")] = "gamma"
    cap: Annotated[
        str | None, claim_option(help="With --claims: amount above which a claim is large; by peril: theft=50000.")
    ] = None

    def caps(self) -> Any:
        """Return the amount above which claims are large, one by peril if so given, or None."""
        caps: Any = split_numbers(self.cap, "--cap")
        if isinstance(caps, list):
            if len(caps) > 1:
                raise ValueError(f"Got --cap {self.cap}, but expected one amount, or one by peril: fire=1e5,theft=5e4.")
            caps = caps[0]
        return caps

    def fields(self, options: ModelOptions) -> dict[str, Any]:
        """Return how claims are fitted as fields of a message."""
        _refuse_family(options)
        make_family(self.severity, options.power)
        return {"frequency": self.frequency, "severity": self.severity, "cap": self.caps()}

    def make_pricer(self, options: PricerOptions) -> FrequencySeverityPricer:
        """Return the pricer that the options describe, without a channel."""
        from fairpremium.pricing import FrequencySeverityPricer

        _refuse_family(options)
        if options.unreported != "exclude":
            raise ValueError(
                f"Got --unreported {options.unreported} with --claims, but expected it with --outcome only."
            )
        return FrequencySeverityPricer(
            frequency=make_family(self.frequency, None),
            severity=make_family(self.severity, options.power),
            reference=options.weights(),
            cap=self.caps(),
            model=options.models(),
            correction=options.correction,
            pooling=options.strength(),
            intervals=options.intervals,
            random_state=options.random_state,
            unseen_levels=options.unseen_levels,  # type: ignore[arg-type]
        )

    def refuse(self, needs: str = "--claims and --amount, but expected all three") -> None:
        """Refuse options that belong to claims, where there are none."""
        for name, default in (("frequency", "poisson"), ("severity", "gamma"), ("cap", None)):
            if getattr(self, name) != default:
                raise ValueError(f"Got --{name} without {needs}.")


def _refuse_family(options: ModelOptions) -> None:
    if options.family != "normal":
        raise ValueError(f"Got --family {options.family} with --claims, but expected --frequency and --severity.")


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
