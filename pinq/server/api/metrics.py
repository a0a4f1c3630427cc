# SPDX-License-Identifier: Apache-2.0
"""Counters for Prometheus, on a port of their own.

There are no timings: they follow the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pinq.server.datasets import Datasets
from pinq.server.log import RequestLog
from pinq.server.readiness import problem_of

__all__ = ["Metrics"]


class Metrics:
    """What happened, by dataset; and the state of ledgers and log when it is asked for."""

    def __init__(self, datasets: Datasets, log: RequestLog) -> None:
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
        self.registry.register(_State(datasets, log))

    def count(self, dataset: str, route: str, status: int, code: str | None) -> None:
        """One request."""
        self._requests.labels(dataset, route, str(status)).inc()
        if code is not None:
            self._refusals.labels(dataset, code).inc()

    def serve(self, host: str, port: int) -> Callable[[], None]:
        """Answers Prometheus, in a thread; returns what ends it."""
        server, thread = start_http_server(port, addr=host, registry=self.registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return stop


class _State(Collector):
    def __init__(self, datasets: Datasets, log: RequestLog) -> None:
        self._datasets, self._log = datasets, log

    def collect(self) -> Iterable[Metric]:
        lost = CounterMetricFamily(
            "pinq_lost_log_lines", "Lines of the log of requests that could not be written.", value=self._log.lost
        )
        spent = GaugeMetricFamily("pinq_spent_epsilon", "Spent by all analysts together.", labels=["dataset"])
        cap = GaugeMetricFamily("pinq_cap_epsilon", "The cap over all analysts.", labels=["dataset"])
        grants = GaugeMetricFamily(
            "pinq_valid_grants", "Grants that are neither revoked nor expired.", labels=["dataset"]
        )
        ready = GaugeMetricFamily("pinq_ready", "1 where questions can be answered now, else 0.", labels=["dataset"])
        current = GaugeMetricFamily(
            "pinq_current", "1 where the source is the one that was encoded, else 0.", labels=["dataset"]
        )
        failed = GaugeMetricFamily(
            "pinq_failed_reloads", "Policies that the last reload left as they were.", value=len(self._datasets.failed)
        )
        for name, dataset in self._datasets.items():
            is_ready = not problem_of(dataset)
            ready.add_metric([name], is_ready)
            current.add_metric([name], not dataset.outdated())
            if is_ready:
                together = dataset.ledger.together()
                spent.add_metric([name], float(together.spent))
                cap.add_metric([name], float(together.cap))
                grants.add_metric([name], sum(grant.valid for grant in dataset.ledger.grants().values()))
        return lost, spent, cap, grants, ready, current, failed
