# SPDX-License-Identifier: Apache-2.0
"""A task's threads and the connection that it came over."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import pytest

from pinq.curator.work import Stopped
from pinq.server.api import sibling
from pinq.server.api.sibling import Sibling, Task, _Turn
from pinq.server.api.visit import Visit


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Connection, Connection]]:
    """The server's end of a connection, and the sibling's."""
    monkeypatch.setattr(sibling, "LISTEN_SECONDS", 0.0)
    here, there = Pipe()
    with here, there:
        yield here, there


def answered(visit: Visit, body: bytes) -> str:
    """Work that is done at once."""
    return body.decode()


TASK = Task("people", 0, 0, frozenset(), "", answered, b"{}", 100.0, time.monotonic() + 10**6)


class Late:
    """A connection that is looked at by all threads before the first of them reads."""

    def __init__(self, connection: Connection, threads: int) -> None:
        self._connection, self._looked = connection, threading.Barrier(threads)

    def poll(self) -> bool:
        """Whether there is a word, once others have looked too, if there are any."""
        has_word = self._connection.poll()
        with suppress(threading.BrokenBarrierError):
            self._looked.wait(0.2)
        return has_word

    def recv(self) -> Any:
        """The next word."""
        return self._connection.recv()


def test_one_word_of_the_server_ends_all_threads_of_a_task(ends: tuple[Connection, Connection]) -> None:
    """One of them reads it; none waits for a second one, which would be the next task."""
    server, own = ends
    turn, stopped = _Turn(Late(own, 3), TASK), list[int]()  # type: ignore[arg-type]

    def work(number: int) -> None:
        try:
            while True:
                turn.check()
        except Stopped:
            stopped.append(number)

    server.send(time.monotonic() - 1)
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(stopped) == [0, 1, 2]


def test_a_thread_that_outlives_its_task_does_not_read_the_next(
    ends: tuple[Connection, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread's error ended the task, and this one looks whether its turn is over."""
    server, own = ends
    turns = list[_Turn]()
    monkeypatch.setattr(Sibling, "_authorise", lambda self, task, visit: turns.append(visit.turn))
    assert Sibling().done(TASK, own).payload == "{}"
    server.send("the next task")
    turns[0].check()
    assert own.poll()
    assert own.recv() == "the next task"
