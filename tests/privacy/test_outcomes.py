# SPDX-License-Identifier: Apache-2.0
"""Answer or error, and which: a function of the public request alone, whatever rows there are and whoever counts them.

And numbers and scores: a row moves them by no more than the noise is for, at the largest fields that a request may have.

Worlds of all kinds of columns, specs, families, scores, losses and questions, at their degenerate ends, come from ``tests/support/tables/generated_tables.py``.
Each request is asked of no rows, of a single row in some of its parts and outside of them, and of many rows; of codes in memory, of
codes in a file, and of what Spark's workers run. Everything goes through ledger and curator. 1,200 requests in `make test`, 100,000 in
`make assurance`.
"""

from __future__ import annotations

import importlib
import json
import logging
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pinq.curator import mechanisms, prepared
from pinq.curator.candidates import selection
from pinq.curator.monitor import Curator, Rehearsals
from pinq.engine import ArrayEngine
from pinq.engine.codes import Codes, MappedCodes, arrow_schema, in_blocks, write_codes
from pinq.language.derivatives import LOSSES
from pinq.language.queries import Request
from pinq.ledger.ledger import Ledger
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema
from tests.support.house.assurance import ASSURANCE, note
from tests.support.tables.generated_tables import COLUMN_KINDS, KINDS, QUERIES, Case, World, cases_of
from tests.support.tables.spark_workers import codes_of, workers_over

pytestmark = pytest.mark.long  # together: what one has asked another one counts

WORLDS, CASES = 4_000 if ASSURANCE else 12, 25
CHUNKS = 40 if ASSURANCE else 2
MANY = 40
ROUNDED = 1e-9
SALT = b"salt"
MAX_WORK = 20  # what takes longer is refused by price, as it is on any table

Outcome = tuple[Hashable, ...]
Hidden = list[tuple[np.ndarray, int, bool]]
"""What noise hid in an answer, in turn: numbers or scores, for how large a change, and whether they are scores."""
hidden: Hidden = []
MOST_SCORES = 2**16  # of one choice, that are compared one by one


@pytest.fixture(autouse=True)
def _hiding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes what meets noise in this thread once an answer begins; what rehearsals meet is forgotten.

    A server of another test may still answer in a thread of its own.
    """
    here = threading.get_ident()

    def noted(module: str, name: str, exact: Callable[[Any], np.ndarray]) -> None:
        real = getattr(importlib.import_module(module), name)

        def call(first: Any, largest: int, *more: Any) -> Any:
            if threading.get_ident() == here:
                hidden.append((np.array(exact(first)), largest, name != "laplace"))
            return real(first, largest, *more)

        monkeypatch.setattr(f"{module}.{name}", call)

    def all_scores(candidates: Any) -> np.ndarray:
        return (
            np.repeat(candidates.scores, candidates.members) if candidates.members.sum() < MOST_SCORES else np.zeros(0)
        )

    noted("pinq.curator.prepared", "laplace", np.asarray)
    choose_each = mechanisms.choose_each

    def choose(scores: np.ndarray, lengths: Sequence[int], largest: int, epsilon: Fraction) -> np.ndarray:
        if threading.get_ident() == here:
            hidden.extend((own, largest, True) for own in np.split(scores, np.cumsum(lengths)[:-1]))
        return choose_each(scores, lengths, largest, epsilon)

    monkeypatch.setattr(selection, "choose_each", choose)
    choose_weighted = mechanisms.choose_weighted

    def weighted(
        candidates: Any, span: int, epsilon: Fraction, whole: Callable[[], Any] | None = None
    ) -> tuple[int, int]:
        candidates = candidates if whole is None else whole()
        if threading.get_ident() == here:
            hidden.append((all_scores(candidates), span, True))
        return choose_weighted(candidates, span, epsilon)

    monkeypatch.setattr(selection, "choose_weighted", weighted)
    answer = Curator._answer

    def forgetting(self: Curator, *arguments: Any) -> Any:
        if threading.get_ident() == here:
            hidden.clear()
        return answer(self, *arguments)

    monkeypatch.setattr(Curator, "_answer", forgetting)


def moved(before: Hidden, after: Hidden) -> float:
    """By how much of what noise is for a row moved an answer; more than 1 is a breach."""
    numbers = scores = 0.0
    for (old, largest, scored), (new, same, _) in zip(before, after, strict=True):
        assert (largest, old.shape) == (same, new.shape)
        change = new.astype(object) - old.astype(object)
        if scored:
            scores = max(scores, (change.max() - change.min()) / largest if change.size else 0.0)
        else:
            numbers += np.abs(change).sum() / max(largest, ROUNDED)  # 0 where a column has a single cell
    return max(numbers, scores)


def outcome(curator: Curator, analyst: str, request: Request) -> Outcome:
    """What a request comes to, but for the numbers: an error in its words, or the shape of the answer; and what was spent."""
    try:
        answer = curator.ask(analyst, request)
    except Exception as error:  # any class: it is what is looked for
        said: Outcome = (type(error).__name__, str(error))
    else:
        rows = None if answer.rows is None else len(answer.rows)
        kinds = frozenset(map(type, answer.values))
        said = ("answer", len(answer.values), kinds, rows, answer.scale, answer.grid, answer.epsilon)
    return (*said, curator.ledger.accounts()[analyst].spent.nano)


class Tables:
    """All tables of a world, each behind a curator with an analyst of its own.

    Args:
        world: The world of the tables.
        ledger: The ledger of all tables.
    """

    def __init__(self, world: World, ledger: Ledger) -> None:
        self.world, self.ledger, self.analysts = world, ledger, set[str]()
        self.rehearsals = Rehearsals(world.schema)
        aimed = [row for case in world.cases for row in case.rows]
        ends = [tuple(column.codes - 1 for column in world.schema.columns.values())] * 3
        none = codes_of([], world.schema)
        self.many = [*ends, *aimed[:: 1 + len(aimed) // MANY], *aimed[:3]]
        many = codes_of(self.many, world.schema)
        self.steady = {"no rows": self._arrays(none), "many rows": self._arrays(many)}
        match world.seed % 4:  # the other ways to count, in turns
            case 0:
                self.steady["many rows in a file"] = self._arrays(_mapped(many, world.schema))
            case 1:
                self.steady["many rows of Spark's workers"] = self._workers(many)
            case 2:
                self.steady["no rows of Spark's workers"] = self._workers(none)

    def outcomes(self, case: Case) -> Iterator[tuple[str, Outcome]]:
        """The outcome on each table, those of a single row included."""
        before: dict[str, Hidden] = {}
        for name, curator in [*self.steady.items(), *self._single(case)]:
            if name not in self.analysts:
                self.analysts.add(name)
                self.ledger.grant(name, Epsilon.of(10**5))
            found = outcome(curator, name, case.request)
            if found[0] == "answer":
                before[name] = hidden[:]
                old = {"a row of a part": "no rows", "many rows and one": "many rows"}.get(name)
                if old in before and moved(before[old], hidden) > 1 + ROUNDED:
                    found = (*found, f"moved by {moved(before[old], hidden)}")
            yield name, found

    def _single(self, case: Case) -> Iterator[tuple[str, Curator]]:
        yield "a row of a part", self._arrays(codes_of(case.rows[:1], self.world.schema))
        if self.world.seed % 4 == 3:
            yield "a row anywhere", self._workers(codes_of(case.rows[-1:], self.world.schema))
        else:
            yield "many rows and one", self._arrays(codes_of([*self.many, case.rows[0]], self.world.schema))

    def _arrays(self, codes: Codes) -> Curator:
        return self._counted(ArrayEngine(codes, self.world.schema, SALT))

    def _workers(self, codes: Codes) -> Curator:
        return self._counted(workers_over(codes, self.world.policy, SALT))

    def _counted(self, engine: Any) -> Curator:
        curator = Curator(self.world.schema, self.ledger, engine, max_work=MAX_WORK)
        # What a table's curator has rehearsed, the others need not: it follows the schema alone.
        curator._rehearsals = self.rehearsals
        return curator


def _mapped(codes: Codes, schema: Schema) -> Codes:
    with tempfile.TemporaryFile() as file:  # what is mapped stays mapped
        columns = arrow_schema(schema)
        blocks = (
            pa.RecordBatch.from_arrays([*map(pa.array, own.columns.values())], schema=columns) for own in codes.blocks
        )
        write_codes(file, columns, in_blocks(blocks), [])
        return MappedCodes(file, schema)


@cache
def asked(seed: int) -> tuple[list[tuple[Case, dict[str, Outcome]]], Counter[str]]:
    """The requests of a world whose outcome follows the rows, or fails, and what was answered; asked once for all tests."""
    seen: Counter[str] = Counter()
    return list(differing(cases_of(seed, CASES), seen)), seen


def differing(world: World, seen: Counter[str]) -> Iterator[tuple[Case, dict[str, Outcome]]]:
    """The requests whose outcome follows the rows, or fails; all others are counted in ``seen``."""
    with closing(Ledger("sqlite://", "world")) as ledger:
        ledger.declare(world.schema.digest, Epsilon.of(10**6), {})
        tables = Tables(world, ledger)
        for case in world.cases:
            outcomes = dict(tables.outcomes(case))
            first = outcomes["no rows"]
            if any(own != first for own in outcomes.values()) or first[0] not in ANSWERED:
                yield case, outcomes
            seen[str(first[0])] += 1
            if first[0] == "answer":
                seen.update(set(_kinds(json.loads(case.request.to_json()))))
                seen.update([type(case.request.query).__name__])
                seen.update({column.type for column in world.schema.columns.values()})


ANSWERED = {"answer", "QueryError"}


def _kinds(said: Any) -> Iterator[str]:
    """What a request has: kinds of expressions, and fields that are there."""
    if isinstance(said, dict):
        yield from (str(value) if name == "kind" else name for name, value in said.items() if value)
    for value in said.values() if isinstance(said, dict) else said if isinstance(said, list) else ():
        yield from _kinds(value)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_outcomes_follow_the_request_alone(chunk: int) -> None:
    """Kinds of errors, their words, numbers of numbers, and charges are the same on all tables of a world."""
    logging.disable(logging.CRITICAL)
    try:
        found = next((pair for seed in range(chunk, WORLDS, CHUNKS) for pair in asked(seed)[0]), None)
    finally:
        logging.disable(logging.NOTSET)
    assert found is None, f"{found[0].request.to_json()[:1500]} {found[1]}"
    note("requests, each of tables of no rows, of one and of many", WORLDS * CASES // CHUNKS, "always the same outcome")


def test_what_another_thread_draws_is_not_noted() -> None:
    """It is no part of an answer that is compared."""
    answer = partial(vars(prepared)["laplace"], np.zeros(1, dtype=np.int64), 1, Fraction(1))
    hidden.clear()
    other = threading.Thread(target=answer)
    other.start()
    other.join()
    assert not hidden
    answer()
    assert len(hidden) == 1


def test_every_kind_is_answered() -> None:
    """A kind of column, question, spec, family, score or loss that the generator cannot ask so that it is answered fails here."""
    seen = sum((asked(seed)[1] for seed in range(4 * WORLDS // CHUNKS)), Counter())
    wanted = {
        *KINDS,
        *LOSSES,
        *(kind.__name__ for kind in QUERIES),
        *(kind.model_fields["type"].default for kind in COLUMN_KINDS),
        *("by", "each", "textbook", "which", "nodes", "specs", "hessian"),
    }
    assert not {kind for kind in wanted if seen[kind] < 3}
