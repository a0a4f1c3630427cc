# SPDX-License-Identifier: Apache-2.0
"""Measures one thing in one checkout; of the library it knows public names and one command only.

``python then_worker.py TASK.json`` with a checkout on PYTHONPATH prints the checkout that it runs and,
as JSON, the wall and processor seconds of each opening and of each call.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import miners
import pinq


def seconds(call: Callable[[], Any]) -> tuple[Any, list[float]]:
    """Returns what a call gives, with its wall and processor seconds, the latter of all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    given = call()
    return given, [time.perf_counter() - wall, time.process_time() - cpu]


def call_of(task: dict[str, Any], handle: Any) -> Callable[[], Any]:
    """Returns what is timed."""
    if task["what"] == "fit":
        known = task["miner"] in miners.__all__  # as the baselines of a paper were in earlier checkouts
        kinds = miners if known else import_module("benchmarks.papers.diprime.baselines")
        return lambda: getattr(kinds, task["miner"])(**task["arguments"]).fit(handle, task["target"])
    if task["what"] == "level":
        parts = handle.partition(pinq.Values(task["split"]))
        candidates, score = [pinq.Values(name) for name in task["attributes"]], pinq.Gini(task["target"])
        return lambda: parts.exp_mech(candidates, score=score, epsilon=0.01)
    parts = handle.partition(pinq.Values(task["split"]))
    asked = parts if task["part"] is None else parts[task["part"]]
    return lambda: asked.noisy_count(epsilon=0.01)


def grant(policy: str) -> None:
    """Grants the analyst a budget that does not end."""
    command = Path(sys.executable).with_name("pinq")
    arguments = ["grant", policy, "ana", "--epsilon", "100000"]
    subprocess.run([command, *arguments], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Opens, asks for a count that is not timed, then times the call: so often as the task says."""
    task = json.loads(Path(sys.argv[1]).read_text())
    grant(task["policy"])
    opened, called = [], []
    for _ in range(task["repeats"]):
        handle, spent = seconds(lambda: pinq.open(task["policy"], analyst="ana"))
        opened.append(spent)
        if task["warm"]:
            handle.noisy_count(epsilon=0.01)
        called.append(seconds(call_of(task, handle))[1])
        handle.close()
    checkout = str(Path(pinq.__file__).resolve().parents[1])
    json.dump({"checkout": checkout, "open": opened, "call": called}, sys.stdout)


if __name__ == "__main__":
    main()
