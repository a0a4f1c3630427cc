# SPDX-License-Identifier: Apache-2.0
"""Starts a server as an operator asks for it: port, then processes, datasets, application."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI

from pinq.engine.cores import share_core
from pinq.errors import PolicyError
from pinq.server.api.handover import Handover
from pinq.server.api.limits import Settings
from pinq.server.app import create_app
from pinq.server.datasets import Datasets
from pinq.server.log import RequestLog
from pinq.server.page.login import read_password_file
from pinq.server.reload import Reload
from pinq.server.run import Certificate, bind, is_private, require_secure, serve
from pinq.server.workers import Worker, Workers

__all__ = ["Start"]


@dataclass(frozen=True)
class Start:
    """What an operator asks for; the command line's options have the same names.

    Attributes:
        policies: Policy files, and folders of them.
        host: Where to listen.
        port: Where to listen; 0 takes a free one.
        tls_cert: Certificate chain, PEM.
        tls_key: Its private key, PEM.
        insecure_http: Plain HTTP, to this machine only.
        log: The file of the log of requests; None for the standard error stream.
        metrics: Host and port for Prometheus, of the first worker; None for nowhere.
        settings: Limits, of all workers together.
        provider_page: The file with the hash of the page's password; None for no page.
        public_url: Where analysts reach the server, as the page tells them.
        workers: How many processes.
        say: Tells the operator something.
    """

    policies: Sequence[Path]
    host: str
    port: int
    tls_cert: Path | None
    tls_key: Path | None
    insecure_http: bool
    log: Path | None
    metrics: tuple[str, int] | None
    settings: Settings
    provider_page: Path | None
    public_url: str
    workers: int
    say: Callable[[str], None]

    def run(self) -> int:
        """Serves until it is told to stop; returns the exit status.

        Raises:
            PolicyError: An option or a policy is wrong, or the port is taken.
            LedgerError: A ledger that cannot be trusted.
        """
        hashed = None if self.provider_page is None else read_password_file(self.provider_page)
        require_secure(self.host, self.tls_cert, self.tls_key, self.insecure_http)  # before minutes of encoding
        self._require_one_page()
        self.settings.divided(self.workers)  # before minutes of encoding too
        log = RequestLog(self.log)
        with bind(self.host, self.port) as bound:
            if self.workers == 1:
                return self._serve(Worker(), bound, log, hashed)
            several = Workers(self.workers, bound, log, lambda: self._announce(f"{self.workers} workers", bound))
            worker = several.run()
            return several.status if worker is None else self._serve(worker, bound, log, hashed)

    def _require_one_page(self) -> None:
        """``PolicyError`` for the page on several workers: only one would know who signed in."""
        if self.provider_page is not None and self.workers > 1:
            raise PolicyError(
                "--provider-page keeps who signed in in the memory of one process, and --workers makes several. Use "
                "--workers 1, or serve the page by another `pinq serve`, on a port of its own."
            )

    def _serve(self, worker: Worker, bound: socket.socket, log: RequestLog, hashed: str | None) -> int:
        """Serves in one process."""
        with suppress(ValueError):  # only a process's first thread takes signals
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to read again
        datasets = Datasets.open(self.policies, processes=self.workers)
        if worker.number == 0:
            self._name_drafts(datasets.drafts)

        def listening() -> None:
            worker.listens()
            if self.workers == 1:
                self._announce(", ".join(datasets), bound)

        certificate = self._certificate()
        app = self._app(worker, datasets, log, hashed, certificate)
        share_core(worker.number if self.workers > 1 else os.getpid())  # servers of one machine spread out
        serve(app, bound, certificate, settings=self.settings.divided(self.workers), listening=listening)
        return 0

    def _certificate(self) -> Certificate | None:
        if self.insecure_http or self.tls_cert is None or self.tls_key is None:
            return None
        return Certificate(self.tls_cert, self.tls_key)

    def _app(
        self, worker: Worker, datasets: Datasets, log: RequestLog, hashed: str | None, certificate: Certificate | None
    ) -> FastAPI:
        reload = Reload(datasets, log)
        if certificate is not None:
            reload.also("certificate", certificate.renew)
        return create_app(
            datasets,
            self.settings.divided(self.workers),
            log,
            None if self.metrics is None else (self.metrics[0], self.metrics[1] + worker.number),
            hashed,
            private_certificate=is_private(self.tls_cert, self.tls_key),
            public_url=self.public_url,
            reload=reload,
            handover=Handover(self.settings.middle + self.settings.heavy, log) if hasattr(os, "fork") else None,
        )

    def _name_drafts(self, drafts: Sequence[Path]) -> None:
        """Names the policies that nobody reviewed yet."""
        for draft in drafts:
            self.say(f"Not served: {draft} is not reviewed yet; `pinq check {draft}` says what waits.")

    def _announce(self, what: str, bound: socket.socket) -> None:
        root = f"{'http' if self.insecure_http else 'https'}://{self.host}:{bound.getsockname()[1]}"
        page = "" if self.provider_page is None else f" The provider's page is {root}/provider."
        self.say(f"Serving {what} on {root}.{page} Stop with Ctrl-C.")
