# SPDX-License-Identifier: Apache-2.0
"""Tests that ``make test`` leaves to ``make test-long``: those that take more than a second.

``pytest --durations=0 --durations-min=.05 | python -m tests.long > tests/long.txt`` lists them anew, the longest
file first. A test that is renamed or new is none of them until then, so ``make test`` runs it.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable

MOST_SECONDS = 1  # of one test
MOST_SHARED_SECONDS = 4  # of what the tests of a file share
TAKEN = re.compile(r"(?P<seconds>[0-9.]+)s (?P<phase>call|setup|teardown) +(?P<test>.+)")


def long_tests(lines: Iterable[str]) -> list[str]:
    """The long tests of a report of durations; a file by its path alone where what its tests share takes long."""
    tests: defaultdict[str, float] = defaultdict(float)
    shared = set()
    for line in lines:
        if (read := TAKEN.fullmatch(line.strip())) is not None:
            seconds = float(read["seconds"])
            if read["phase"] == "call":
                tests[read["test"]] += seconds
            elif seconds > MOST_SHARED_SECONDS:
                shared.add(_file(read["test"]))  # without this test, another one would wait for it
    long = shared | {test for test, seconds in tests.items() if seconds > MOST_SECONDS and _file(test) not in shared}
    files: defaultdict[str, float] = defaultdict(float)
    for test, seconds in tests.items():
        files[_file(test)] += seconds
    return sorted(long, key=lambda test: (-files[_file(test)], test))


def _file(test: str) -> str:
    return test.partition("::")[0]


if __name__ == "__main__":
    print("\n".join(long_tests(sys.stdin)))
