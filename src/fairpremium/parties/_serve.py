"""Running the service: one web process, and a worker process that is started again when it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

from ._app import create_app
from ._settings import Settings

__all__ = ["serve"]

_CALM = 1.0  # seconds before a dead worker is replaced


def serve(settings: Settings, *, workers: int = 1) -> None:
    """Serve until told to stop.

    Parameters
    ----------
    settings : Settings
    workers : int
        Worker processes to start beside the web process; more can be started elsewhere (``fairpremium worker``).
    """
    import uvicorn

    settings.check()
    app = create_app(settings)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.certificate_key,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=30,
            limit_concurrency=2000,
            timeout_graceful_shutdown=5,
        )
    )
    stop = threading.Event()
    watchers = [threading.Thread(target=_keep_working, args=(settings, stop), daemon=True) for _ in range(workers)]
    for watcher in watchers:
        watcher.start()
    try:
        server.run()
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join(10)


def _keep_working(settings: Settings, stop: threading.Event) -> None:
    while not stop.is_set():
        worker = start_worker(settings)
        while worker.poll() is None and not stop.wait(0.2):
            pass
        if stop.is_set():
            worker.send_signal(signal.SIGTERM)
            try:
                worker.wait(5)
            except subprocess.TimeoutExpired:
                worker.kill()
            return
        stop.wait(_CALM)


def start_worker(settings: Settings) -> subprocess.Popen[bytes]:
    """Start a worker process on the folder of a service."""
    command = [sys.executable, "-m", "fairpremium", "worker", "--folder", os.fspath(settings.folder)]
    environment: dict[str, Any] = dict(os.environ)
    if settings.database:  # an address may hold a password, which a command line would show
        environment["FAIRPREMIUM_DATABASE"] = settings.database
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
