# SPDX-License-Identifier: Apache-2.0
"""Several real servers behind one federation: TLS, a server that is killed or hangs, a coordinator that is killed."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import pinq
from miners import FederatedTopDown, Federation
from miners.federated.federation import OwnerFailed
from pinq.provider.opening import open_ledger
from pinq.public.epsilon import ZERO, Epsilon
from tests.support.processes.forked_processes import PinqProcess, run_pinq
from tests.support.processes.servers import Certificate, Server, people, publish, serving, token_of

COORDINATOR = """
import sys, time, pinq
from miners import FederatedTopDown, Federation

def say(line):
    if line.startswith("round 2") and stops == "stops":
        print(line, flush=True)
        time.sleep(600)

place, stops, *others = sys.argv[1:]
handles = [pinq.connect(url, token=token, insecure_http=True) for url, token in zip(others[::2], others[1::2])]
fitted = FederatedTopDown(epsilon=1, strategy="noisy_counts", max_nodes=7, at_once=1, resume=True).fit(Federation(handles, say=say), "income")
open(place, "w").write(fitted.to_json())
"""


def spent(policy: Path) -> Any:
    """What the provider's own ledger has charged."""
    return open_ledger(pinq.load_policy(policy)).grants()["ana"].spent


def owner(folder: Path, name: str, rows: int) -> tuple[Path, str]:
    """A policy of its own with rows of its own, and the coordinator's token."""
    policy = publish(folder / name, name, frame=people(rows))
    return policy, token_of(policy, epsilon=1)


class StopsBefore(Federation):
    """Sends a server a signal before a round of questions, from when on its handle is impatient; before, a machine may be busy."""

    def __init__(self, handles: Any, round_: int, handle: Any, server: Server, sign: signal.Signals) -> None:
        super().__init__(handles, on_failure="drop")
        self._round, self._handle, self._server, self._sign = round_, handle, server, sign

    def ask(self, questions: Any) -> Any:
        if self.rounds == self._round:
            self._server.process.send_signal(self._sign)
            self._handle._session._timeout = 2.0
        return super().ask(questions)


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP], ids=["gone", "too slow"])
def test_a_server_that_does_not_answer_is_dropped_and_nobody_pays_more(tmp_path: Path, sign: signal.Signals) -> None:
    """The others' ledgers say what was claimed, its own no more than that; under "fail" the error says what was spent where."""
    (north, token), (south, other), (west, third) = (
        owner(tmp_path, name, rows) for name, rows in (("north", 300), ("south", 400), ("west", 500))
    )
    words: dict[str, Any] = {"certificate": Certificate.make(tmp_path), "folder": tmp_path}
    with ExitStack() as stack:
        steady, shaky = (stack.enter_context(serving(*policies, **words)) for policies in ((north, south), (west,)))
        asked = (("north", steady, token), ("south", steady, other), ("west", shaky, third))
        handles = {
            name: stack.enter_context(pinq.connect(server.url(name), token=secret, **server.words()))
            for name, server, secret in asked
        }
        federation = StopsBefore(handles, 2, handles["west"], shaky, sign)
        fitted = FederatedTopDown(epsilon="0.5").fit(federation, "income")
        assert federation.owners == ["north", "south"]
        assert [one.owner for one in fitted.card_.dropped] == ["west"]
        assert fitted.card_.spent == {"north": fitted.cost_, "south": fitted.cost_, "west": None}
        assert [spent(policy) for policy in (north, south)] == [Epsilon.of("0.5")] * 2
        assert ZERO < spent(west) <= Epsilon.of("0.5")
        with pytest.raises(OwnerFailed, match=r"'west' failed: (No answer|Nothing listens)") as error:
            Federation(handles).parts().noisy_count(epsilon="0.25")
        assert error.value.spent == {"north": Fraction(1, 4), "south": Fraction(1, 4), "west": None}
        assert [spent(policy) for policy in (north, south)] == [Epsilon.of("0.75")] * 2


def test_a_killed_coordinator_comes_back_and_pays_nothing_twice(tmp_path: Path) -> None:
    """Killed while it fits, and run again: in the end every owner's ledger says what one fit costs."""
    (north, token), (south, other) = (owner(tmp_path, name, rows) for name, rows in (("north", 300), ("south", 400)))
    with serving(north, south, folder=tmp_path) as server:
        place, others = str(tmp_path / "tree.json"), [server.url("north"), token, server.url("south"), other]
        said = tmp_path / "said"
        process = PinqProcess([place, "stops", *others], output=said, errors=tmp_path / "errors", program=COORDINATOR)
        while not said.read_text().startswith("round 2"):  # the root is judged, the leaves are not asked
            assert process.poll() is None, (tmp_path / "errors").read_text()
            time.sleep(0.01)
        process.kill()
        process.wait()
        paid = [spent(policy) for policy in (north, south)]
        assert all(ZERO < one < Epsilon.of(1) for one in paid)
        done = run_pinq([place, "goes on", *others], program=COORDINATOR)
        assert done.returncode == 0, done.stderr
    assert [spent(policy) for policy in (north, south)] == [Epsilon.of(1)] * 2
    card = FederatedTopDown.from_json((tmp_path / "tree.json").read_text()).card_
    assert list(card.spent.values()) == [(Epsilon.of(1) - one).exact for one in paid]
