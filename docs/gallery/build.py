"""Run the example scripts and write their pages and pictures: `make gallery`."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = [
    HERE / f"{name}.py"
    for name in (
        "three_prices", "privacy_cost", "audit_price_list", "unknown_noise", "price_shapes", "larger_than_memory",
    )
]  # fmt: skip


def read(script: Path) -> tuple[str, str, str]:
    """Return the title, the text and the code of a script; its docstring holds the first two."""
    source = script.read_text(encoding="utf-8")
    docstring = ast.parse(source).body[0]
    title, _, text = ast.literal_eval(docstring.value).partition("\n")
    return title.rstrip("."), text.strip(), "\n".join(source.splitlines()[docstring.end_lineno :]).strip()


def page(script: Path, output: str) -> str:
    """Return the page of a script that printed the output."""
    title, text, code = read(script)
    printed = "\n".join(line.rstrip() for line in output.rstrip().splitlines())
    return (
        f"---\nhide: [toc]\n---\n\n# {title}\n\n{text}\n\n![{title}]({script.stem}.svg)\n\n"
        f'```python title="{script.name}"\n{code}\n```\n\n```text title="Output"\n{printed}\n```\n\n'
        f"[Download {script.name}]({script.name}), and see the [other examples](index.md).\n"
    )


def index() -> str:
    """Return the front page of the gallery: a card for each script with the first two sentences of its text."""
    cards = []
    for script in SCRIPTS:
        title, text, _ = read(script)
        sentences = re.match(r"(.*?[.:]\s.*?\.)\s", text + " ", re.DOTALL)[1]
        link = f"{script.stem}.md"
        picture = f"[![{title}]({script.stem}.svg)]({link})"
        cards.append(f"-   **[{title}]({link})**\n\n    {picture}\n\n    {' '.join(sentences.split())}\n")
    head = "---\nhide: [toc]\n---\n\n# Gallery\n\n"
    head += "A script of fewer than 60 lines draws each picture, in seconds. Copy one and change it.\n"
    return head + '\n<div class="grid cards" markdown>\n\n' + "\n".join(cards) + "\n</div>\n"


def main() -> None:
    """Run the named scripts, or all of them."""
    wanted = [Path(name).resolve() for name in sys.argv[1:]] or SCRIPTS
    for script in wanted:
        call = [sys.executable, script.name]
        done = subprocess.run(call, cwd=HERE, check=True, stdout=subprocess.PIPE, text=True)
        script.with_suffix(".md").write_text(page(script, done.stdout), encoding="utf-8")
        print(script.with_suffix(".md").name)
    (HERE / "index.md").write_text(index(), encoding="utf-8")


if __name__ == "__main__":
    main()
