# SPDX-License-Identifier: Apache-2.0
"""``Dialect`` is the form of delimited text or of a workbook's sheet: declared, never guessed from the rows."""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from pathlib import PurePath
from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator, model_validator

from pinq.public.columns import Declared, of_form

# Encodings that extend ASCII, so that the byte of a newline is always a newline.
Encoding = Literal[
    "utf-8",
    "ascii",
    "latin-1",
    "iso-8859-2",
    "iso-8859-5",
    "iso-8859-7",
    "iso-8859-9",
    "iso-8859-15",
    "windows-1250",
    "windows-1251",
    "windows-1252",
    "windows-1253",
    "windows-1254",
    "windows-1257",
    "koi8-r",
    "mac-roman",
]
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_JSON_LINES = (".jsonl", ".ndjson")
_STATISTICAL = (".sav", ".zsav", ".sas7bdat", ".xpt", ".dta")
_WORKBOOKS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
_BETWEEN = "(?:[-/ ]|[.,] ?)?"
_DAY_MONTH = rf"%d{_BETWEEN}%[mb]|%[mb]{_BETWEEN}%d"
_FORM = re.compile(
    rf"(({_DAY_MONTH}){_BETWEEN}%[Yy]|%[Yy]{_BETWEEN}%[mb]{_BETWEEN}%d[.]?)( %I:%M(:%S)? ?%p)?", flags=re.ASCII
)


_ONE_SIGN = of_form(r"[\t !#-&(-/:-@\[-`{-~]", "a tab, or one sign of ASCII that is no letter, digit or quote")


class Dialect(Declared):
    """The format of fields, numbers and characters, and the proportion of lines that may be unreadable."""

    delimiter: Annotated[str, _ONE_SIGN] | None = Field(
        default=None,
        description="between fields: a tab, or one sign of ASCII that is no letter, digit or quote; "
        "by default a comma, for .tsv a tab",
    )
    quote: Literal['"', "'", ""] = Field(
        default='"', description="around a field that holds a delimiter, doubled inside it; empty for none"
    )
    decimal: Literal[".", ","] = Field(default=".", description="before the decimals of a number")
    thousands: Literal[".", ",", "'", "’", " ", "\u00a0", "\u202f"] | None = Field(
        default=None, description="between groups of three digits; none by default"
    )
    dates: tuple[str, ...] = Field(
        default=(),
        max_length=8,
        description="forms of dates beside 2024-11-16, of %d, %m, %b (Nov) and %Y, such as %d.%m.%Y; a time may "
        "follow, of the 12-hour clock where the form says so: %m/%d/%Y %I:%M %p",
    )
    century: int | None = Field(
        default=None,
        ge=1000,
        le=9900,
        description="the earliest year that a year of two digits (%y) means, such as 1930",
    )
    encoding: Encoding = Field(default="utf-8", description="how characters are written as bytes")
    sheet: str | None = Field(
        default=None, min_length=1, max_length=31, description="the sheet that is read, if a workbook has several"
    )
    skip: int = Field(default=0, ge=0, le=1000, description="lines, or rows of a sheet, above the header")
    header: Literal[True] | Annotated[tuple[str, ...], Field(min_length=1, max_length=10_000)] = Field(
        default=True,
        description="true: the first line names the columns; or their names, where the first line is a row",
    )
    max_unreadable: float = Field(
        default=0.01,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="share of lines that may be unreadable; beyond it the dataset does not open",
    )

    @field_validator("encoding", mode="before")
    @classmethod
    def _listed_name(cls, encoding: object) -> object:
        """Converts Python's other names of an encoding, such as cp1252, to the listed one."""
        with suppress(LookupError, TypeError):
            codec = codecs.lookup(encoding).name  # type: ignore[arg-type]
            return next((name for name in get_args(Encoding) if codecs.lookup(name).name == codec), encoding)
        return encoding

    @field_validator("dates", mode="before")
    @classmethod
    def _forms(cls, dates: object) -> object:
        """Reads one form, or a list. Two forms that differ in the order of day and month are refused."""
        forms = (dates,) if isinstance(dates, str) else dates
        if isinstance(forms, (list, tuple)):
            for form in forms:
                if not (isinstance(form, str) and _FORM.fullmatch(form)):
                    raise ValueError(
                        f"{str(form)[:40]!r} is no form of a date; write it with %d, %m or %b, and %Y, such as "
                        "%d.%m.%Y or %m/%d/%Y (a time may follow each, of the 12-hour clock by %I:%M %p)"
                    )
            plain = [form.replace("%m", "%d").replace("%y", "%Y") for form in forms]
            if len(set(plain)) < len(plain):
                raise ValueError("two of the forms read one text as two dates; keep one of them")
        return forms

    @field_validator("header", mode="before")
    @classmethod
    def _names(cls, header: object) -> object:
        if header is False:
            raise ValueError("where the first line is a row, name the columns, such as [name, age]")
        if isinstance(header, (list, tuple)) and not all(header):
            raise ValueError("a name is empty; name each column, such as [name, age]")
        return header

    @model_validator(mode="after")
    def _distinct(self) -> Dialect:
        if self.thousands == self.decimal:
            raise ValueError(f"`thousands` and `decimal` are both {self.decimal!r}; they must differ")
        if self.century is None and any("%y" in form for form in self.dates):
            raise ValueError(
                "a year of two digits has no century: name the earliest year that is meant, such as `century: 1930`"
            )
        return self

    def unread_of(self, name: str) -> list[str]:
        """The stated keys that do not apply to a file of this name."""
        unread = {"sheet"}
        if is_workbook(name):
            unread = {"delimiter", "quote", "encoding"}
        elif has_own_names(name):
            unread = {"delimiter", "quote", "sheet", "skip", "header"}
        return [key for key in type(self).model_fields if key in unread & self.model_fields_set]

    def delimiter_of(self, name: str) -> str:
        """The sign between fields in a file of this name."""
        return self.delimiter or _SEPARATORS.get(_suffix(name), ",")


def is_text(name: str) -> bool:
    """Whether a file of this name is read as text, by a dialect."""
    return _suffix(name) in (*_SEPARATORS, *_JSON_LINES) or is_workbook(name) or is_statistical(name)


TABLE_FILES = (
    "Parquet, CSV (.csv, .tsv), JSON lines (.jsonl), a workbook (.xlsx, .ods), or a file of SPSS, SAS or Stata "
    "(.sav, .sas7bdat, .dta)"
)
"""The kinds of table files, in words."""


def is_json_lines(name: str) -> bool:
    """Whether a file of this name has a JSON object in each line."""
    return _suffix(name) in _JSON_LINES


def is_statistical(name: str) -> bool:
    """Whether a file of this name is a file of SPSS, SAS or Stata."""
    return name.lower().endswith(_STATISTICAL)


def has_own_names(name: str) -> bool:
    """Whether a file of this name has the names of its columns apart from its rows."""
    return is_json_lines(name) or is_statistical(name)


def is_workbook(name: str) -> bool:
    """Whether a file of this name is a workbook of Excel or OpenDocument."""
    return name.lower().endswith(_WORKBOOKS)


def _suffix(name: str) -> str:
    return PurePath(name.lower().removesuffix(".gz")).suffix
