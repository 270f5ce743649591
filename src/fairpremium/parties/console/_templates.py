"""Templates of the console, the words and numbers that they show, and the files that a page needs beside its text."""

import hashlib
import json
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from fairpremium import __version__
from fairpremium.audit.drawing import choose_places, format_percent, format_price


def load_templates(digests: dict[str, str]) -> jinja2.Environment:
    """Return the templates; the digests of the files beside the text are part of their addresses."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fairpremium.parties.console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": format_percent,
        "count": _count,
        "when": lambda s: "" if s is None else datetime.fromtimestamp(s, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "lasted": _lasted,
        "place": lambda part: quote(str(part), safe=""),
        "age": _age,
        "amount": _amount,
        "size": _size,
    }
    environment.globals |= {
        "version": __version__,
        "static": lambda name: f"/console/static/{name}?{digests[name][:12]}",
    }
    return environment


def load_static() -> dict[str, tuple[bytes, str]]:
    """Return the stylesheet, the script and the icon, with their digests."""
    found = {}
    for file in files("fairpremium.parties.console").joinpath("static").iterdir():
        content = file.read_bytes()
        found[file.name] = (content, hashlib.sha256(content).hexdigest())
    return found


def show_comparison(summary: dict[str, Any] | None, level: float) -> dict[str, Any]:
    """Return charts, tables and findings of a finished fit, from what was released of it."""
    given = summary or {}
    scale, unit = given.get("scale", 1), given.get("amounts", "")
    sections = {s.get("id"): s for s in given.get("sections") or () if isinstance(s, dict)}
    means = (sections.get("group_means") or {}).get("records") or []
    known = [row for row in means if row.get("premium_low") is not None and row.get("premium_high") is not None]
    errors = [scale * (row["premium_high"] - row["premium_low"]) / 4 for row in known]
    places = choose_places([scale * row["premium"] for row in known], errors)
    return {
        "charts": {
            name: _draw(json.dumps(sections.get(name)), level, unit, scale)
            for name in ("group_means", "price_comparison")
        },
        "means": [*means, *((sections.get("group_means_by_attribute") or {}).get("records") or ())],
        "classes": (sections.get("price_comparison") or {}).get("classes") or [],
        "amount": lambda value: "" if value is None else format_price(scale * value, places=places),
        "findings": given.get("findings") or [],
    }


@lru_cache(maxsize=64)
def _draw(section: str, level: float, unit: str, scale: float) -> Markup | None:
    """Draw a section of an audit, if there is one; pages ask every second while a fit runs, so drawings are cached."""
    from fairpremium.audit import render_chart  # with all that audits need, which a service without fits does not

    try:
        svg = render_chart(json.loads(section), level=level, unit=unit, scale=scale)
    except (KeyError, TypeError, ValueError):  # not as it was stored
        return None
    return None if svg is None else Markup(svg)  # ours: Vega escapes what it is given


def _lasted(seconds: float) -> str:
    """Write a duration.

    Examples
    --------
    >>> _lasted(0.4), _lasted(75), _lasted(7300)
    ('less than a second', '1 min 15 s', '2 h 1 min')
    """
    whole = int(seconds)
    if whole < 1:
        return "less than a second"
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _size(size: int) -> str:
    """Write what a disk holds, in steps of 0.1 GB.

    Examples
    --------
    >>> _size(40_000_000), _size(2_340_000_000), _size(52_340_000_000)
    ('less than 0.1 GB', '2.3 GB', '52 GB')
    """
    if size < 1e8:
        return "less than 0.1 GB"
    return f"{size / 1e9:,.0f} GB" if size >= 1e10 else f"{size / 1e9:.1f} GB"


def _amount(size: int) -> str:
    """Write how much somebody has sent.

    Examples
    --------
    >>> _amount(0), _amount(60_100), _amount(12_340_000), _amount(107_374_182_400)
    ('0 KB', '60 KB', '12.3 MB', '107.4 GB')
    """
    if size < 1e6:
        return f"{size / 1e3:.0f} KB"
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _age(seconds: float) -> str:
    """Write a long duration.

    Examples
    --------
    >>> _age(59.0), _age(7300.0), _age(86400.0), _age(400 * 86400.0)
    ('less than an hour', '2 hours', '1 day', '400 days')
    """
    hours, days = int(seconds // 3600), int(seconds // 86400)
    if not hours:
        return "less than an hour"
    number, unit = (days, "day") if days else (hours, "hour")
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


def _count(value: int | None, suppressed: int) -> str:
    """Write a rounded count.

    Examples
    --------
    >>> _count(1900, 7), _count(None, 7)
    ('about 1,900', '7 or fewer')
    """
    return f"{suppressed} or fewer" if value is None else f"about {value:,}"
