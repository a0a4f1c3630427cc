# SPDX-License-Identifier: Apache-2.0
"""Starts a workbench: the pages for a target, and the server on this machine behind its link."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

from fastapi import FastAPI
from nicegui import ui
from uvicorn import Config, Server

from pinq.errors import QueryError
from pinq.provider.report.html import MARK
from pinq_workbench.guard import LINK, Guard

HOST = "127.0.0.1"
RECONNECT_SECONDS = 30.0  # for which a page is kept after its connection broke


def open_workbench(
    target: str,
    *,
    token_file: Path | None = None,
    verify: Path | None = None,
    insecure_http: bool = False,
    port: int = 0,
    origin: str | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Shows a folder, a served dataset or a ledger in a browser, until it is stopped.

    Args:
        target: A folder of policies, the URL of a dataset, or a ledger.
        token_file: For a URL: the file that holds the token.
        verify: For a URL: the provider's own certificate authority.
        insecure_http: For a URL: plain HTTP, on this machine only.
        port: The port on the loopback address; 0 for any free port.
        origin: The address of a proxy that shows the workbench: ``https://bench.example.org``.
        say: A function that prints the link.

    Raises:
        PinqError: The target cannot be opened.
    """
    if origin is not None and not re.fullmatch(r"https?://[^/?#@\s]+", origin):
        raise QueryError("must be like https://bench.example.org, without a path", parameter="origin")
    register = _pages(target, token_file, verify, insecure_http)
    register()
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    ui.run_with(
        app,
        title="pinq workbench",
        favicon=MARK,
        dark=None,
        language="en-US",
        tailwind=False,
        reconnect_timeout=RECONNECT_SECONDS,
        show_welcome_message=False,
    )
    guard = Guard(app, [] if origin is None else [origin])
    try:
        listener = socket.create_server((HOST, port))
    except OSError as error:
        raise QueryError(f"port {port} of this machine cannot be used: {os.strerror(error.errno or 0)}.") from None
    root = origin or f"http://{HOST}:{listener.getsockname()[1]}"
    say(f"Open {root}{LINK}?key={guard.key}\nThe link works once, in one browser on this machine. Stop with Ctrl-C.")
    settings = Config(guard, access_log=False, log_level="warning", ws="websockets-sansio", lifespan="on")
    Server(settings).run([listener])


def _pages(target: str, token_file: Path | None, verify: Path | None, insecure_http: bool) -> Callable[[], None]:
    """The function that declares the pages of an analyst, a provider or an auditor."""
    if target.startswith(("https://", "http://")):
        from pinq_workbench.analyst import Analyst

        return Analyst(target, token=token_file, verify=verify or True, insecure_http=insecure_http).register
    if token_file or verify or insecure_http:
        raise QueryError(
            "a token, a certificate and plain HTTP are for the address of a server, https://host:8443/NAME."
        )
    if Path(target).is_dir():
        from pinq_workbench.provider import Provider

        return Provider(Path(target).resolve()).register
    if "://" not in target and not Path(target).is_file():
        raise QueryError(f"There is no folder, no ledger and no file {target}; an address begins with https://.")
    from pinq_workbench.auditor import Auditor

    return Auditor(target).register
