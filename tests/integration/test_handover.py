# SPDX-License-Identifier: Apache-2.0
"""Long work in a server's sibling: the same answers and refusals, one ledger, one quota, one life."""

from __future__ import annotations

import gc
import json
import os
import pickle
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from pinq.analyst.tokens import digest
from pinq.curator.work import Stopped, TooHeavy, Turn, WorkMeter
from pinq.errors import EngineError, InternalError, NotAuthorised, PinqError, TooManyRequests, Unavailable
from pinq.ledger.ledger import Ledger
from pinq.ledger.terms import FREE, Terms
from pinq.provider.grants import revoke
from pinq.public.queries import Answer
from pinq.server.api import replies
from pinq.server.api.handover import Handover, _facts, _Process
from pinq.server.api.sibling import Facts
from pinq.server.api.visit import Visit, Work
from pinq.server.datasets import Dataset
from pinq.server.details import unexpected
from pinq.server.log import RequestLog
from tests.servers import COLUMNS, people, publish, token_of

QUERY = partial(replies.query, schema=None)
MINUTE = 60
LETTERS = {"type": "categorical", "values": [f"v{i}" for i in range(16)]}


class Served:
    """A dataset as a server has it open, and its sibling."""

    def __init__(self, folder: Path, handover: Handover | None = None) -> None:
        letters = people().assign(letter=[f"v{i % 16}" for i in range(400)])
        self.policy = publish(folder, frame=letters, columns=COLUMNS | {"letter": LETTERS})
        self.dataset, self.handover = Dataset.open(self.policy), handover or Handover(3)
        self.tokens: dict[str, str] = {}

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The sibling's."""
        assert self.handover._process is not None
        return self.handover._process._process

    def visit(self, analyst: str = "ana", turn: Turn | None = None, terms: Terms = FREE) -> Visit:
        """A request that was let in."""
        if analyst not in self.tokens:
            self.tokens[analyst] = digest(token_of(self.policy, analyst, terms=terms))
        turn = turn or Turn()
        turn.token = self.tokens[analyst]
        grant = self.dataset.ledger.grants()[analyst]
        return Visit("people", "query", "-", dataset=self.dataset, grant=grant, turn=turn)

    def both(self, work: Work) -> Iterator[Callable[[Visit, bytes], str]]:
        """Does it here, and in the sibling."""
        yield work
        yield partial(self.handover.do, work)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One for all tests: what they ask is theirs."""
    served = Served(tmp_path_factory.mktemp("served"))
    yield served
    served.handover.close()
    served.dataset.curator.close()


def asked(name: str, **fields: object) -> bytes:
    """A count, or what else is said."""
    return json.dumps({"id": name, "verb": "noisy_count", "epsilon": "0.5"} | fields).encode()


def long(name: str) -> bytes:
    """A choice among the members of very many families: a minute of work."""
    families = [{"kind": "any_grouping", "column": "letter", "seed": seed} for seed in range(4_000)]
    score = {"kind": "info_gain", "target": "income"}
    return asked(name, verb="exp_mech", score=score, candidates=[families], each=True)


def spent(served: Served, analyst: str) -> float:
    """What an analyst has spent."""
    return float(served.dataset.ledger.accounts()[analyst].spent)


def test_what_is_handed_over_is_answered_and_charged_once(served: Served) -> None:
    """Asked again, here or there, it has the same answer."""
    given = {do(served.visit("gil"), asked("one")) for do in [*served.both(QUERY), *served.both(QUERY)]}
    assert [Answer.from_json(text).id for text in given] == ["one"]
    assert spent(served, "gil") == 0.5
    visit = served.visit("gil")
    assert served.handover.do(replies.budget, visit, b"") == replies.budget(visit, b"")
    served.handover.do(QUERY, visit, asked("one"))
    assert visit.request == "one"


@pytest.mark.parametrize(
    "body", [b"{", asked("two", verb="noisy_sum", column="height"), asked("three", epsilon="1000")]
)
def test_a_refusal_is_the_same_here_and_there(served: Served, body: bytes) -> None:
    """Class, text and facts, and whether it was charged."""
    errors = list[PinqError]()
    for do in served.both(QUERY):
        with pytest.raises(PinqError) as refused:
            do(served.visit("bob"), body)
        errors.append(refused.value)
    here, there = errors
    assert (type(here), str(here), here.facts, here.charged) == (type(there), str(there), there.facts, there.charged)


def test_a_turn_that_takes_too_little_gives_the_work_back(served: Served) -> None:
    """As it does here."""
    for do in served.both(QUERY):
        with pytest.raises(TooHeavy):
            do(served.visit(turn=Turn(most=0)), asked("four"))
        with pytest.raises(Stopped):
            do(served.visit(turn=Turn(seconds=0)), asked("four"))


def test_both_processes_take_work_from_one_quota(served: Served) -> None:
    """What was taken in one is left in neither."""
    grant = served.visit("cleo", terms=Terms(work_per_minute=8)).grant
    assert grant is not None
    took = 0

    def take() -> None:
        nonlocal took
        for do in [*served.both(QUERY)] * 9:
            do(served.visit("cleo"), asked(f"count{took}"))
            took += 1

    with pytest.raises(TooManyRequests, match="8 a minute"):
        take()
    assert 0 < took < 9
    for do in served.both(QUERY):
        with pytest.raises(TooManyRequests):
            do(served.visit("cleo"), asked("last"))


def test_a_token_that_ended_since_is_looked_at_there(served: Served) -> None:
    """The ledger is what both believe."""
    visit = served.visit("dan")
    revoke(served.policy, "dan")
    with pytest.raises(NotAuthorised):
        served.handover.do(QUERY, visit, asked("five"))


def at_work(served: Served, visit: Visit, body: bytes) -> tuple[threading.Thread, list[object]]:
    """Begins long work in a thread; returns once it is charged."""
    came = list[object]()

    def ask() -> None:
        try:
            came.append(served.handover.do(QUERY, visit, body))
        except Exception as error:
            came.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    late = time.monotonic() + MINUTE
    assert visit.grant is not None
    while not spent(served, visit.grant.analyst) and not came:
        assert time.monotonic() < late
        time.sleep(0.02)
    return thread, came


def test_a_turn_that_is_ended_here_ends_there(served: Served) -> None:
    """The charge stays, and its failure has the one text."""
    visit = served.visit("eve")
    thread, came = at_work(served, visit, long("six"))
    visit.turn.stop()
    thread.join(MINUTE)
    assert [type(outcome) for outcome in came] == [EngineError]
    assert spent(served, "eve") == 0.5


def test_where_the_sibling_is_killed_another_goes_on_with_the_request(served: Served) -> None:
    """It was charged before, and is not again."""
    served.handover.do(QUERY, served.visit(), asked("one"))
    visit, before = served.visit("fay"), served.process
    thread, came = at_work(served, visit, long("seven"))
    os.kill(before.pid, signal.SIGKILL)
    while served.handover._process is None or served.process is before:
        assert thread.is_alive()
        time.sleep(0.02)
    visit.turn.stop()
    thread.join(MINUTE)
    assert [type(outcome) for outcome in came] in ([EngineError], [Unavailable])
    assert Answer.from_json(served.handover.do(QUERY, served.visit("fay"), asked("eight"))).id == "eight"
    assert spent(served, "fay") == 1.0


def test_signals_that_stop_a_server_leave_it_to_the_server_to_end_its_sibling(served: Served) -> None:
    """What runs is finished; with its connections it ends by itself."""
    served.handover.do(QUERY, served.visit(), asked("one"))
    process = served.process
    for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(process.pid, sign)
    served.handover.do(QUERY, served.visit(), asked("one"))
    served.handover.close()
    assert process.returncode == 0
    with pytest.raises(Unavailable):
        served.handover.do(QUERY, served.visit(), asked("one"))
    served.handover._closed = False  # for other tests


def test_what_the_sibling_would_read_otherwise_is_done_here(served: Served, tmp_path: Path) -> None:
    """A source that changed after the server encoded it is not encoded anew beside it."""
    changed = Served(tmp_path, served.handover)
    source = tmp_path / "people.parquet"
    source.write_bytes(source.read_bytes())
    assert Answer.from_json(served.handover.do(QUERY, changed.visit(), asked("nine"))).id == "nine"
    changed.dataset.curator.close()


def test_what_is_unexpected_has_one_text(served: Served) -> None:
    """Whichever process it happened in."""
    with pytest.raises(InternalError) as failed:
        served.handover.do(os.path.join, served.visit(), b"")  # type: ignore[arg-type]
    assert str(failed.value) == str(unexpected())


def test_a_policy_that_changed_elsewhere_keeps_codes_and_what_is_at_work(tmp_path: Path) -> None:
    """Codes are made again only where they would be other ones."""
    here = Dataset.open(publish(tmp_path))
    ledger = Ledger(here.ledger.url)
    there = Dataset.beside(here.policy, ledger, here.source, WorkMeter())
    later = here.policy.model_copy(update={"cap": 7})
    renewed = Dataset.beside(later, ledger, here.source, WorkMeter(), there)
    assert (renewed.policy, renewed.engine) == (later, there.engine)
    assert Dataset.beside(later, ledger, here.source, WorkMeter(), renewed) is renewed
    assert renewed.curator._working is there.curator._working
    narrower = here.policy.model_copy(update={"max_rows": 1})
    assert Dataset.beside(narrower, ledger, here.source, WorkMeter(), there).engine is not there.engine
    there.engine.close()  # as where the file of its codes was cut
    assert not Dataset.beside(later, ledger, here.source, WorkMeter(), renewed).engine.problem()
    here.curator.close()
    ledger.close()


def test_a_ledger_that_took_anothers_place_is_opened_there_too(served: Served, tmp_path: Path) -> None:
    """As when a dataset is removed, given a new ledger, and added again; the old one is closed there."""
    handover = served.handover
    for name in ("ten", "eleven"):
        again = Served(tmp_path, handover)
        for _ in range(2):
            assert Answer.from_json(handover.do(QUERY, again.visit(), asked(name))).id == name
        assert spent(again, "ana") == 0.5
        assert _open_files(again.process.pid, tmp_path) > 0
        again.dataset.curator.close()
        again.dataset = served.dataset
        for file in [*tmp_path.glob("*.ledger*"), *tmp_path.glob("*.claim")]:
            file.unlink()
    del again
    gc.collect()  # until then the server has the ledger
    handover.do(QUERY, served.visit(), asked("one"))
    assert _open_files(served.process.pid, tmp_path) == 0


def _open_files(pid: int, folder: Path) -> int:
    """How many files of a folder a process has open, of those that were deleted too."""
    return sum(str(folder) in os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.exists())


def test_a_sibling_that_ends_or_does_not_start_is_noted(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the kernel killed shows in the provider's log."""
    file = tmp_path / "log"
    log = RequestLog(file)
    handover = Handover(1, log)
    handover._process = process = _Process(1)
    os.kill(process.pid, signal.SIGKILL)
    with monkeypatch.context() as patch:
        patch.setattr("sys.executable", "/nowhere/python")
        with pytest.raises(Unavailable):
            handover.do(QUERY, served.visit(), asked("one"))
    late = time.monotonic() + MINUTE
    while len(lines := [json.loads(line) for line in file.read_text().splitlines()]) < 2:
        assert time.monotonic() < late
        time.sleep(0.02)
    ended, failed = sorted(lines, key=lambda line: str(line["event"]))
    assert (ended["event"], ended["pid"], ended["status"]) == ("sibling ended", process.pid, -signal.SIGKILL)
    assert (failed["event"], failed["reason"]) == ("sibling not started", "No such file or directory")
    handover.close()
    log.close()


def test_signals_pass_by_a_sibling_from_its_first_moment_on_and_short_memory_ends_it_first(served: Served) -> None:
    """Ctrl-C reaches a terminal's whole group, also while it imports."""
    handover = Handover(1)
    handover._process = process = _Process(1)
    for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(process.pid, sign)
    handover.do(QUERY, served.visit(), asked("one"))
    assert handover._process is process
    likely = [Path(f"/proc/{pid}/oom_score_adj") for pid in (process.pid, os.getpid())]
    if likely[1].exists():
        there, here = (int(file.read_text()) for file in likely)
        assert there == max(here, 500)
    handover.close()


def test_a_sibling_that_hangs_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long after a turn's end nobody waits for it any more, and the next request finds another one."""
    for name in ("PATIENCE_SECONDS", "END_SECONDS"):
        monkeypatch.setattr(f"pinq.server.api.handover.{name}", 0.1)
    served.handover.do(QUERY, served.visit(), asked("one"))
    before = served.process
    os.kill(before.pid, signal.SIGSTOP)
    os.waitpid(before.pid, os.WUNTRACED)  # on a busy machine it goes on for a moment
    with pytest.raises(Unavailable):
        served.handover.do(QUERY, served.visit(turn=Turn(0.1)), asked("twelve"))
    monkeypatch.undo()
    assert before.wait(MINUTE) == -signal.SIGKILL
    assert Answer.from_json(served.handover.do(QUERY, served.visit(), asked("twelve"))).id == "twelve"


def test_a_policy_is_handed_over_only_when_it_is_new(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have a million pairs of a lookup table, and whoever writes or reads it keeps the interpreter."""
    served.handover.do(QUERY, served.visit(), asked("one"))
    before, sent = served.dataset, list[Facts]()

    def noted(visit: Visit) -> Facts:
        sent.append(_facts(visit))
        return sent[-1]

    monkeypatch.setattr("pinq.server.api.handover._facts", noted)
    served.handover.do(QUERY, served.visit(), asked("one"))
    assert not sent
    assert len(pickle.dumps(served.handover._task(QUERY, served.visit(), b""))) < 1000
    later = before.policy.model_copy(update={"cap": 7})
    served.dataset = Dataset(later, before.ledger, before.curator, before.engine, before.source)
    for _ in range(2):
        served.handover.do(QUERY, served.visit(), asked("one"))
    assert [facts.policy.cap for facts in sent] == [7]
    served.dataset = before
