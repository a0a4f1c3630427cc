# SPDX-License-Identifier: Apache-2.0
"""Requests and answers between the two sides: frozen, self-contained, JSON.

A request names parts by their specs. The curator binds every spec to its own schema again, so a forged request is
invalid. A request is one of seven *queries* of its parts, for the five verbs of an analyst: ``noisy_sum`` is two
queries, and ``exp_mech`` three, by its score. The curator defines the answers (``pinq/curator/verbs.py``).

A new query is a class here, an entry of ``_BY_VERB``, ``_BY_SUMMAND`` or ``_BY_SCORE``, and the file that prepares it.
"""

from __future__ import annotations

import hashlib
import math
import uuid
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from html import escape
from typing import Annotated, ClassVar, Literal, cast, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from pinq.errors import QueryError, printable
from pinq.language.parts import Block, Part, PartSet
from pinq.language.products import VECTORS, AnyVector
from pinq.language.scores import MAX_DEPTH, AnyScore, ClassCount, EnoughRows, Score
from pinq.language.specs import MAX_AXES, MAX_PARTS, Candidate, Cross, Spec, bind, scale, two_ends
from pinq.public.checks import Shown, TupleOf, brief, require_bounded
from pinq.public.columns import CutPoint, said_of
from pinq.public.epsilon import MAX_EPSILON, NANO, Epsilon
from pinq.public.schema import Schema

MAX_BY = 4096
NUMBER_BYTES = 26  # of a number as text, with a comma
# Bytes that a ledger keeps of a charge and its answer beside the parts, and of a part or a part above it.
QUERY_BYTES, PART_BYTES = 6144, 128
MAX_ACT = 200  # characters of an act's name: a line that a person reads


class Query(ABC):
    """One of the seven kinds of queries."""

    task: ClassVar[str]

    @abstractmethod
    def columns(self) -> set[str]:
        """The columns that the query names."""

    def facts(self) -> dict[str, str]:
        """The facts in the log beside the text that identifies the query."""
        return {}

    def check(self, schema: Schema) -> None:
        """Raises ``QueryError`` if the schema lacks its column. The curator checks candidates."""
        return

    def shape(self, schema: Schema) -> tuple[int, ...]:
        """The shape of a part's answer; by default one number."""
        return ()

    def part_bytes(self, schema: Schema) -> int:
        """The largest length of the text of a part's answer."""
        return NUMBER_BYTES * math.prod(self.shape(schema))

    def check_for(self, parts: PartSet, schema: Schema) -> None:
        """Raises ``QueryError`` if the schema or the number of parts does not allow the query."""
        self.check(schema)
        numbers = parts.size * math.prod(self.shape(schema))
        if numbers > MAX_PARTS:
            raise QueryError(f"this makes {numbers:,} numbers; at most {MAX_PARTS:,} are possible.")

    def form(self) -> Hashable:
        """The kind of the query; the same code answers queries of one form."""
        return type(self).__name__

    def sample(self, numbers: Sequence[int], schema: Schema) -> Query:
        return self

    def examples(self, schema: Schema) -> set[int]:
        """The numbers of parts whose candidates together have every form."""
        return set()


class ChoiceQuery(Query):
    """A query that is answered by choices."""

    @abstractmethod
    def read(self, values: Sequence[float], chosen: Sequence[Spec], schema: Schema) -> Sequence[object]:
        """The choices that an answer's numbers stand for."""


@dataclass(frozen=True)
class Count(Query):
    """How many rows has each part?"""

    task = "`noisy_count` counts rows"

    def columns(self) -> set[str]:
        return set()


@dataclass(frozen=True)
class _NumberQuery(Query):
    column: str

    def columns(self) -> set[str]:
        return {self.column}

    def check(self, schema: Schema) -> None:
        schema.numeric(self.column)


@dataclass(frozen=True)
class Sum(_NumberQuery):
    """What do a column's values add up to in each part?"""

    task = "`noisy_sum` adds up a column"

    def check(self, schema: Schema) -> None:
        schema.addable(self.column)


@dataclass(frozen=True)
class SumDerivatives(Query):
    """What do public vectors of the rows (derivatives of a loss, products of columns) add up to in each part?

    With ``by``, in each cell of some specs within it.
    """

    task = "`noisy_sum` of derivatives adds up vectors"

    column: AnyVector
    by: tuple[Spec, ...] | None = None

    def __post_init__(self) -> None:
        if self.by == ():
            raise QueryError("is empty; name a spec, or leave it out for one sum for each part.", parameter="by")
        if self.by is not None and len(self.by) > MAX_BY:
            raise QueryError(f"has {len(self.by):,} specs", parameter="by", allowed=f"at most {MAX_BY:,} of them")

    def form(self) -> Hashable:
        return type(self).__name__, self.column.kind, self.by is None

    def columns(self) -> set[str]:
        return self.column.columns().union(*(spec.columns() for spec in self.by or ()))

    def check(self, schema: Schema) -> None:
        self.column.check(schema)

    def shape(self, schema: Schema) -> tuple[int, ...]:
        width = (self.column.width(schema),)
        return width if self.by is None else (sum(bind(spec, schema).size for spec in self.by), *width)


@dataclass(frozen=True)
class Average(_NumberQuery):
    """What is the average of a column in each part?

    Attributes:
        within: A public range to which values are clamped; None for the column's bounds.
    """

    task = "`noisy_avg` averages a column"

    within: tuple[CutPoint, CutPoint] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "within", two_ends(self.within))

    def check(self, schema: Schema) -> None:
        self.cells(schema)

    def part_bytes(self, schema: Schema) -> int:
        return 2 * NUMBER_BYTES  # the average and the rows

    def cells(self, schema: Schema) -> tuple[int, int]:
        return schema.numeric(self.column).cells_within(self.within, self.column)


@dataclass(frozen=True)
class Choose(ChoiceQuery):
    """Which candidate is best for each part?

    Attributes:
        which: The number of the list from which each part chooses; a single number is for all parts.
        each: Whether a member of every candidate is chosen, instead of one candidate.
    """

    task = "`exp_mech` chooses among candidates"

    score: Score
    candidates: tuple[tuple[Candidate, ...], ...]
    which: tuple[int, ...] = (0,)
    textbook: bool = False
    each: bool | None = None

    def columns(self) -> set[str]:
        return self.score.columns().union(
            *(candidate.columns() for candidates in self.candidates for candidate in candidates)
        )

    def shape(self, schema: Schema) -> tuple[int, ...]:
        return (max(map(len, self.candidates), default=0),) if self.each else ()

    def part_bytes(self, schema: Schema) -> int:
        distinct = {one.identity: one for candidates in self.candidates for one in candidates}.values()
        longest = max((one.member_bytes(schema) for one in distinct), default=0)
        return (NUMBER_BYTES + longest) * math.prod(self.shape(schema))

    def form(self) -> Hashable:
        kinds = frozenset(candidate.kind for candidates in self.candidates for candidate in candidates)
        longest = max(map(len, self.candidates), default=0).bit_length()
        return type(self).__name__, self.score.kind, kinds, longest, self.textbook, bool(self.each)

    def sample(self, numbers: Sequence[int], schema: Schema) -> Choose:
        # Of lists a, b and c, used as 0 1 2 1, the last two parts use c and b, as 0 and 1.
        which = self.which if len(self.which) == 1 else [self.which[number] for number in numbers]
        used = {number: place for place, number in enumerate(dict.fromkeys(which))}
        forms = [{_form(candidate, schema): candidate for candidate in self.candidates[number]} for number in used]
        lists = tuple(tuple(candidates.values()) for candidates in forms)
        return replace(self, candidates=lists, which=tuple(used[number] for number in which))

    def examples(self, schema: Schema) -> set[int]:
        examples, covered = set[int](), set[Hashable]()
        for number, candidates in enumerate(self.candidates):
            forms = {_form(candidate, schema) for candidate in candidates}
            if not forms <= covered:
                covered |= forms
                examples.add(self.which.index(number))
        return examples

    def read(self, values: Sequence[float], chosen: Sequence[Spec], schema: Schema) -> Sequence[object]:
        return [None if number < 0 else chosen[int(number)] for number in values]


def _form(candidate: Candidate, schema: Schema) -> Hashable:
    """Candidates of one form are scored by the same code, whatever their columns."""
    if candidate.as_spec is not None:
        return candidate.kind, bind(candidate.as_spec, schema).form
    return candidate.kind, *sorted(scale(schema.columns[name].codes) for name in candidate.columns())


@dataclass(frozen=True)
class Vote(ChoiceQuery):
    """Which value of a column do most rows of each part have?"""

    task = "ClassCount chooses among the values of its own column"

    score: ClassCount
    textbook: bool = False

    def form(self) -> Hashable:
        return type(self).__name__, self.textbook

    def columns(self) -> set[str]:
        return self.score.columns()

    def facts(self) -> dict[str, str]:
        return {"classes": self.score.target}

    def read(self, values: Sequence[float], chosen: Sequence[Spec], schema: Schema) -> Sequence[object]:
        labels = schema.categorical(self.score.target).labels
        return [labels[int(code)] for code in values]


@dataclass(frozen=True)
class Stop(ChoiceQuery):
    """How many splits above each leaf of grown trees have enough rows?"""

    task = "EnoughRows tests the leaves of trees"

    score: EnoughRows

    def columns(self) -> set[str]:
        return self.score.columns()

    def read(self, values: Sequence[float], chosen: Sequence[Spec], schema: Schema) -> Sequence[object]:
        return [int(splits) for splits in values]


_BY_VERB: dict[str, type[Query]] = {"noisy_count": Count, "noisy_sum": Sum, "noisy_avg": Average}
_BY_SUMMAND: dict[type, type[Query]] = dict.fromkeys(VECTORS.values(), SumDerivatives)
_BY_SCORE: dict[type, type[Query]] = {ClassCount: Vote, EnoughRows: Stop}
QUERIES: tuple[type[Query], ...] = (*_BY_VERB.values(), SumDerivatives, Choose, *_BY_SCORE.values())
"""The one catalogue of queries."""
_READ = {kind: {field.name for field in fields(kind)} for kind in QUERIES}  # type: ignore[arg-type]

MAX_CANDIDATES = 100_000
MAX_NODES = 2**16  # a tree with 2^15 leaves; larger collections are sent as blocks
MAX_SPECS = 2**16

Verb = Literal["noisy_count", "noisy_sum", "noisy_avg", "exp_mech"]

WireSpec = Annotated[Spec, Field(discriminator="kind")]
WireCandidate = Annotated[Candidate, Field(discriminator="kind")]
WireDerivatives = Annotated[AnyVector, Field(discriminator="kind")]
WireScore = Annotated[AnyScore, Field(discriminator="kind")]


class _Frozen(BaseModel):
    # Strict: the number 1 is neither true nor 1.0 nor "1", so that a request means one thing to
    # everybody who reads it.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class WireParts(_Frozen):
    """A collection of parts: each spec once, each split part once.

    Attributes:
        specs: The distinct specs.
        nodes: ``(parent, spec, index)``; parents first; parent 0 is the whole table, i is ``nodes[i
            - 1]``.
        asked: ``(node, spec)`` for each block; spec -1 for the node itself, else all parts of that
            spec below it.
    """

    specs: Annotated[TupleOf[WireSpec], Field(max_length=MAX_SPECS)] = ()
    nodes: Annotated[TupleOf[tuple[int, int, int]], Field(max_length=MAX_NODES)] = ()
    asked: Annotated[TupleOf[tuple[int, int]], Field(max_length=MAX_NODES)] = ((0, -1),)
    shape: Annotated[TupleOf[int], Field(max_length=MAX_AXES)] = (1,)

    @classmethod
    def of(cls, parts: PartSet) -> WireParts:
        """Writes a collection; raises ``QueryError`` if it names too much."""
        ancestors = parts.ancestors
        if max(len(ancestors), len(parts.blocks)) > MAX_NODES:
            raise QueryError(
                f"this names more than {MAX_NODES:,} parts one by one. Split by several columns at once, or "
                f"ask fewer parts."
            )
        splits = [part.partition for part in ancestors.values()] + [block.partition for block in parts.blocks]
        specs = {split.key: split.spec for split in splits if split is not None}
        if len(specs) > MAX_SPECS:
            raise QueryError(
                f"this splits by {len(specs):,} different specs; at most {MAX_SPECS:,} are possible in one request."
            )
        # Women who are nurses: specs sex and job; nodes (0, 0, 0) and (1, 1, 1), the first value of
        # sex below the whole table, the second job below that; asked (2, -1), node 2 itself.
        spec_number = {key: number for number, key in enumerate(specs)}
        node_number = {b"": 0} | {key: number for number, key in enumerate(ancestors, start=1)}
        nodes = [
            (node_number[part.parent.key], spec_number[part.partition.key], part.index)  # type: ignore[union-attr]
            for part in ancestors.values()
        ]
        queried = [
            (node_number[block.part.key], -1 if block.partition is None else spec_number[block.partition.key])
            for block in parts.blocks
        ]
        return cls.model_construct(
            specs=tuple(specs.values()), nodes=tuple(nodes), asked=tuple(queried), shape=parts.shape
        )

    def bind(self, schema: Schema) -> PartSet:
        """The collection on this side's schema; checks everything, disjointness included."""
        partitions = [bind(spec, schema) for spec in self.specs]
        parts = [Part()]
        for parent, spec, index in self.nodes:
            if not (0 <= parent < len(parts) and 0 <= spec < len(partitions) and 0 <= index < partitions[spec].size):
                raise QueryError("the request's parts are malformed.")
            # A parent must be read before its children, so parents cannot form a circle.
            part = Part(parts[parent], partitions[spec], index)
            if part.depth > MAX_DEPTH:
                raise QueryError(f"the parts are nested more than {MAX_DEPTH} deep.")
            parts.append(part)
        if any(not (0 <= node < len(parts) and -1 <= spec < len(partitions)) for node, spec in self.asked):
            raise QueryError("the request's parts are malformed.")
        collection = PartSet(
            [Block(parts[node], None if spec < 0 else partitions[spec]) for node, spec in self.asked], self.shape
        )
        if math.prod(self.shape) != collection.size or min(self.shape, default=0) < 0:
            raise QueryError("the request's shape does not fit its parts.")
        collection.check_disjoint()
        return collection


def _require_name(name: str) -> str:
    if not name.isprintable():
        raise QueryError("the name of an act has characters that do not print.")
    return name


class Act(_Frozen):
    """The act of a query, as the analyst's program names it: a fit, a table, an SQL statement.

    No answer, charge or refusal depends on it.

    Attributes:
        name: One line for people.
        run: The mark that distinguishes acts of one name.
    """

    name: Annotated[str, Field(min_length=1, max_length=MAX_ACT), AfterValidator(_require_name)]
    run: str = Field(pattern="^[0-9a-f]{8}$", examples=["5d0f8c0e"])

    @classmethod
    def begun(cls, name: str) -> Act:
        """Makes a new act of any text: on one line, shortened if it is long."""
        if not isinstance(name, str) or not name.strip():
            raise QueryError(f"is {name!r}", parameter="act", allowed="a text, for example 'report of March'")
        return cls(name=_cut(printable(" ".join(name.split()))), run=new_id()[:8])

    def within(self, outer: Act) -> Act:
        """The same act, named as a part of another."""
        return Act(name=_cut(f"{outer.name}: {self.name}"), run=self.run)


def _cut(name: str) -> str:
    return name if len(name) <= MAX_ACT else f"{name[: MAX_ACT - 1]}…"


class Request(_Frozen):
    """One query to all parts of a collection.

    Attributes:
        id: An id chosen by the analyst; one id is one query and gets one answer.
        epsilon: The cost, a decimal number as text, in the policy's terms.
        column: For ``noisy_sum`` and ``noisy_avg``; for ``noisy_sum`` also a loss whose derivatives are added up.
        by: For ``noisy_sum`` of derivatives: the specs in whose cells they are added up, sharing epsilon.
        within: For ``noisy_avg``: a narrower range to which values are clamped.
        score: For ``exp_mech``.
        candidates: For ``exp_mech``: the distinct lists of candidates.
        which: For ``exp_mech``: the number of the list from which each part chooses; a single number is for all parts.
        textbook: For ``exp_mech``: whether to select as papers do, with a larger expected loss.
        each: For ``exp_mech``: whether to choose a member of every candidate instead of one candidate, sharing epsilon
            evenly.
        reuse: Whether the stored answer to the identical query may be returned, at no cost.
        act: The act to which it belongs.
    """

    id: str = Field(pattern=r"^[!-~]{1,64}$", examples=["5d0f8c0e6f3f4c0c9d1d2b6a0b1c2d3e"])
    verb: Verb
    epsilon: str = Field(max_length=64, examples=["0.1"])
    parts: WireParts = WireParts()
    column: str | WireDerivatives | None = None
    by: Annotated[TupleOf[WireSpec], Field(min_length=1, max_length=MAX_BY)] | None = None
    within: tuple[CutPoint, CutPoint] | None = None
    score: WireScore | None = None
    candidates: Annotated[
        TupleOf[Annotated[TupleOf[WireCandidate], Field(max_length=MAX_CANDIDATES)]],
        Field(max_length=MAX_CANDIDATES),
    ] = ()
    which: Annotated[TupleOf[int], Field(max_length=MAX_PARTS)] = (0,)
    textbook: bool = False
    each: bool | None = None
    reuse: bool | None = None
    act: Act | None = None

    @cached_property
    def query(self) -> Query:
        """The query; raises ``QueryError`` for a field that it does not read, or a missing field."""
        kind = _BY_VERB.get(self.verb) or _BY_SCORE.get(type(self.score), Choose)
        if kind is Sum:
            kind = _BY_SUMMAND.get(type(self.column), Sum)
        reads = _READ[kind]
        for name, nothing in UNSAID.items():
            value = getattr(self, name)
            if name not in reads and value != nothing:
                raise QueryError(f"{kind.task}; it takes no `{name}`.")
            if name in reads & {"column", "score"} and value is None:
                raise QueryError(f"{kind.task}; it needs a `{name}`.")
        return kind(**{name: getattr(self, name) for name in reads})

    def columns(self) -> set[str]:
        """Every column that the request names; a grant's terms are compared with them."""
        return self.query.columns().union(*(spec.columns() for spec in self.parts.specs))

    def answer_bytes(self, schema: Schema) -> int:
        """The largest length of the answer's text."""
        return 20 * NUMBER_BYTES + math.prod(self.parts.shape) * self.query.part_bytes(schema)

    def stored(self, schema: Schema) -> int:
        """The largest number of bytes that a ledger keeps of the charge and the answer."""
        named = len(self.parts.specs) + len(self.parts.nodes) + len(self.parts.asked)
        return QUERY_BYTES + PART_BYTES * named + self.answer_bytes(schema)

    def identity(self, schema: str) -> str:
        """Identifies the query under the schema with a digest.

        The schema is part of it, because a charge for one meaning of "part 1" must not pay for another; the id,
        ``reuse`` and the act are not. Every spelling of one loss gives one digest.
        """
        same = self.model_copy(update={"id": "-", "epsilon": str(Epsilon.of(self.epsilon)), "reuse": None, "act": None})
        return hashlib.sha256((schema + same.to_json()).encode()).hexdigest()[:32]

    def to_json(self) -> str:
        """Canonical text; raises ``QueryError`` for a value that no schema can have."""
        try:
            return self.model_dump_json(exclude_none=True, warnings="none")
        except ValueError:
            raise QueryError(
                "the request holds what cannot be sent: no plain value, or text with half a character "
                "(a lone surrogate)."
            ) from None

    @classmethod
    def received(cls, text: str | bytes) -> Request:
        """Reads a received request, with checked values of plain classes; raises ``QueryError`` if it is no request."""
        require_bounded(text)
        try:
            request = cls.model_validate_json(text)
        except ValidationError as error:
            raise _malformed(error) from None
        _ = request.query
        return request


UNSAID = {name: field.default for name, field in Request.model_fields.items() if name in set().union(*_READ.values())}
"""The fields of a request that queries read, each with its default."""


class Answer(_Frozen):
    """The released numbers, and their description.

    Attributes:
        epsilon: The charge of each part, decimal text; the whole collection costs no more.
        values: Counts, sums or averages in the parts' flat order; or for ``exp_mech`` positions in
            ``chosen``, -1 for none. With ``each`` every part has as many values as the
            longest list has candidates; with ``EnoughRows`` the values are numbers of splits.
        chosen: For ``exp_mech``: the distinct specs that were chosen.
        scale: Scale of the discrete Laplace noise in the answer's units; None without noise.
        grid: Distance of neighbouring possible answers.
        rows: For ``noisy_avg``: the noisy number of rows of each part, by which its scale and grid are to be divided.
    """

    id: str
    verb: Verb
    epsilon: str
    values: tuple[int, ...] | tuple[float, ...]
    chosen: tuple[WireSpec, ...] = ()
    scale: float | None = None
    grid: float | None = None
    rows: tuple[float, ...] | None = None

    @cached_property
    def text(self) -> str:
        """Its JSON, written once: the ledger and the analyst get the same text."""
        return self.model_dump_json(exclude_none=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Answer:
        return cls.model_validate_json(text)


@dataclass(frozen=True)
class Budget:
    """An analyst's budget, exact.

    Attributes:
        epsilon: The limit that was granted.
        spent: The cost of all answers so far.
        remaining: The epsilon that can still be spent; 0 if the cap over all analysts is reached or the grant has
            ended.
        replaced: A sentence for an analyst who also queried earlier versions of the rows; else empty.
        room: The number of bytes that the ledger still keeps of the analyst's requests; None if it is unknown.

    Examples:
        >>> import pinq
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> h.budget
        Budget(epsilon=10, spent=0, remaining=10)
    """

    epsilon: Fraction
    spent: Fraction
    remaining: Fraction
    replaced: str = ""
    room: int | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        epsilon, spent, remaining = (
            str(Epsilon(int(loss * NANO))) for loss in (self.epsilon, self.spent, self.remaining)
        )
        replaced = self.replaced and f". {self.replaced}"
        return f"Budget(epsilon={epsilon}, spent={spent}, remaining={remaining}){replaced}"

    def _repr_html_(self) -> str:
        share = float(self.spent / self.epsilon) if self.epsilon else 1.0
        filled = f"<div style='width:{100 * share:.1f}%;background:#4878a8;height:.9em'></div>"
        bar = f"<div style='width:20em;border:1px solid #888'>{filled}</div>"
        return f"<p>{escape(repr(self))}</p>{bar}"


@dataclass(frozen=True)
class Preview(Shown):
    """The cost of a request now, and the expected error of its answer.

    It is free.

    Attributes:
        cost: The amount by which ``spent`` would grow.
        remaining: The budget after the request; negative if the request would be refused.
        error: The expected accuracy, for people.
        scale: Scale of the noise in the answer's units; None if there are several.
        stored: The largest number of bytes that the ledger keeps of the charge and the answer.

    Examples:
        >>> import pinq
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> h.preview("noisy_count", epsilon=0.1)
        Preview: costs epsilon 0.1 (9.9 would remain); each count is within ±30 of the truth in
        95 % of cases
    """

    cost: Fraction
    remaining: Fraction
    error: str
    scale: float | None = None
    stored: int = 0

    def __repr__(self) -> str:
        verdict = (
            f"{Epsilon(int(self.remaining * NANO))} would remain"
            if self.remaining >= 0
            else f"refused: {Epsilon(int(-self.remaining * NANO))} more than remains"
        )
        return f"Preview: costs epsilon {Epsilon(int(self.cost * NANO))} ({verdict}); {self.error}"


class Asked(_Frozen):
    """One charge or refusal, as its analyst may see it.

    Attributes:
        at: The time, UTC.
        epsilon: The epsilon of each part; None for a refusal.
        spent: The analyst's total afterwards.
        outcome: ``answered``, ``charged, not answered`` or ``refused (...)``.
        classes: For ``ClassCount``, the column whose values the answer's numbers stand for.
        act: The act to which it belongs.
        version: The version of the queried rows; None for the present one, or for none.
    """

    model_config = ConfigDict(extra="ignore")  # a newer server may say more

    at: str
    about: str
    epsilon: str | None = None
    spent: str
    outcome: str
    answer: Answer | None = None
    classes: str | None = None
    act: Act | None = None
    version: int | None = None


def new_id() -> str:
    """A fresh request id."""
    return uuid.uuid4().hex


def candidate(item: object) -> Candidate:
    """Reads a candidate: a spec, a family, or a tuple of specs for their joint parts."""
    if isinstance(item, tuple) and item:
        return item[0] if len(item) == 1 else Cross(item)
    if type(item) not in get_args(Candidate):
        names = ", ".join(kind.__name__ for kind in get_args(Candidate))
        raise QueryError(f"{brief(item)} is not a candidate; use {names} or a tuple of specs.")
    return cast(Candidate, item)


def candidate_lists(candidates: object, parts: int) -> tuple[tuple[tuple[Candidate, ...], ...], tuple[int, ...]]:
    """Reads ``candidates`` as one list for all parts or a list for each.

    Returns:
        The distinct lists, and the number of each part's list; no lists if all are empty.
    """
    if isinstance(candidates, (str, bytes)) or not isinstance(candidates, Iterable):
        raise QueryError(
            "must be a list of specs and families, or one such list for each part.", parameter="candidates"
        )
    items = list(candidates)
    has_lists = bool(items) and all(isinstance(item, list) for item in items)
    if has_lists and len(items) != parts:
        raise QueryError(f"{len(items)} lists of candidates were given for {parts} parts.")
    lists = [tuple(map(candidate, one_list)) for one_list in (items if has_lists else [items])]
    if not any(lists):
        return (), (0,)
    # Lists a, b, a of three parts are kept as a and b, used as 0, 1, 0.
    numbers: dict[tuple[str, ...], int] = {}
    which = [numbers.setdefault(tuple(one.identity for one in one_list), len(numbers)) for one_list in lists]
    return tuple(dict(zip(which, lists, strict=True)).values()), tuple(which)


def _malformed(error: ValidationError) -> QueryError:
    """Describes the faults of a request, at the first fields; quotes the request alone."""
    problems = error.errors(include_url=False, include_input=False)
    if problems[0]["loc"] == ("epsilon",):
        return QueryError(
            f'must be decimal text such as "0.1", greater than 0 and at most {MAX_EPSILON}.', parameter="epsilon"
        )
    for problem in problems:
        cause = problem.get("ctx", {}).get("error")
        if isinstance(cause, QueryError) and len(str(cause)) <= 500:  # the error of a spec or a score
            return cause
    faults = [(".".join(map(str, problem["loc"])), said_of(problem)) for problem in problems[:3]]
    text = "; ".join(f"{field}: {fault}" if field else fault for field, fault in faults)
    return QueryError(f"the request is malformed: {text[:500]}.")


class Certificate(_Frozen):
    """The ids of a model's answers in a ledger. It claims nothing by itself: an audit computes the model again.

    Privacy:
        Claim: a certificate is free. Why: it has ids that the analyst drew, and public parts.

    Attributes:
        part: The part of the table that the model was fitted on.
        requests: The ids under which the answers were charged, in their order.
    """

    format: Literal["pinq-certificate"] = "pinq-certificate"
    version: Literal[2] = 2
    part: WireParts
    requests: tuple[str, ...]

    def to_json(self) -> str:
        return self.model_dump_json(indent=1, exclude_none=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Certificate:
        """Reads a certificate, or raises ``QueryError``."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"])) or "the text"
            raise QueryError(f"this is not a certificate: {where} is not as it should be.") from None
