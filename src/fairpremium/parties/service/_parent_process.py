"""Processes that end with the one that started them, however that ends."""

from __future__ import annotations

import os
import signal
import threading

__all__ = ["stop_with_parent"]


def stop_with_parent() -> None:
    """Ask this process to stop when standard input closes: the system closes it when the other end is gone."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()
