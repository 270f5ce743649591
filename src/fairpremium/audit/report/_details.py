"""Whose prices an audit report is about, and who stands behind it."""

from dataclasses import asdict, dataclass

MAX_LENGTH = 200
_LABELS = {
    "insurer": "Insurer",
    "tariff_version": "Tariff version",
    "period": "Period",
    "prepared_by": "Prepared by",
    "approved_by": "Approved by",
}


@dataclass(frozen=True)
class ReportDetails:
    """What the head of an audit report says about the prices, in the author's words.

    What is left empty is shown as "not given", so that a reader sees that it is missing.

    Parameters
    ----------
    insurer : str
        Whose prices they are.
    tariff_version : str
        Which tariff, such as "Motor 2026.1".
    period : str
        When the losses happened, such as "1 January to 31 December 2025".
    prepared_by, approved_by : str
        Names and functions in the sign-off; date and signature are filled in by hand.
    """

    insurer: str = ""
    tariff_version: str = ""
    period: str = ""
    prepared_by: str = ""
    approved_by: str = ""

    def __post_init__(self) -> None:
        for name, text in asdict(self).items():
            if not isinstance(text, str) or len(text) > MAX_LENGTH:
                raise ValueError(f"Got {name}={text!r:.60}, but expected a text of at most {MAX_LENGTH} characters.")

    def to_dict(self) -> dict[str, str]:
        """Return the fields as plain data."""
        return asdict(self)

    @staticmethod
    def label(name: str) -> str:
        """Return the heading of a field."""
        return _LABELS[name]
