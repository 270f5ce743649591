"""Tables go back to the caller in the caller's type."""

from fairpremium.models._frames import frame_like

__all__ = ["frame_like"]
