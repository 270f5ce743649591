"""Running the service: one web process, and a worker process that is started again when it dies."""

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fairpremium import __version__
from fairpremium.parties.service import ServiceLimits, ServiceSettings, log_event, write_log

from ._app import create_app
from ._connections import limit_requests
from ._listener import Listener, fit_connections

_CALM = 1.0  # seconds before a dead worker is replaced
_BACKLOG = 2048
_SWITCH = 0.0005  # seconds after which a thread that computes lets others run


def serve(settings: ServiceSettings, *, workers: int = 1, tell: Callable[[str], None] = lambda url: None) -> None:
    """Serve until told to stop, by SIGTERM or SIGINT.

    - `settings`: Port 0 takes a free one.
    - `workers`: Worker processes to start beside the web process; more can be started elsewhere (``fairpremium
      worker``).
    - `tell`: Gets the address as soon as connections are accepted.
    """
    import uvicorn

    class Server(uvicorn.Server):
        """Ends in order, within seconds, however many signals come at once."""

        def handle_exit(self, sig: int, frame: Any) -> None:
            self.should_exit = True

    sys.setswitchinterval(_SWITCH)
    settings.check()
    limits = replace(settings.limits, connections=fit_connections(settings.limits.connections))
    listener = _listen(settings, limits)
    settings = replace(settings, port=listener.getsockname()[1])
    with listener, write_log(settings.log):
        app = create_app(settings)
        server = Server(
            uvicorn.Config(
                app,
                http=limit_requests(limits, listener),
                ws="none",
                proxy_headers=bool(settings.proxies),
                forwarded_allow_ips=list(settings.proxies),
                ssl_certfile=settings.certificate,
                ssl_keyfile=settings.certificate_key,
                log_config=None,  # its lines go into ours
                access_log=False,
                server_header=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=5,
            )
        )
        host = f"[{settings.host}]" if listener.family == socket.AF_INET6 else settings.host
        scheme = "https" if settings.certificate else "http"
        with _signals_end(server):
            tell(f"{scheme}://{host}:{listener.getsockname()[1]}")
            with _working(settings, workers):
                gc.freeze()  # what was imported stays; to look at it again and again takes a tenth of the time
                log_event(
                    "service.started", version=__version__, database=app.state.requests.party.context.database.dialect
                )
                server.run(sockets=[listener])
        log_event("service.stopped")


def _listen(settings: ServiceSettings, limits: ServiceLimits) -> Listener:
    """Take the port, so that a mistake shows before anything is started."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or an answer waits for an acknowledgement
        return Listener(listener, limits, settings.proxies, is_encrypted=bool(settings.certificate))
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise OSError(f"Cannot listen on {settings.host}:{settings.port}: {why}. Choose another port.") from None


@contextmanager
def _signals_end(server: Any) -> Iterator[None]:
    """Let the server finish in order: it raises a signal that it caught once more, which must not end us halfway."""

    def stop(*_: Any) -> None:
        server.should_exit = True

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _working(settings: ServiceSettings, workers: int) -> Iterator[None]:
    """Keep worker processes running meanwhile."""
    stop = threading.Event()
    watchers = [threading.Thread(target=_supervise_worker, args=(settings, stop), daemon=True) for _ in range(workers)]
    for watcher in watchers:
        watcher.start()
    try:
        yield
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join(10)


def _supervise_worker(settings: ServiceSettings, stop: threading.Event) -> None:
    while not stop.is_set():
        with start_worker(settings) as worker:
            while worker.poll() is None and not stop.wait(0.2):
                pass
            if not stop.is_set():
                log_event("worker.died", worker=worker.pid, exit=worker.poll())
            else:
                worker.send_signal(signal.SIGTERM)
                try:
                    worker.wait(5)
                except subprocess.TimeoutExpired:
                    worker.kill()
        stop.wait(_CALM)


def start_worker(settings: ServiceSettings) -> subprocess.Popen[bytes]:
    """Start a worker process on the folder of a service; it ends when this process does, however that ends."""
    command = [sys.executable, "-P", "-m", "fairpremium", "worker", "--with-parent"]
    command += ["--folder", os.fspath(settings.folder)]
    command += ["--log-format", settings.log.format, "--log-level", settings.log.level]
    environment: dict[str, Any] = dict(os.environ)
    if settings.database:  # an address may hold a password, which a command line would show
        environment["FAIRPREMIUM_DATABASE"] = settings.database
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE)
