# SPDX-License-Identifier: Apache-2.0
"""Serves an application: TLS unless plain HTTP on this machine is asked for by name, and a shutdown that finishes what runs."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from pinq.errors import PolicyError

__all__ = ["require_secure", "serve"]

SHUTDOWN_SECONDS = 30


def serve(app: FastAPI, *, host: str = "0.0.0.0", port: int = 8443, tls_cert: Path | None = None, tls_key: Path | None = None, insecure_http: bool = False) -> None:
    """Serves until it is told to stop (SIGTERM or SIGINT), then finishes what runs. Errors as in ``require_secure``."""
    require_secure(host, tls_cert, tls_key, insecure_http)
    config = uvicorn.Config(
        app, host=host, port=port, ssl_certfile=None if insecure_http else tls_cert, ssl_keyfile=None if insecure_http else tls_key,
        http="h11", log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=SHUTDOWN_SECONDS, limit_concurrency=1000, proxy_headers=False,
    )
    uvicorn.Server(config).run()


def require_secure(host: str, tls_cert: Path | None, tls_key: Path | None, insecure_http: bool) -> None:
    """Raises ``PolicyError`` without a certificate, and for plain HTTP on an address that others can reach."""
    if insecure_http and not _loopback(host):
        raise PolicyError(f"--insecure-http is for this machine only, and {host} can be reached by others. Use --host 127.0.0.1, or --tls-cert and --tls-key.")
    if not insecure_http and (tls_cert is None or tls_key is None):
        raise PolicyError("Give a certificate and its key (--tls-cert, --tls-key), or --insecure-http to serve this machine only.")
    for file in () if insecure_http else (tls_cert, tls_key):
        if file is not None and not file.is_file():
            raise PolicyError(f"There is no file {file}.")


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
