# SPDX-License-Identifier: Apache-2.0
"""Serves an application, with TLS unless plain HTTP on this machine is asked for by name.

A shutdown finishes what runs.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from pinq.errors import PolicyError
from pinq.server.api.connections import connections
from pinq.server.api.limits import Settings

__all__ = ["Config", "is_private", "require_secure", "serve"]

SHUTDOWN_SECONDS = 20  # then what runs is stopped
SWITCH_SECONDS = 0.001  # a thread that computes lets others have the interpreter after so long
KEEP_ALIVE_SECONDS = 30
MAX_CONNECTIONS = 1000


class Config(uvicorn.Config):
    """uvicorn's, for our application and under a server's limits.

    A TLS handshake has as long as a request's headers: before it is done, a connection is not among
    those that ``connections`` times.
    """

    def __init__(self, app: FastAPI, settings: Settings, **options: Any) -> None:
        super().__init__(
            app,
            http=connections(settings),  # h11 bounds the headers that it takes, which the C parser does not
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            limit_concurrency=MAX_CONNECTIONS,
            **options,  # whatever else uvicorn reads
        )
        self._handshake_seconds = settings.header_seconds

    def get_loop_factory(self) -> Callable[[], asyncio.AbstractEventLoop]:
        """Makes loops with our own handshake timeout: uvicorn has none, asyncio's is a minute."""
        make = super().get_loop_factory() or asyncio.new_event_loop
        if not self.is_ssl:
            return make

        def patient() -> asyncio.AbstractEventLoop:
            loop = make()
            create = partial(loop.create_server, ssl_handshake_timeout=self._handshake_seconds)
            loop.create_server = create  # type: ignore[method-assign]
            return loop

        return patient


def serve(
    app: FastAPI,
    *,
    host: str = "0.0.0.0",
    port: int = 8443,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    insecure_http: bool = False,
    settings: Settings | None = None,
    listening: Callable[[int], None] = lambda port: None,
) -> None:
    """Serves until it is told to stop (SIGTERM or SIGINT), then finishes what runs.

    Errors are as in ``require_secure``.

    Args:
        app: What is served.
        host: Where to listen.
        port: Where to listen; 0 takes a free one.
        tls_cert: Certificate chain, PEM.
        tls_key: Its private key, PEM.
        insecure_http: Plain HTTP, to this machine only.
        settings: Limits, where they differ from the usual.
        listening: Called with the port once it is ours.
    """
    require_secure(host, tls_cert, tls_key, insecure_http)
    config = Config(
        app, settings or Settings(), **({} if insecure_http else {"ssl_certfile": tls_cert, "ssl_keyfile": tls_key})
    )
    sys.setswitchinterval(SWITCH_SECONDS)
    with _listen(host, port) as bound:
        listening(bound.getsockname()[1])
        uvicorn.Server(config).run(sockets=[bound])


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
    if insecure_http or tls_cert is None:
        return
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


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024
        )
    except OSError as error:
        raise PolicyError(
            f"Port {port} of {host} cannot be used: {error.strerror}. Choose another with --port."
        ) from None


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
