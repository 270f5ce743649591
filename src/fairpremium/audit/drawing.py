"""What all drawings share: colours, fonts and axes, numbers as text, and the way from an Altair chart to SVG.

Importing this module does not load Altair.
"""

import importlib
import itertools
import math
import textwrap
from collections.abc import Iterable
from typing import Any

from fairpremium.errors import MissingExtraError

__all__ = [
    "FONT",
    "GREY",
    "GROUP_COLOURS",
    "GROUP_SHAPES",
    "INK",
    "LIGHT",
    "MAX_GROUPS",
    "PRICE_COLOURS",
    "PRICE_NAMES",
    "apply_style",
    "choose_places",
    "cycle_to",
    "format_percent",
    "format_price",
    "import_altair",
    "import_extra",
    "import_vl_convert",
    "name_pair",
    "panel_title",
    "to_svg",
    "wrap",
]

# The three prices by the names that tables call them.
BEST_ESTIMATE, UNAWARE, DISCRIMINATION_FREE = "best_estimate", "unaware", "discrimination_free"

# Okabe and Ito: told apart by all common kinds of colour vision.
GROUP_COLOURS = ["#e69f00", "#0072b2", "#cc79a7", "#56b4e9", "#f0e442"]
GROUP_SHAPES = ["circle", "square", "triangle-up", "cross", "triangle-down"]
PRICE_COLOURS = {UNAWARE: "#d55e00", DISCRIMINATION_FREE: "#009e73"}
PRICE_NAMES = {BEST_ESTIMATE: "best estimate", UNAWARE: "unaware", DISCRIMINATION_FREE: "discrimination-free"}
INK, GREY, LIGHT = "#222222", "#999999", "#dddddd"
MAX_GROUPS = 20  # with more groups the tables of pairs are too long to read and colours repeat
FONT = "Helvetica, Arial, sans-serif"
_MOST_PLACES = 8
_LINE, _LINES = 27, 3  # characters in a line of a label, and lines above which they get longer


def apply_style(chart: Any, size: int = 13, **more: Any) -> Any:
    """Give a chart the fonts, colours and quiet axes that all drawings share, and return it.

    The chart itself is changed; `more` are further settings. Altair's own ``configure`` copies all of it at every call.
    """
    axis = {
        "labelFontSize": size, "titleFontSize": size, "titleFontWeight": "normal", "labelColor": INK, "titleColor": INK,
        "gridColor": "#eeeeee", "domain": False, "ticks": False, "labelLimit": 0, "labelPadding": 6,
    }  # fmt: skip
    numbers = {"labelOverlap": "greedy", "labelSeparation": 8}
    chart.config = import_altair().Config(
        font=FONT,
        background="white",
        padding=8,
        lineBreak="\n",
        axis=axis,
        axisXQuantitative=numbers,
        view={"stroke": None},
        legend={"labelLimit": 0},
        **more,
    )
    return chart


def panel_title(text: str, size: int = 14, **more: Any) -> Any:
    """Return the title of a panel."""
    return import_altair().Title(
        wrap(text, 2 * _LINE), anchor="start", fontSize=size, fontWeight="bold", color=INK, **more
    )


def wrap(text: str, width: int = _LINE) -> str:
    r"""Break a long label into lines, of which drawings cut nothing off.

    Examples
    --------
    >>> wrap("Coupe, private use only, including vans")
    'Coupe, private use only,\nincluding vans'
    """
    width = max(width, math.ceil(len(text) / _LINES) + 4)
    return "\n".join(line for part in text.split("\n") for line in textwrap.wrap(part, width, break_on_hyphens=False))


def name_pair(group: str, against: str) -> str:
    """Return the label of two groups that are compared; a long one begins a new line with the second group."""
    return f"{group} against {against}" if len(group) + len(against) + 9 <= _LINE else f"{group}\nagainst {against}"


def to_svg(chart: Any) -> str:
    """Return a chart as SVG text, without a browser and without the network."""
    return str(import_vl_convert().vegalite_to_svg(chart.to_dict(validate=False)))


def import_altair() -> Any:
    """Return Altair, or say how to get it."""
    return import_extra("altair", "Drawings need altair")


def import_vl_convert() -> Any:
    """Return vl-convert, or say how to get it."""
    return import_extra("vl_convert", "Drawings need vl-convert-python")


def import_extra(module: str, need: str) -> Any:
    """Return a module of the extra "report", or say who needs it and how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f'{need}. Install it with: pip install "fairpremium[report]"') from error


def cycle_to(values: Iterable[Any], length: int) -> list[Any]:
    """Return so many values, from the first again after the last."""
    return list(itertools.islice(itertools.cycle(values), length))


def choose_places(values: Iterable[float | None], errors: Iterable[float | None] = ()) -> int:
    """Return the decimal places of numbers that stand together: those of the smallest standard error's first digit.

    No number gets more than four significant digits, nor more places than the error asks for; without errors it is
    three digits of the largest number. Large numbers lose no digit before the point.

    Examples
    --------
    >>> choose_places([434.2, 389.1], [2.8, 3.1]), choose_places([43.52], [0.28]), choose_places([0.04567])
    (0, 1, 4)
    """
    known = [abs(value) for value in values if value is not None and math.isfinite(value)]
    spread = [error for error in errors if error is not None and math.isfinite(error) and error > 0]
    largest = max(known, default=0.0)
    digits = math.floor(math.log10(largest)) if largest > 0 else None
    if not spread:
        return 0 if digits is None else min(max(2 - digits, 0), _MOST_PLACES)
    places = -math.floor(math.log10(min(spread)))
    return min(max(places if digits is None else min(places, 3 - digits), 0), _MOST_PLACES)


def format_price(value: float | None, error: float | None = None, *, places: int | None = None) -> str:
    """Write an amount with the digits that its standard error supports, or else its size; see `choose_places`.

    Examples
    --------
    >>> format_price(1234.56), format_price(0.04567), format_price(43.0), format_price(None)
    ('1,235', '0.0457', '43.0', '')
    >>> format_price(43.52, 0.28), format_price(434.2, 12.5), format_price(-0.3, 4.0)
    ('43.5', '434', '0')
    """
    if value is None or not math.isfinite(value):
        return ""
    text = f"{value:,.{choose_places([value], [error]) if places is None else places}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text  # no minus before zero


def format_percent(value: float | None, digits: int = 1) -> str:
    r"""Write a share as per cent.

    Examples
    --------
    >>> format_percent(0.1234).split(), format_percent(0.0004).split(), format_percent(None)
    (['12.3', '%'], ['0.04', '%'], '')
    >>> [format_percent(value).replace("\N{NO-BREAK SPACE}", " ") for value in (1e-8, -1e-8)]
    ['less than 0.01 %', 'more than -0.01 %']
    """
    if value is None or not math.isfinite(value):
        return ""
    scaled = 100 * value
    if scaled and abs(scaled) < 0.01:
        text = "less than 0.01" if scaled > 0 else "more than -0.01"
    elif scaled and abs(scaled) < 0.1:
        text = f"{scaled:.1g}"
    else:
        text = f"{scaled:.{digits}f}"
    return f"{text}\N{NO-BREAK SPACE}%"
