"""The diagram of insurer and third party: who sends what, and which result of the paper stands behind each step."""

from __future__ import annotations

from xml.sax.saxutils import escape

import pandas as pd

from fairpremium.audit._plots import FONT, INK

_MESSAGES = [
    ("policyholder", "third party", "report S of the attribute D", "Definition 4.1: randomized response"),
    ("insurer", "third party", "X~ = T(X), outcome y, anchor features x*", "Section 3.2, Algorithm MPTP-LDP"),
    ("third party", "third party", "keep, where it is unknown", "Lemma 4.4, Procedure 4.5"),
    ("third party", "third party", "corrected risk", "Lemma 4.2 (as corrected)"),
    ("third party", "third party", "prices f_k by group", "Theorem 4.3, Theorem 4.6"),
    ("third party", "insurer", "best estimates and h*(x)", "Definitions 3.1 and 3.3"),
]
_BOXES = {  # x, y, width, height, fill, stroke, title
    "policyholder": (30, 40, 250, 190, "#fdf3e0", "#e69f00", "Policyholder"),
    "insurer": (30, 330, 250, 290, "#e6f3ee", "#009e73", "Insurer"),
    "third party": (560, 40, 330, 580, "#e8f1f8", "#0072b2", "Trusted third party"),
}
_TEXTS = [  # x, y, size, weight, anchor, words
    (155, 120, 22, "bold", "middle", "D  →  S"),
    (155, 155, 16, "normal", "middle", "noise drawn here,"),
    (155, 178, 16, "normal", "middle", "D never leaves"),
    (155, 412, 20, "bold", "middle", "X, y"),
    (155, 446, 16, "normal", "middle", "learns X~ = T(X)"),
    (155, 469, 16, "normal", "middle", "from X and y alone"),
    (155, 530, 16, "normal", "middle", "quotes from x:"),
    (155, 556, 20, "bold", "middle", "h*(x) = Σ μ(x, k) P*(k)"),
    (155, 584, 15, "normal", "middle", "Definition 3.3"),
    (420, 112, 19, "bold", "middle", "reports S"),
    (420, 160, 15, "normal", "middle", "Definition 4.1"),
    (420, 392, 19, "bold", "middle", "X~, y, x*"),
    (420, 440, 15, "normal", "middle", "Section 3.2"),
    (420, 522, 19, "bold", "middle", "μ(x, d), h*(x)"),
    (420, 570, 15, "normal", "middle", "Definitions 3.1, 3.3"),
]
_STEPS = [  # y, words, where
    (105, "keep unknown? estimate it", "Lemma 4.4, Procedure 4.5"),
    (234, "undo the noise on average", "Lemma 4.2: corrected risk"),
    (363, "one price μ(x, k) per group", "Algorithm MPTP-LDP"),
    (492, "how far from the best prices?", "Theorems 4.3 and 4.6"),
]


def diagram_table() -> pd.DataFrame:
    """Return the messages and steps of the diagram."""
    return pd.DataFrame(_MESSAGES, columns=["from", "to", "what", "where"])


def diagram_svg(table: pd.DataFrame) -> str:
    """Draw the diagram; the table says in words what the arrows say."""
    words = "; ".join(f"{row[0]} to {row[1]}: {row[2]} ({row[3]})" for row in table.itertuples(index=False))
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="920" height="660" viewBox="0 0 920 660" role="img" '
        f'font-family="{FONT}" fill="{INK}">',
        f"<title>Insurer and third party</title><desc>{escape(words)}</desc>",
        '<rect width="920" height="660" fill="#ffffff"/>',
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto">'
        f'<path d="M0 0 L10 5 L0 10 z" fill="{INK}"/></marker></defs>',
    ]
    for x, y, width, height, fill, stroke, title in _BOXES.values():
        parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="14" fill="{fill}" stroke="{stroke}" '
            f'stroke-width="2.5"/>' + _text(x + width / 2, y + 36, 21, "bold", "middle", title)
        )
    parts += [_arrow(284, 130, 552, 130), _arrow(284, 410, 552, 410), _arrow(556, 540, 288, 540)]
    parts += [_text(*text) for text in _TEXTS]
    for i, (y, what, where) in enumerate(_STEPS):
        parts.append(
            f'<rect x="582" y="{y}" width="286" height="92" rx="10" fill="#ffffff" stroke="#0072b2"/>'
            + _text(725, y + 40, 17, "bold", "middle", what)
            + _text(725, y + 68, 15, "normal", "middle", where)
        )
        if i:
            parts.append(_arrow(725, y - 35, 725, y - 3))
    return "\n".join([*parts, "</svg>\n"])


def _text(x: float, y: float, size: int, weight: str, anchor: str, words: str) -> str:
    style = f'font-size="{size}" font-weight="{weight}" text-anchor="{anchor}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{x1} {y1} L{x2} {y2}" stroke="{INK}" stroke-width="2.5" fill="none" marker-end="url(#tip)"/>'
