# SPDX-License-Identifier: Apache-2.0
"""Counters for Prometheus, on a port of their own.

There are no timings: they follow the rows.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, start_http_server

__all__ = ["Metrics"]


class Metrics:
    """What happened, by dataset; ``Readiness`` tells the state of ledgers, workers and log."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "pinq_requests",
            "Requests, by dataset (- before a token was accepted), route and status.",
            ["dataset", "route", "status"],
            registry=self.registry,
        )
        self._refusals = Counter(
            "pinq_refusals",
            "Requests that were not answered, by the error's code.",
            ["dataset", "code"],
            registry=self.registry,
        )

    def count(self, dataset: str, route: str, status: int, code: str | None) -> None:
        """One request."""
        self._requests.labels(dataset, route, str(status)).inc()
        if code is not None:
            self._refusals.labels(dataset, code).inc()

    def serve(self, host: str, port: int, ports: int = 1) -> Callable[[], None]:
        """Answers Prometheus, in a thread; returns what ends it.

        Args:
            host: Where.
            port: Where; of several processes each takes the first that is free.
            ports: How many there are from that one on.
        """
        for free in range(port, port + ports):
            try:
                server, thread = start_http_server(free, addr=host, registry=self.registry)
                break
            except OSError:
                if free == port + ports - 1:
                    raise

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return stop
