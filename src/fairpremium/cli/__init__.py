"""The command line: thin commands that read files, call one library function and write files."""

import sys
from importlib.util import find_spec

__all__ = ["main"]


def main() -> None:
    """Run the command line; without its two dependencies say how to get them."""
    if find_spec("typer") is None or find_spec("rich") is None:
        print('The command line needs typer and rich: pip install "fairpremium[cli]"', file=sys.stderr)
        raise SystemExit(2)
    from fairpremium.cli._app import run

    run()
