# SPDX-License-Identifier: Apache-2.0
"""Starts a server with an operator's settings: with TLS, or explicitly with plain HTTP on this machine.

uvicorn serves, under its limits, and supervises several processes if requested. A proxy in front
(``deploy/``) handles hostile connections. A shutdown finishes running requests.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import multiprocessing
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from multiprocessing import connection
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette

from pinq.errors import PinqError, PolicyError
from pinq.provider.backup import heads_folder
from pinq.provider.heads import HeadKey, write_head
from pinq.server.app import Reload, create_app
from pinq.server.datasets import Datasets
from pinq.server.handshakes import HALF_OPEN, ServerLoop
from pinq.server.limits import Settings
from pinq.server.log import RequestLog

SHUTDOWN_SECONDS = 20  # then running requests are stopped
KEEP_ALIVE_SECONDS = 30
BACKLOG = 2048
OTHER_FILES = 256 + HALF_OPEN  # files of a process besides its connections and the files of its datasets
READY_SECONDS = 60  # the longest time in which one of several processes may encode its datasets
SIGN_SECONDS = 3600  # the interval of signing heads
STARTED = "PINQ_SERVE"  # the environment variable with the settings for several processes


@dataclass(frozen=True)
class Start:
    """The settings of an operator; the command line's options have the same names.

    Attributes:
        policies: Policy files, and folders of them.
        insecure_http: Whether to serve plain HTTP, to this machine only.
        log: The file of the log of requests; None for the standard error stream.
        metrics: Host and port for Prometheus; None for no metrics.
        rate: The requests a second for one token.
        connections: The limit of open connections.
        workers: The number of processes.
        head_key: The file of the secret key that signs heads; None to sign none.
        required: The policy files that each of several processes must open, because they are served.
        say: A function that prints a message for the operator.
    """

    policies: Sequence[Path]
    host: str
    port: int
    tls_cert: Path | None
    tls_key: Path | None
    insecure_http: bool
    log: Path | None
    metrics: tuple[str, int] | None
    rate: float
    connections: int
    proxy: str
    workers: int
    head_key: Path | None = None
    required: Sequence[Path] = ()
    say: Callable[[str], None] = field(default=print, repr=False)

    def run(self) -> int:
        """Serves until it is told to stop (SIGTERM or SIGINT); returns the exit status.

        Raises:
            PolicyError: An option or a policy is wrong, or the port is taken.
            LedgerError: A ledger that cannot be trusted.
        """
        # All checks come before minutes of encoding.
        require_secure(self.host, self.tls_cert, self.tls_key, self.insecure_http)
        if self.head_key is not None:
            HeadKey.read(self.head_key, secret=True)
        with bind(self.host, self.port) as bound:
            with suppress(ValueError):  # only the main thread takes signals
                signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until reloads are possible
                signal.signal(signal.SIGINT, signal.SIG_DFL)  # imports of C may abort at a KeyboardInterrupt
            if self.workers > 1:
                return self._serve_by_several(bound)
            log = RequestLog(self.log)
            datasets = Datasets.open(self.policies)
            self._say_missing(datasets)
            reload = Reload(datasets, log)

            def listening() -> None:
                bound.listen(BACKLOG)
                self._announce(", ".join(datasets.served), bound)

            app = self._app(datasets, log, reload, listening)
            config = uvicorn.Config(app, **self._options(_room(self.connections, log)))
            config.load()
            if config.ssl is not None:
                reload.certificate = _ServerCertificate(config.ssl, self.tls_cert, self.tls_key).renew
            uvicorn.Server(config).run(sockets=[bound])
            return 0

    def _app(
        self,
        datasets: Datasets,
        log: RequestLog,
        reload: Reload | None = None,
        listening: Callable[[], None] = lambda: None,
    ) -> Starlette:
        if self.head_key is not None:
            signing = (datasets, HeadKey.read(self.head_key), log)
            threading.Thread(target=_sign_heads, args=signing, name="pinq-heads", daemon=True).start()
        return create_app(
            datasets,
            Settings(rate=self.rate / self.workers, heavy=Settings.heavy if self.workers == 1 else 1),
            log,
            # While one of several processes is replaced there is one more.
            self.metrics and (*self.metrics, 1 if self.workers == 1 else self.workers + 1),
            reload=reload,
            listening=listening,
        )

    def _options(self, connections: int) -> dict[str, Any]:
        tls = {} if self.insecure_http else {"ssl_certfile": self.tls_cert, "ssl_keyfile": self.tls_key}
        return tls | {
            "http": "h11",  # it bounds the size of headers, which the C parser does not
            "loop": f"{ServerLoop.__module__}:{ServerLoop.__name__}",
            "ws": "none",
            "log_config": None,
            "access_log": False,
            "server_header": False,
            "proxy_headers": bool(self.proxy),
            "forwarded_allow_ips": self.proxy or None,
            "limit_concurrency": connections,
            "timeout_keep_alive": KEEP_ALIVE_SECONDS,
            "timeout_graceful_shutdown": SHUTDOWN_SECONDS,
        }

    def _serve_by_several(self, bound: socket.socket) -> int:
        """Lets uvicorn start and supervise processes that call ``application``."""
        if self.rate < self.workers:
            raise PolicyError(f"{self.workers} workers cannot share --rate {self.rate:g}. Use fewer, or a higher rate.")
        # Opened here first, so that faults are printed once, and kept codes are written once.
        datasets = Datasets.open(self.policies, processes=self.workers)
        datasets.close()
        self._say_missing(datasets)
        settings = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "say"}
        settings["required"] = [*datasets.files.values()]  # a new process must not serve fewer than the one it replaces
        os.environ[STARTED] = json.dumps(settings, default=str)
        RequestLog(self.log).capture("uvicorn.error", logging.INFO)
        self._announce(f"{self.workers} workers", bound)
        uvicorn.run(
            f"{__name__}:application",
            factory=True,
            fd=bound.fileno(),
            workers=self.workers,
            timeout_worker_healthcheck=READY_SECONDS,
            **self._options(self.connections),
        )
        return 0

    def _say_missing(self, datasets: Datasets) -> None:
        """Prints the policies that are not served, with reasons."""
        for draft in datasets.drafts:
            self.say(f"Not served: {draft} is not reviewed yet; `pinq check {draft}` says what waits.")
        for failed in datasets.failed:
            self.say(f"Not served: {failed}")

    def _announce(self, names: str, bound: socket.socket) -> None:
        root = f"{'http' if self.insecure_http else 'https'}://{self.host}:{bound.getsockname()[1]}"
        self.say(f"Serving {names} on {root}. Stop with Ctrl-C.")


def application() -> Starlette:
    """Makes the application of one of several processes; called in that process."""
    settings = json.loads(os.environ[STARTED])
    files = ("tls_cert", "tls_key", "log", "head_key")
    start = Start(**settings | {name: settings[name] and Path(settings[name]) for name in files})
    log = RequestLog(start.log)
    threading.Thread(target=_end_with_parent, name="pinq-parent", daemon=True).start()
    try:
        paths, required = map(Path, start.policies), map(Path, start.required)
        datasets = Datasets.open(paths, processes=start.workers, required=required)
    except PinqError as error:
        log.write("not started", reason=str(error))
        raise SystemExit(1) from None  # the other processes go on serving
    _room(start.connections, log)
    return start._app(datasets, log)


def _sign_heads(datasets: Datasets, key: HeadKey, log: RequestLog) -> None:
    """Writes a signed head of each ledger that has grown into the folder of heads, at once and then once an hour."""
    while True:
        for name in list(datasets.served):
            try:
                with datasets.leased(name) as dataset:
                    seq, last = dataset.ledger.log.run(lambda log: (log.seq, log.last))
                    if write_head(heads_folder(), key, dataset.name, seq, last):
                        log.write("head", dataset=dataset.name, events=seq)
            except Exception as error:  # tried again after an hour
                reason = str(error) if isinstance(error, (PinqError, OSError)) else type(error).__name__
                log.write("head not signed", dataset=name, reason=reason)
        time.sleep(SIGN_SECONDS)


def _end_with_parent() -> None:
    """Ends this process after its parent ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


class _ServerCertificate:
    """A certificate that a running server can reload."""

    def __init__(self, context: ssl.SSLContext, cert: Path | None, key: Path | None) -> None:
        assert cert is not None
        assert key is not None
        self._context, self._files = context, (cert, key)
        self._content = self._read()

    def renew(self) -> bool:
        """Uses the present content of the files for new handshakes, and returns whether it changed.

        Open connections are kept.

        Raises:
            PolicyError: The files are not a certificate with its key; the old one stays.
        """
        content = self._read()
        if content == self._content:
            return False
        renewed = _require_pair(*self._files)

        def take(connection: ssl.SSLObject | ssl.SSLSocket, _: str | None, __: ssl.SSLContext) -> None:
            connection.context = renewed

        # A new context, because the old one would keep a certificate for each kind of key.
        self._context.sni_callback = take
        self._content = content
        return True

    def _read(self) -> list[bytes]:
        return [file.read_bytes() for file in self._files]


def _room(connections: int, log: RequestLog) -> int:
    """The limit of open connections, or fewer if this process may not open enough files."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        others = len(os.listdir("/proc/self/fd")) + OTHER_FILES
        wanted = others + connections
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
        if files < wanted:
            fewer = max(1, files - others)
            log.write("few files", allowed=files, wanted=wanted, connections=fewer)
            return fewer
    return connections


def require_secure(host: str, tls_cert: Path | None, tls_key: Path | None, insecure_http: bool) -> None:
    """Raises ``PolicyError`` without a certificate, or for plain HTTP that others can reach."""
    if insecure_http:
        if not _loopback(host):
            raise PolicyError(
                f"--insecure-http is for this machine only, and {host} can be reached by others. Use --host "
                f"127.0.0.1, or --tls-cert and --tls-key."
            )
    elif tls_cert is None or tls_key is None:
        raise PolicyError(
            "Give a certificate and its key (--tls-cert, --tls-key), or --insecure-http to serve this machine only."
        )
    else:
        _require_pair(tls_cert, tls_key)


def _require_pair(tls_cert: Path, tls_key: Path) -> ssl.SSLContext:
    """The TLS context of a certificate and its key; raises ``PolicyError`` for other files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without a password here, an encrypted key would ask for it on a terminal.
        context.load_cert_chain(tls_cert, tls_key, password="")
    except FileNotFoundError:
        raise PolicyError(f"There is no file {tls_cert if not tls_cert.is_file() else tls_key}.") from None
    except OSError as error:  # ssl.SSLError among them
        # The texts of OpenSSL do not help: they name places in its source.
        why = f": {error.strerror}" if not isinstance(error, ssl.SSLError) else ""
        raise PolicyError(
            f"{tls_cert} and {tls_key} are no certificate with its key (PEM, not encrypted){why}."
        ) from None
    return context


def bind(host: str, port: int) -> socket.socket:
    """Binds a port without listening yet, so that connections are refused until the server is up.

    Raises:
        PolicyError: The port cannot be bound.
    """
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit it; asyncio does not set it for the sockets of uvicorn's processes. Without it an answer of
    # two packets waits 40 ms for the client's delayed acknowledgement.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        bound.bind((host, port))
        return bound
    except OSError as error:
        bound.close()
        raise PolicyError(
            f"Port {port} of {host} cannot be used: {error.strerror}. Choose another with --port."
        ) from None


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
