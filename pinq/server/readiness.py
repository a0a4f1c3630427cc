# SPDX-License-Identifier: Apache-2.0
"""``Readiness``: whether a server can answer now, and whether its data equal those on disk.

Anyone may read two bits, without names. The log and the metrics, for the provider only, name the
dataset and the fault. A look costs the same for all rows, and charges nothing. Failures are reported
by the component that fails: a ledger that failed a request, workers that ended. Without requests, a
look writes to each ledger.

``Metrics`` counts requests, for Prometheus, on a separate port. There are no timings, because they
depend on rows.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pinq.errors import PinqError, Unavailable
from pinq.provider.backup import heads_folder
from pinq.public.noise import FAILED, WATCHED
from pinq.server.datasets import Dataset, Datasets
from pinq.server.log import RequestLog
from pinq.server.workers import Workers

FRESH_SECONDS = 1.0  # the age up to which findings are returned again
PROBE_SECONDS = 15.0  # the interval of writing to ledgers without requests
LOOK_SECONDS = 3.0
LEAST_BYTES = 2**24
SQLITE = "sqlite:///"
# The metrics of a dataset; the last three only if it can answer.
OF_DATASETS = {
    "pinq_ready": "1 where questions can be answered now, else 0.",
    "pinq_current": "1 where the source is the one that was encoded, else 0.",
    "pinq_spent_epsilon": "Spent by all analysts together.",
    "pinq_cap_epsilon": "The cap over all analysts.",
    "pinq_valid_grants": "Grants that are neither revoked nor expired.",
}


@dataclass(frozen=True)
class Findings:
    """The findings of a look, each with the name of its object.

    Attributes:
        problems: The problems that keep queries from being answered.
        outdated: The datasets whose policy or source has changed since they were opened.
    """

    problems: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()


class Readiness(Collector):
    """Examines all components that answers need, on a separate thread, because a ledger may hang.

    Prometheus reads the same findings.
    """

    def __init__(self, datasets: Datasets, workers: Workers, log: RequestLog) -> None:
        self._datasets, self._workers, self._log = datasets, workers, log
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="pinq-ready")
        self._looking = asyncio.Lock()
        self._at, self._probed, self._state = float("-inf"), time.monotonic(), Findings()

    async def state(self) -> Findings:
        """The findings of the last look, which is at most a second old."""
        async with self._looking:
            if time.monotonic() >= self._at + FRESH_SECONDS:
                before, self._state = self._state, await self._look()
                self._at = time.monotonic()
                if self._state != before:
                    self._log.write("readiness", problems=self._state.problems, outdated=self._state.outdated)
            return self._state

    async def watch(self) -> None:
        """Looks at intervals, also without requests."""
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            await self.state()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _look(self) -> Findings:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._pool, self._now)
        except TimeoutError:
            return Findings(("a ledger or a disk does not answer",))

    def _now(self) -> Findings:
        if self._log.failing:  # without requests, this line shows whether the log works again
            self._log.write("trying the log")
        is_due = time.monotonic() >= self._probed + PROBE_SECONDS
        if is_due:
            self._probed = time.monotonic()
        general = ["the log takes no lines"] if self._log.failing else []
        general += [self._workers.problem] if self._workers.problem else []
        with suppress(Unavailable):
            WATCHED.require()
        general += [FAILED] if WATCHED.failed else []
        looks = [
            (dataset.name, problem_of(dataset, probe=is_due), dataset.outdated())
            for dataset in self._datasets.served.values()
        ]
        return Findings(
            (*general, *(f"{name}: {problem}" for name, problem, _ in looks if problem)),
            (*self._datasets.failed, *(f"{name}: {outdated}" for name, _, outdated in looks if outdated)),
        )

    def collect(self) -> Iterable[Metric]:
        """The metrics of the state for Prometheus; ``Metrics`` has the counters of requests."""
        lost = CounterMetricFamily(
            "pinq_lost_log_lines", "Lines of the log of requests that could not be written.", value=self._log.lost
        )
        gauges = [GaugeMetricFamily(*of_dataset, labels=["dataset"]) for of_dataset in OF_DATASETS.items()]
        failed = GaugeMetricFamily(
            "pinq_failed_reloads",
            "Policies that could not be opened at the start or the last reload.",
            value=len(self._datasets.failed),
        )
        workers = GaugeMetricFamily(
            "pinq_workers_ready",
            "1 where what takes long can be answered now, else 0.",
            value=not self._workers.problem,
        )
        ended = CounterMetricFamily(
            "pinq_ended_workers", "Worker processes that ended by themselves or were killed.", value=self._workers.ends
        )
        for name, dataset in self._datasets.served.items():
            numbers: list[float] = [not problem_of(dataset), not dataset.outdated()]
            if numbers[0]:
                together, grants = dataset.ledger.together(), dataset.ledger.grants().values()
                numbers += [float(together.spent), float(together.cap), sum(grant.valid for grant in grants)]
            for gauge, number in zip(gauges, numbers, strict=False):
                gauge.add_metric([name], number)
        return lost, *gauges, failed, workers, ended


class Metrics:
    """Counters of events, by dataset; ``Readiness`` has the state of ledgers, workers and log."""

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
        """Counts one request."""
        self._requests.labels(dataset, route, str(status)).inc()
        if code is not None:
            self._refusals.labels(dataset, code).inc()

    def serve(self, host: str, port: int, ports: int = 1) -> Callable[[], None]:
        """Answers Prometheus, in a thread, at the first free of ``ports`` ports; returns a function that ends it."""
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


def problem_of(dataset: Dataset, *, probe: bool = False) -> str:
    """The reason why a dataset's queries cannot be answered, empty for none.

    ``probe`` writes to its ledger, as always after a failed request.
    """
    try:
        if probe or dataset.trouble:
            dataset.ledger.writable()
            dataset.trouble = ""
        dataset.ledger.together()
        folders = [folder for folder in _folders(dataset.ledger.url) if folder.exists()]
        full = [folder for folder in folders if shutil.disk_usage(folder).free < LEAST_BYTES]
    except (OSError, PinqError) as error:
        return f"its ledger or a disk: {error}"
    return f"the disk of {full[0]} is full" if full else dataset.engine.problem()


def _folders(url: str) -> list[Path]:
    """The folders of charges: an SQLite ledger's folder, and the folder of the heads.

    Raises:
        FileNotFoundError: The ledger's file has gone.
    """
    file = Path(url.removeprefix(SQLITE))
    if not url.startswith(SQLITE) or str(file) == ":memory:":
        return [heads_folder()]
    file.stat()
    return [file.parent, heads_folder()]
