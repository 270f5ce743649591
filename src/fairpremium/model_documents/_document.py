"""A document: headings with sentences, facts and tables, as Markdown or as one page of HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike
from pathlib import Path

_STYLE = """
body { font: 15px/1.5 Helvetica, Arial, sans-serif; color: #222; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin: 2rem 0 .4rem; break-after: avoid; }
table { border-collapse: collapse; margin: .6rem 0; font-size: .92em; break-inside: avoid; }
th, td { text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #ddd; }
th { font-weight: 600; } td { overflow-wrap: break-word; } .form td { min-width: 9rem; height: 1.8rem; }
.wide { overflow-x: auto; } @media print { body { margin: 0; max-width: none; } }
"""


@dataclass(frozen=True)
class Table:
    """Rows of text under names of columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """A heading, and sentences and tables below it."""

    heading: str
    blocks: tuple[str | Table, ...]


@dataclass(frozen=True)
class ModelDocument:
    """A document about a model.

    Parameters
    ----------
    title : str
    sections : sequence of Section
    """

    title: str
    sections: tuple[Section, ...]

    def to_markdown(self) -> str:
        """Return the document as Markdown."""
        lines = [f"# {_markdown(self.title)}", ""]
        for section in self.sections:
            lines += [f"## {_markdown(section.heading)}", ""]
            for block in section.blocks:
                lines += [*_markdown_table(block), ""] if isinstance(block, Table) else [_markdown(block), ""]
        return "\n".join(lines).rstrip() + "\n"

    def to_html(self) -> str:
        """Return the document as one page of HTML that loads nothing from elsewhere."""
        parts = []
        for section in self.sections:
            blocks = [_html_table(b) if isinstance(b, Table) else f"<p>{escape(b)}</p>" for b in section.blocks]
            parts.append(f"<section>\n<h2>{escape(section.heading)}</h2>\n" + "\n".join(blocks) + "\n</section>")
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width">\n'
            f"<title>{escape(self.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
            f"<h1>{escape(self.title)}</h1>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the document; the name ends in .md or .html."""
        render = {".md": self.to_markdown, ".html": self.to_html}.get(Path(path).suffix.lower())
        if render is None:
            raise ValueError(f"Got path={str(path)!r}, but expected a name that ends in .md or .html.")
        Path(path).write_text(render(), encoding="utf-8")


def facts(**values: object) -> Table:
    """Return names and values as a table of two columns, without those that are None; an underscore is a space."""
    names = {name: name.replace("_", " ").capitalize().replace("Sha256", "SHA-256") for name in values}
    return Table(("", ""), tuple((names[name], str(value)) for name, value in values.items() if value is not None))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Return rows of anything as a table."""
    return Table(tuple(columns), tuple(tuple(_cell(value) for value in row) for row in rows))


def _cell(value: object) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _markdown(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    escaped = "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in text)
    return " ".join(escaped.split())


def _markdown_table(block: Table) -> list[str]:
    rows = [block.columns, ("---",) * len(block.columns)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return lines + ["| " + " | ".join(map(_markdown, row)) + " |" for row in block.rows]


def _html_table(block: Table) -> str:
    head = ""
    if any(block.columns):
        head = "<tr>" + "".join(f"<th>{escape(name)}</th>" for name in block.columns) + "</tr>\n"
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in block.rows)
    is_form = not any(any(row[1:]) for row in block.rows)  # cells to fill in
    return f'<div class="wide"><table{" class=form" if is_form else ""}>\n{head}{body}\n</table></div>'
