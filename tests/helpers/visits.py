"""Requests to an app in this process that come from an address of our choice."""

from __future__ import annotations

from typing import Any

import httpx

from fairpremium.parties.clients._client import AppTransport


class From(AppTransport):
    """Requests that come from another address."""

    def __init__(self, app: Any, client: str = "127.0.0.1"):
        super().__init__(app)
        self._inner = httpx.ASGITransport(app=app, client=(client, 50000), raise_app_exceptions=False)
