# SPDX-License-Identifier: Apache-2.0
"""Serves an application, with TLS unless plain HTTP on this machine is asked for by name.

A shutdown finishes what runs.
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import hashlib
import ipaddress
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from pinq.errors import PolicyError
from pinq.server.api.connections import Acceptor, Connection
from pinq.server.api.limits import Settings

__all__ = ["Certificate", "Config", "bind", "is_private", "require_secure", "serve"]

SHUTDOWN_SECONDS = 20  # then what runs is stopped
SWITCH_SECONDS = 0.001  # a thread that computes lets others have the interpreter after so long
KEEP_ALIVE_SECONDS = 30
TLS_BUFFER = 2**15  # bytes that each connection keeps to read into: asyncio's 2^18 are 256 MB of a thousand
OTHER_FILES = 256  # that a process has open beside its connections


class Config(uvicorn.Config):
    """uvicorn's, for our application, whose connections are accepted under a server's limits."""

    def __init__(self, app: FastAPI, settings: Settings, **options: Any) -> None:
        super().__init__(
            app,
            http=Connection,  # h11 bounds the headers that it takes, which the C parser does not
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            **options,  # whatever else uvicorn reads
        )
        self._settings = settings

    def get_loop_factory(self) -> Callable[[], asyncio.AbstractEventLoop]:
        """Makes loops whose servers are ``Acceptor``."""
        make = super().get_loop_factory() or asyncio.new_event_loop
        settings = self._settings

        async def accept(
            protocol: Callable[[], Connection], *, sock: socket.socket, ssl: ssl.SSLContext | None, backlog: int
        ) -> Acceptor:
            sock.listen(backlog)
            return Acceptor(sock, protocol, ssl, settings)

        def accepting() -> asyncio.AbstractEventLoop:
            loop = make()
            loop.create_server = accept  # type: ignore[assignment]
            return loop

        return accepting


class _Server(uvicorn.Server):
    """uvicorn's, which says when it listens."""

    def __init__(self, config: Config, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listening()


class Certificate:
    """A certificate with its key, which a running server may read again.

    Args:
        cert: Certificate chain, PEM.
        key: Its private key, PEM.
    """

    def __init__(self, cert: Path, key: Path) -> None:
        self.cert, self.key = cert, key
        self._digest = self._read()
        self._renewed: ssl.SSLContext | None = None

    def serve_by(self, context: ssl.SSLContext) -> None:
        """Lets a server's handshakes go on by what was read last.

        A context that is told of another certificate keeps the old one too where their keys are of
        two kinds; so each handshake is handed to a context that has the new one alone.
        """

        def choose(handshake: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
            if self._renewed is not None:
                handshake.context = self._renewed

        context.sni_callback = choose  # called for each handshake, whether it names a server or not

    def renew(self) -> bool:
        """Shakes hands by what the files have now. Connections that are open keep theirs.

        Returns:
            Whether it is another one.

        Raises:
            PolicyError: The files are no certificate with its key; the old one stays.
        """
        digest = self._read()
        if digest == self._digest:
            return False
        renewed = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        renewed.load_cert_chain(self.cert, self.key, password="")
        self._digest, self._renewed = digest, renewed
        return True

    def _read(self) -> bytes:
        """Checks the files; returns their digest."""
        _require_pair(self.cert, self.key)
        return hashlib.sha256(self.cert.read_bytes() + self.key.read_bytes()).digest()


def serve(
    app: FastAPI,
    bound: socket.socket,
    certificate: Certificate | None,
    *,
    settings: Settings | None = None,
    listening: Callable[[], None] = lambda: None,
) -> None:
    """Serves until it is told to stop (SIGTERM or SIGINT), then finishes what runs.

    Args:
        app: What is served.
        bound: Where; see ``bind``. It is closed at the end.
        certificate: For TLS; None for plain HTTP.
        settings: Limits, where they differ from the usual.
        listening: Called once connections are taken.

    Raises:
        SystemExit: The application could not start; its log says why.
    """
    files = {} if certificate is None else {"ssl_certfile": certificate.cert, "ssl_keyfile": certificate.key}
    settings = settings or Settings()
    config = Config(app, settings, **files)
    config.load()
    if certificate is not None and config.ssl is not None:
        certificate.serve_by(config.ssl)
    sys.setswitchinterval(SWITCH_SECONDS)
    asyncio.sslproto.SSLProtocol.max_size = TLS_BUFFER
    _allow_files(settings.connections + OTHER_FILES)
    _Server(config, listening).run(sockets=[bound])


def require_secure(host: str, tls_cert: Path | None, tls_key: Path | None, insecure_http: bool) -> None:
    """Raises ``PolicyError`` without a certificate, or for plain HTTP that others can reach."""
    if insecure_http and not _loopback(host):
        raise PolicyError(
            f"--insecure-http is for this machine only, and {host} can be reached by others. Use --host "
            f"127.0.0.1, or --tls-cert and --tls-key."
        )
    if not insecure_http and (tls_cert is None or tls_key is None):
        raise PolicyError(
            "Give a certificate and its key (--tls-cert, --tls-key), or --insecure-http to serve this machine only."
        )
    if not insecure_http and tls_cert is not None and tls_key is not None:
        _require_pair(tls_cert, tls_key)


def _require_pair(tls_cert: Path, tls_key: Path) -> None:
    """``PolicyError`` unless the files are a certificate and its key."""
    try:
        # An encrypted key would ask for its password on a terminal that a server does not have.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls_cert, tls_key, password="")
    except FileNotFoundError:
        raise PolicyError(f"There is no file {tls_cert if not tls_cert.is_file() else tls_key}.") from None
    except OSError as error:  # ssl.SSLError among them
        raise PolicyError(
            f"{tls_cert} and {tls_key} are no certificate with its key (PEM, not encrypted): {error.strerror or error}."
        ) from None


def is_private(tls_cert: Path | None, tls_key: Path | None) -> bool:
    """Whether a client that trusts the system's authorities alone refuses a certificate.

    The name in the certificate does not count.
    """
    if tls_cert is None or tls_key is None:
        return False
    own, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    own.load_cert_chain(tls_cert, tls_key, password="")
    theirs.check_hostname = False
    # Both shake hands in memory: what one writes, the other reads.
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    server, client = own.wrap_bio(to_server, to_client, server_side=True), theirs.wrap_bio(to_client, to_server)
    for side in (client, server) * 3:  # hello, perhaps another one, certificate, and what the client makes of it
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLCertVerificationError:
            return True
    return False


def _allow_files(wanted: int) -> None:
    """Raises how many files this process may have open, as far as the system lets it."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def bind(host: str, port: int) -> socket.socket:
    """Takes a port, and does not listen on it yet: what knocks before a server is up is refused.

    Args:
        host: Where to listen.
        port: 0 takes a free one.

    Raises:
        PolicyError: It cannot be taken.
    """
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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
