"""The console: pages for the operator and the auditor, from the same app, without scripts from elsewhere."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from ._settings import Settings

__all__ = ["add_console"]


def add_console(app: FastAPI, party: Any, settings: Settings) -> None:
    """Add the pages of the console to an app."""
