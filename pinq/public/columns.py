# SPDX-License-Identifier: Apache-2.0
"""Columns with their declared domains: finite lists of *codes* 0, 1, 2, ...

A category's code is its position in ``values``. A number's code is its cell in a public grid of width ``step`` after
clamping to ``[lower, upper]``. In a nullable column a missing value has one more code, the last. Encoding looks at one
value at a time, so it is a row-wise map: stability 1. A derived column is made of others, by a formula or a table
(``DerivedFrom``). The formula is SQL over one row, which ``pinq/engine/derived.py`` checks and runs.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import pickle
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from pinq.errors import QueryError
from pinq.public.checks import Shown, brief, closest, is_number, many, require_text, text_of, text_of_any

# Bounds and steps lie within 1e-100 and 1e100 in size, so that a noisy answer is a double whatever
# the noise: noise is at most 2^64 units, and a scale at most 1e35 of them.
MAX_DIGITS = 100
_NUMBER = re.compile(
    r"[ \t-\r]*(?:[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?inf(?:inity)?)[ \t-\r]*", re.IGNORECASE
)
"""The texts that are numbers, with a point before decimals; the engine's SQL reads the same ones."""


def number_of_text(text: str) -> float:
    """The number that a text spells; NaN for other texts, such as 1_000 or a word."""
    return float(text) if _NUMBER.fullmatch(text) else math.nan


def _canonical(number: Decimal) -> Decimal:
    """One form for each number: 1, 1.0 and 1E0 are one declaration, with one digest."""
    if not number:
        return Decimal(0)
    if not -MAX_DIGITS <= number.adjusted() < MAX_DIGITS:
        raise ValueError(
            f"the number {number:.3g} is not between 1e-{MAX_DIGITS} and 1e{MAX_DIGITS} in size; declare the "
            f"column in another unit"
        )
    # 1E+2 and 100.0 become 100, and 1.50 becomes 1.5.
    digits = format(number, "f")
    return Decimal(digits.rstrip("0").rstrip(".") if "." in digits else digits)


FiniteDecimal = Annotated[Decimal, Field(allow_inf_nan=False), AfterValidator(_canonical)]


def of_form(pattern: str, words: str) -> AfterValidator:
    """The check that a text matches a pattern; errors describe its form in ``words``."""

    def matching(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise PydanticCustomError("form", words)
        return text

    return AfterValidator(matching)


_SIMPLE = {
    "extra_forbidden": "unknown key",
    "unexpected_keyword_argument": "unknown key",
    "missing": "it is missing",
    "invalid_key": "the name must be text; put it in quotes",
}
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "decimal": "a number",
    "finite": "a finite number",
    "string": "text",
    "path": "a path",
    "tuple": "a list, such as [a, b]",
    "dict": "keys with values",
    "model": "keys with values",
}


def said_of(problem: ErrorDetails) -> str:
    """Describes the fault of a field, without the words of the pydantic model."""
    kind, value, facts = problem["type"], problem.get("input", []), problem.get("ctx", {})
    if kind in _SIMPLE or problem["loc"][-1:] == ("[key]",):
        return _SIMPLE.get(kind, _SIMPLE["invalid_key"])
    match kind:
        case "json_invalid":
            return f"it is no JSON: {facts['error']}"
        case "union_tag_invalid" | "union_tag_not_found":
            key, tags = facts["discriminator"].strip("'"), facts.get("expected_tags", "")
            allowed = "categorical, numeric, date or datetime" if key == "type" else f"one of {tags}"
            fault = f"is {brief(facts['tag'])}" if "tag" in facts else "is missing"
            return f"`{key}` {fault}; it must be {allowed}" if tags or key == "type" else f"`{key}` {fault}"
        case "too_short":
            few = f"it has {facts['actual_length']} entries; at least {facts['min_length']} are needed"
            return few if facts["actual_length"] else "it is empty"
        case "too_long":
            return f"it has {facts['actual_length']:,} entries; at most {facts['max_length']:,} are possible"
        case "value_error":
            return str(problem["msg"]).removeprefix("Value error, ")
    plain = problem["msg"].removeprefix("Input should be ").removeprefix("String should ")
    shown = brief(value, 41)
    named = "" if isinstance(value, (dict, list)) or len(shown) > 40 else f"it is {shown}; "
    if kind.startswith("string_") and kind != "string_type":
        return f"{named}it must {plain}"
    return f"{named}it must be {_KINDS.get(kind.split('_')[0], plain)}"


def problems(error: ValidationError) -> str:
    """Names each wrong field and its fault, a line each."""
    fields = ((".".join(map(str, problem["loc"])), said_of(problem)) for problem in error.errors(include_url=False))
    return "\n".join(dict.fromkeys(f"  {field}: {text}" if field else f"  {text}" for field, text in fields))


class Declared(Shown, BaseModel):
    """A declaration: frozen, and without unknown keys.

    Facts that follow from its fields are a ``functools.cached_property``: no dump, comparison, copy or pickle
    of a declaration depends on what was computed before.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    if not TYPE_CHECKING:  # a type checker reads the fields

        def __init__(self, *unnamed: Any, **fields: Any) -> None:
            if unnamed:
                needed = [f"{name}=..." for name, field in type(self).model_fields.items() if field.is_required()]
                raise QueryError(f"{type(self).__name__} takes each value by its name: ({', '.join(needed)}).")
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise QueryError(f"this cannot be a {type(self).__name__}:\n{problems(error)}") from None

        # For direct calls only: inside another model, pydantic reports a field's path in its error.
        __init__.__pydantic_base_init__ = True

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        # `help` begins with the signature: names and defaults, without how pydantic checks them.
        plain = [one.replace(annotation=Parameter.empty) for one in signature(cls).parameters.values()]
        cls.__signature__ = Signature(plain)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        fields = type(self).model_fields
        for name, value in super().__repr_args__():
            if name not in fields or value != fields[name].default:
                yield name, value

    def __str__(self) -> str:
        return repr(self)

    def __getstate__(self) -> dict[Any, Any]:
        fields = {name: value for name, value in self.__dict__.items() if name in type(self).model_fields}
        return super().__getstate__() | {"__dict__": fields}

    def __copy__(self) -> Self:
        return self.model_copy()

    def __deepcopy__(self, memo: object = None) -> Self:
        return pickle.loads(pickle.dumps(self))

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        fields = {info.alias or name: getattr(self, name) for name, info in type(self).model_fields.items()}
        named = {
            (type(self).model_fields[name].alias if name in type(self).model_fields else None) or name: value
            for name, value in (update or {}).items()
        }
        return type(self).model_validate(fields | named)


class Lookup(Declared):
    """A public table in which each value is looked up: postcodes to regions."""

    file: str = Field(min_length=1, description="a CSV or Parquet file, relative to the policy")
    key: str = Field(min_length=1, description="its column of values to find")
    value: str = Field(min_length=1, description="its column of values to take")
    digest: str | None = Field(default=None, description="of its pairs; filled in when the policy is read")


def _listed(names: object) -> object:
    return (names,) if isinstance(names, str) else names


def _listed_codes(codes: object) -> object:
    """Reads one code for missing, or a list; a number with decimals and a date are kept as texts."""
    items = codes if isinstance(codes, (list, tuple)) else (codes,)
    return [str(code) if isinstance(code, (float, Decimal, date)) else code for code in items]


def unsaid(value: object) -> bool:
    """Whether a key has no content. Dumps omit such keys, because digests of earlier releases lack them."""
    return value is None or value == ()


class DerivedFrom(Declared):
    """The part of a column's declaration about its source."""

    model_config = ConfigDict(serialize_by_alias=True)

    sources: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field(
        default=(),
        alias="from",
        exclude_if=unsaid,
        description="the source's columns that it is made of; by default the one of its name",
    )
    formula: str | None = Field(
        default=None,
        exclude_if=unsaid,
        max_length=1000,  # the cost of one row's value is bounded
        description="SQL over one row of these columns; by default their one value",
    )
    lookup: Lookup | None = Field(
        default=None, exclude_if=unsaid, description="a public table in which the value is looked up"
    )

    @field_validator("sources")
    @classmethod
    def _named_once(cls, sources: tuple[str, ...]) -> tuple[str, ...]:
        if len({name.casefold() for name in sources}) < len(sources) or "" in sources:
            raise ValueError("a column of `from` stands twice, or has no name")
        return sources

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.sources and (self.formula is not None or self.lookup is not None):
            raise ValueError("`from` is missing; it names the source's columns that the formula or lookup reads")
        if len(self.sources) > 1 and self.formula is None:
            raise ValueError("`formula` is missing; it says how one value is made of several columns")
        return self

    @property
    def is_derived(self) -> bool:
        return bool(self.sources)

    @property
    def as_given(self) -> Self:
        """The same column without its derivation, as if the source had it."""
        return self.model_copy(update={"sources": (), "formula": None, "lookup": None})

    @property
    def made_of(self) -> str:
        return f", from {', '.join(self.sources)}" if self.sources else ""


MAX_CELLS = 2**24
MAX_VALUES = 2**16 - 1
REAL_CELLS = 4096

Value = str | int | bool
Number = int | float | str | Decimal
_TYPES = {str: "texts", int: "whole numbers", bool: "truth values"}
CutPoint = float | str
"""Where ``Cuts`` cuts: a number, or a date as text."""


class _Column(DerivedFrom):
    nullable: bool = Field(default=False, description="whether a missing value is a value of its own")
    unreviewed: tuple[str, ...] = Field(
        default=(), description="fields that were read off the data and wait for the provider's word"
    )
    missing: Annotated[tuple[Value, ...], BeforeValidator(_listed_codes), PlainSerializer(lambda codes: codes)] = Field(
        default=(),
        exclude_if=unsaid,
        max_length=100,
        description="codes and words of the source that stand for a missing value, such as [-9, 99, unknown]",
    )

    @cached_property
    def codes(self) -> int:
        """The number of codes, including that for a missing value."""
        return self.cells + int(self.nullable)

    @property
    def null_code(self) -> int | None:
        """The code of a missing value; None if none is declared."""
        return self.cells if self.nullable else None

    @property
    @abstractmethod
    def cells(self) -> int:
        """The number of codes that stand for values."""

    @abstractmethod
    def labels_up_to(self, count: int) -> tuple[Value | float | None, ...]:
        """The label of each code; nothing if there are more than ``count``."""

    @abstractmethod
    def describe(self) -> str:
        """Describes the domain in one line."""

    def require_one_type(self, name: str) -> None:
        """Raises ``ValueError`` if a list mixes types, because a value was then read as another type."""

    @property
    def _missing(self) -> str:
        return (", may be missing" if self.nullable else "") + self.made_of

    @cached_property
    def missing_texts(self) -> frozenset[str]:
        """The texts that stand for a missing value, as encoding compares them."""
        return frozenset(map(text_of, self.missing))

    @cached_property
    def digest(self) -> str:
        """Identifies the domain: two columns with equal digests give every value the same code."""
        text = self.model_dump_json(exclude={"unreviewed": True, "cuts": True, "lookup": {"file"}})
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Categorical(_Column):
    """A column with a declared list of values.

    Examples:
        >>> import pinq
        >>> print(pinq.Categorical(values=("F", "M"), nullable=True).describe())
        2 values: F, M, may be missing
    """

    type: Literal["categorical"] = "categorical"
    # Values are dumped unchanged, because pydantic may read True as 1 when it chooses a type again.
    values: Annotated[tuple[Value, ...], PlainSerializer(lambda values: values)] = Field(
        min_length=1, max_length=MAX_VALUES, description="every value that the column can have"
    )
    other: Annotated[Value | None, PlainSerializer(lambda value: value)] = Field(
        default=None, exclude_if=unsaid, description="the value that undeclared ones count as; one of `values`"
    )

    @field_validator("values", mode="before")
    @classmethod
    def _plain(cls, values: object) -> object:
        if isinstance(values, (list, tuple)):
            for value in values:
                if not isinstance(value, (str, int, bool)):
                    raise ValueError(f"{value!r} is neither text, a whole number nor true/false; put it in quotes")
        return values

    @model_validator(mode="after")
    def _distinct(self) -> Categorical:
        texts = [text_of(value) for value in self.values]
        if len(set(texts)) != len(texts):
            twice = next(text for text in texts if texts.count(text) > 1)
            raise ValueError(f"the value {twice!r} is listed twice")
        for text in texts:
            require_text(text, "a value")
        if both := next((text for text in texts if text in self.missing_texts), None):
            raise ValueError(f"the value {both!r} is listed under `values` and under `missing`")
        if self.other is not None and text_of(self.other) not in texts:
            raise ValueError(f"`other` is {self.other!r}; it must be one of the values")
        return self

    @property
    def other_code(self) -> int:
        """The code of undeclared values; -1 for none."""
        return -1 if self.other is None else self.texts[text_of(self.other)]

    @cached_property
    def cells(self) -> int:
        return len(self.values)

    @cached_property
    def texts(self) -> dict[str, int]:
        """Each value's text form and its code."""
        return {text_of(value): code for code, value in enumerate(self.values)}

    @cached_property
    def numbers(self) -> dict[float, int]:
        """Each number that exactly one value spells as a text, and that value's code: 1 for the text ``1.0``."""
        spelled = [(number_of_text(text), code) for text, code in self.texts.items()]
        many = Counter(number for number, _ in spelled)
        return {number: code for number, code in spelled if math.isfinite(number) and many[number] == 1}

    def find(self, value: object) -> int | None:
        """The code of a value, or of the text that spells a number; None if it is not declared."""
        for text in (text_of(value), text_of_any(value)):
            if text in self.texts:
                return self.texts[text]
        return self.numbers.get(float(value)) if is_number(value, -(2.0**53), 2.0**53) else None

    @cached_property
    def labels(self) -> tuple[Value | None, ...]:
        return (*self.values, None) if self.nullable else self.values

    @cached_property
    def label_bytes(self) -> int:
        """The largest length of JSON that lists all labels in groups."""
        return sum(len(json.dumps(str(label))) + 8 for label in self.labels)

    def labels_up_to(self, count: int) -> tuple[Value | float | None, ...]:
        return self.labels

    def describe(self) -> str:
        first = ", ".join(str(value) for value in self.values[:4])
        more = ", ..." if len(self.values) > 4 else ""
        return f"{many(len(self.values), 'value')}: {first}{more}{self._missing}"

    def require_one_type(self, name: str) -> None:
        first = {type(value): value for value in reversed(self.values)}
        if len(first) > 1:
            examples = " and ".join(
                f"{noun} ({json.dumps(first[kind], ensure_ascii=False)})"
                for kind, noun in _TYPES.items()
                if kind in first
            )
            raise ValueError(
                f"the values of {name!r} mix {examples}; put each of them in quotes, written as in the source"
            )

    def code_of(self, value: Value | None, name: str) -> int:
        """The code of one value; raises ``QueryError`` if it is not declared."""
        if value is None and self.nullable:
            return self.cells
        code = None if value is None else self.find(value)
        if code is None:
            labels = ", ".join(repr(v) for v in self.labels[:12]) + (", ..." if self.codes > 12 else "")
            raise QueryError(
                f"`{name}` has no value {brief(value)}{closest(value, [text_of(v) for v in self.values])}; "
                f"it has {labels}."
            )
        return code

    def codes_of_values(self, values: Sequence[Value | None], name: str) -> list[int]:
        """The code of each value; raises ``QueryError`` if one is not declared."""
        texts = self.texts
        codes = [None if value is None else texts.get(text_of(value)) for value in values]
        return [self.code_of(value, name) if code is None else code for value, code in zip(values, codes, strict=True)]

    def encode(self, values: Any) -> np.ndarray:
        """Codes of a column of values, shape (n,); -1 for an undeclared value."""
        import pandas as pd

        # b, a, none, b: numbers 0, 1, -1 and 0 of the distinct b and a. Their codes with that of a
        # missing value behind them, 1, 0 and 2, give 1, 0, 2 and 1.
        numbers, distinct = pd.factorize(pd.Series(values).astype(object), use_na_sentinel=True)
        missing = self.cells if self.nullable else -1
        table = []
        for value in distinct:
            code = missing if text_of_any(value) in self.missing_texts else self.find(value)
            table.append(self.other_code if code is None else code)
        # A missing value has the number -1: the last code.
        return np.array([*table, missing], dtype=np.int64)[numbers]


class Numeric(_Column):
    """A column of numbers on a public grid.

    Examples:
        >>> import pinq
        >>> print(pinq.Numeric(lower=0, upper=100, integer=True).describe())
        whole numbers 0 to 100 in 101 cells
    """

    type: Literal["numeric"] = "numeric"
    lower: FiniteDecimal = Field(description="smaller values count as this one")
    upper: FiniteDecimal = Field(description="larger values count as this one")
    step: Annotated[FiniteDecimal, Field(gt=0)] | None = Field(
        default=None, description="width of a grid cell; 1 for whole numbers (more on a wide range), else range / 4096"
    )
    integer: bool = Field(default=False, description="whether the values are whole numbers")
    cuts: tuple[FiniteDecimal, ...] = Field(
        default=(), description="cut points that trees use unless the caller names others"
    )

    unit: ClassVar[str] = ""
    """The unit of a number, as the end of a sentence."""
    microseconds: ClassVar[int | None] = None
    """The microseconds of a unit, for dates."""

    if TYPE_CHECKING:  # any number, or its text, may be passed

        def __init__(
            self, *, lower: Number, upper: Number, step: Number | None = None, cuts: Iterable[Number] = (), **more: Any
        ) -> None: ...

    @model_validator(mode="after")
    def _grid(self) -> Numeric:
        if self.lower > self.upper or (self.lower == self.upper and not self.integer):
            raise ValueError(f"lower ({self._bound(self.lower)}) must be below upper ({self._bound(self.upper)})")
        if self.integer and any(
            number != number.to_integral_value() for number in (self.lower, self.upper, self.step or Decimal(1))
        ):
            raise ValueError("lower, upper and step of a column of whole numbers must be whole")
        if self.cells > MAX_CELLS:
            raise ValueError(
                f"the grid has {self.cells:,} cells, at most {MAX_CELLS:,} are possible; choose a larger step"
            )
        # Doubles near 10^12 are .0001 apart: a step of .001 could not tell their cells.
        if self.tolerance > 1e-3:
            raise ValueError(
                f"a step of {float(self.width):g} is too fine for numbers as large as "
                f"{max(abs(self.lower), abs(self.upper))}; choose a larger step"
            )
        if any(before >= after for before, after in itertools.pairwise(self.cuts)):
            raise ValueError("cuts must increase")
        for cut in self.cuts:
            if not self.lower < cut <= self.upper:
                between = f"above lower ({self._bound(self.lower)}) and at most upper ({self._bound(self.upper)})"
                raise ValueError(f"the cut {self._bound(cut)} must be {between}")
        return self

    @cached_property
    def low(self) -> Fraction:
        return Fraction(self.lower)

    @cached_property
    def high(self) -> Fraction:
        return Fraction(self.upper)

    @cached_property
    def width(self) -> Fraction:
        """The width of a grid cell, exact; a default gives at most as many cells as a grid can have."""
        if self.step is not None:
            return Fraction(self.step)
        span = self.high - self.low
        if not self.integer:
            return span / REAL_CELLS
        return Fraction(round_up(Decimal(math.ceil((span + 1) / MAX_CELLS))))

    @cached_property
    def cells(self) -> int:
        # Whole numbers from 0 to 9 have ten cells of width 1; numbers from 0 to 9 have nine, the
        # last of which has 9 too.
        span = (self.high - self.low) / self.width
        return math.floor(span) + 1 if self.integer else max(1, math.ceil(span))

    @cached_property
    def tolerance(self) -> float:
        """The part of a cell by which a number may lie below an edge and still count as on it."""
        # Decimal grids are not binary: 0.3 / 0.1 is a hair under 3. A billionth of a cell (or the distance
        # of doubles, if that is more) puts grid points into their own cell.
        return max(1e-9, float(max(abs(self.lower), abs(self.upper))) * 2.0**-50 / float(self.width))

    @cached_property
    def origin(self) -> Fraction:
        """The number of cell 0: its only whole number, or its middle."""
        return self.low + (self.width - 1 if self.integer else self.width) / 2

    @property
    def half_cell(self) -> float:
        """The largest distance of a value within the bounds from the number of its cell."""
        return float((self.width - self.integer) / 2)

    def labels_up_to(self, count: int) -> tuple[Value | float | None, ...]:
        labels = tuple(self._label(code) for code in range(self.cells)) if self.cells <= count else ()
        return (*labels, None) if self.nullable else labels

    def _label(self, cell: int) -> Value | float:
        number = self.number(cell)
        return int(number) if number == int(number) else number

    def describe(self) -> str:
        kind = "whole numbers" if self.integer else "numbers"
        return f"{kind} {self.lower} to {self.upper} in {many(self.cells, 'cell')}{self._missing}"

    def number(self, code: float | Fraction) -> float:
        """The number of a (possibly fractional) cell."""
        return float(self.origin + self.width * Fraction(code))

    def edge(self, cell: int) -> float:
        """The left edge of a cell: values below it have smaller codes."""
        return float(self.low + self.width * cell)

    def text(self, number: float | Fraction | Decimal) -> str:
        """A number as text for people."""
        return f"{float(number):.10g}"

    def rounded(self, number: float, digits: int) -> str:
        """A number as text with so many digits after the point."""
        return f"{number:,.{digits}f}"

    def point(self, number: float | Fraction | Decimal) -> CutPoint:
        """A number as ``Cuts`` writes it."""
        return float(number)

    @property
    def declared_cuts(self) -> tuple[CutPoint, ...]:
        """The declared cut points, as ``Cuts`` writes them."""
        return tuple(map(self.point, self.cuts))

    def cut_before(self, cell: int) -> CutPoint:
        """The cut at a cell's left edge, as ``Cuts`` writes it."""
        return self.point(self.low + self.width * cell)

    def shown(self, numbers: np.ndarray) -> np.ndarray:
        return numbers

    def require_addable(self, name: str) -> None:
        """Raises ``QueryError`` if a sum of the column has no meaning."""

    def threshold(self, cut: CutPoint | Decimal, name: str) -> int:
        """The first cell at or above a cut point: ``x < cut`` is ``code < threshold``.

        Raises:
            QueryError: Not a number, or no value would lie on one of the sides.
        """
        point = self.number_of(cut, name)
        if not self.low < point <= self.high:
            raise QueryError(
                f"the cut {brief(cut)} of `{name}` is out of bounds; it must be above {self._bound(self.lower)} and at "
                f"most {self._bound(self.upper)}."
            )
        if self.cells < 2:
            raise QueryError(f"`{name}` has a single grid cell, so it cannot be cut.")
        # On a grid of reals the topmost edge is `upper` itself, whose cell also holds the numbers
        # just below it. With cells of .1 from 0 on, a cut at .25 is one at .3: the cells 0 to 2 are
        # below it.
        return min(max(1, math.ceil((point - self.low) / self.width - Fraction(self.tolerance))), self.cells - 1)

    def cells_within(self, within: tuple[CutPoint, CutPoint] | None, name: str) -> tuple[int, int]:
        """The first and the last cell of a range, or of the column for None.

        Raises:
            QueryError: Not two numbers within the bounds, in different cells.
        """
        if within is None:
            return 0, self.cells - 1
        ends = [self.number_of(end, name) for end in within]
        # With cells of .1 from 0 on, the range from .25 to .5 is the cells 2 to 5.
        cells = [
            min(math.floor((end - self.low) / self.width + Fraction(self.tolerance)), self.cells - 1) for end in ends
        ]
        if not self.low <= ends[0] or not ends[1] <= self.high or not cells[0] < cells[1]:
            raise QueryError(
                f"{list(within)} is no range of `{name}`: two values from {self._bound(self.lower)} to "
                f"{self._bound(self.upper)} in different grid cells are needed, the smaller one first.",
            )
        return cells[0], cells[1]

    @property
    def bounds(self) -> tuple[str, str]:
        return self._bound(self.lower), self._bound(self.upper)

    def _bound(self, number: Decimal) -> str:
        return str(number)

    def number_of(self, cut: object, name: str) -> Fraction:
        """The number of a cut point, exact; raises ``QueryError`` for another value."""
        try:
            plain = cut if isinstance(cut, (Decimal, int)) else Decimal(repr(_number_of(cut)))
            return Fraction(*plain.as_integer_ratio())
        except (ValueError, TypeError, OverflowError, ArithmeticError):
            raise QueryError(f"the cut {brief(cut)} of `{name}` is not a number.") from None

    def encode(self, values: Any) -> np.ndarray:
        """Codes of a column of values, shape (n,); -1 for missing values if the column is not nullable."""
        return self.codes_of(self.numbers_of(values))

    def numbers_of(self, values: Any) -> np.ndarray:
        """The number of each value, float64, shape (n,); NaN if it is missing, declared missing, or no number."""
        numbers = self._spelled(values)
        return np.where(np.isin(numbers, self.missing_numbers), np.nan, numbers) if self.missing else numbers

    @cached_property
    def missing_numbers(self) -> tuple[float, ...]:
        """The numbers that stand for a missing value."""
        numbers = self._spelled(sorted(self.missing_texts))
        return tuple(numbers[~np.isnan(numbers)].tolist())

    def _spelled(self, values: Any) -> np.ndarray:
        import pandas as pd

        series = pd.Series(values)
        if not pd.api.types.is_numeric_dtype(series.dtype):
            places, distinct = pd.factorize(series.astype(object), use_na_sentinel=True)
            # A missing value has the place -1: the last number.
            return np.array([*map(_number_of, distinct), np.nan])[places]
        return series.to_numpy(dtype=np.float64, na_value=np.nan)

    def codes_of(self, numbers: np.ndarray) -> np.ndarray:
        """Codes of numbers, shape (n,); -1 for NaN if the column is not nullable."""
        with np.errstate(over="ignore", invalid="ignore"):
            # Of a million numbers, new memory for each step would take most of the time.
            cell = numbers - float(self.lower)
            cell /= float(self.width)
            cell += self.tolerance
        # Both leave out nan. The whole part of a number from 0 on is its floor.
        np.fmin(np.fmax(cell, 0, out=cell), self.cells - 1, out=cell)
        codes = cell.astype(np.int64)
        codes[np.isnan(numbers)] = self.cells if self.nullable else -1
        return codes


def _number_of(value: object) -> float:
    """The number that an object is or spells; NaN for none."""
    try:
        return number_of_text(value) if isinstance(value, str) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


def round_up(number: Decimal) -> Decimal:
    """The smallest of 1, 2 and 5 times a power of ten that is not below ``number``."""
    power = Decimal(1).scaleb(number.adjusted())
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= number)
