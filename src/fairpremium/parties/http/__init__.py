"""The service over HTTP."""

from ._app import create_app
from ._serve import serve

__all__ = ["create_app", "serve"]
