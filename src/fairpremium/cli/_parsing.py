"""How lists, weights and mechanisms are written on the command line."""

import csv
from enum import StrEnum

Weights = dict[str, float]


class Mechanism(StrEnum):
    """How a report is drawn."""

    randomized_response = "randomized-response"
    subset_selection = "subset-selection"


def split_list(text: str | None, option: str) -> list[str] | None:
    """Split ``a,b,"c, d"`` at its commas.

    Examples
    --------
    >>> split_list('F, M,"not said, or unknown"', "--groups")
    ['F', 'M', 'not said, or unknown']
    """
    if text is None:
        return None
    parts = [part.strip() for part in next(csv.reader([text], skipinitialspace=True), [])]
    if not parts or not all(parts):
        raise ValueError(f"Got {option} with an empty name, but expected names with commas between them, such as F,M.")
    return parts


def split_numbers(text: str | None, option: str) -> list[float] | Weights | None:
    """Split ``0.7,0.3`` into numbers, or ``F=0.7,M=0.3`` into numbers by name.

    Examples
    --------
    >>> split_numbers("0.7,0.3", "--shares"), split_numbers("F=0.7,M=0.3", "--shares")
    ([0.7, 0.3], {'F': 0.7, 'M': 0.3})
    """
    parts = split_list(text, option)
    if parts is None:
        return None
    if any("=" in part for part in parts):
        return split_weights(text, option)
    return [to_number(part, option) for part in parts]


def split_weights(text: str | None, option: str) -> Weights | None:
    """Split ``F=0.45,M=0.55`` into numbers by name."""
    parts = split_list(text, option)
    if parts is None:
        return None
    weights: Weights = {}
    for part in parts:
        name, equals, number = part.rpartition("=")
        if not equals or not name.strip() or name.strip() in weights:
            raise ValueError(f"Got {option} with {part!r}, but expected every group once, such as F=0.45,M=0.55.")
        weights[name.strip()] = to_number(number, option)
    return weights


def split_pairs(texts: list[str], option: str, example: str) -> dict[str, str]:
    """Split ``name=text`` for each use of an option that may be repeated.

    Examples
    --------
    >>> split_pairs(["age=25,40", "power=formula"], "--bands", "age=25,40,65")
    {'age': '25,40', 'power': 'formula'}
    """
    found: dict[str, str] = {}
    for each in texts:
        name, equals, text = (part.strip() for part in each.partition("="))
        if not (name and equals and text) or name in found:
            raise ValueError(f"Got {option} with {each!r}, but expected every name once, such as {example}.")
        found[name] = text
    return found


def to_number(text: str, option: str) -> float:
    """Return a number that was typed."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"Got {option} with {text.strip()!r}, but expected numbers.") from None
