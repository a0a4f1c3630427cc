# SPDX-License-Identifier: Apache-2.0
"""Options of ``pinq init`` that say how a text file is written: the keys of a policy's ``csv``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pinq.cli.base import option

if TYPE_CHECKING:
    from pinq.public.dialect import Dialect

__all__ = ["Decimal", "Delimiter", "Encoding", "Header", "MaxUnreadable", "Quote", "Thousands", "dialect_of"]

# What is awkward to type at a command line has a word.
WORDS: dict[tuple[str, str | float], str | None] = {
    ("delimiter", "tab"): "\t",
    ("delimiter", "\\t"): "\t",
    ("quote", "none"): "",
    ("thousands", "none"): None,
}
_PANEL = "How text files are written"
Delimiter = Annotated[
    str | None,
    option("--delimiter", metavar="SIGN", help="Between fields: ';', tab; by default a comma.", panel=_PANEL),
]
Quote = Annotated[
    str | None, option("--quote", metavar="SIGN", help="Around fields: \"'\", none; by default '\"'.", panel=_PANEL)
]
Decimal = Annotated[
    str | None, option("--decimal", metavar="SIGN", help="Before decimals: ','; by default a point.", panel=_PANEL)
]
Thousands = Annotated[
    str | None,
    option("--thousands", metavar="SIGN", help="Between groups of three digits: '.'; by default none.", panel=_PANEL),
]
Encoding = Annotated[
    str | None, option("--encoding", metavar="NAME", help="latin-1, windows-1252, ...; by default utf-8.", panel=_PANEL)
]
Header = Annotated[
    str | None,
    option("--header", metavar="NAMES", help="The columns, as name,age, where no first line names them.", panel=_PANEL),
]
MaxUnreadable = Annotated[
    float | None, option("--max-unreadable", metavar="SHARE", help="Of lines; by default 0.01.", panel=_PANEL)
]


def dialect_of(**stated: str | float | None) -> Dialect | None:
    """Reads what the options say of text files; None where they say nothing.

    Raises:
        typer.BadParameter: A wrong value; it names the option.
    """
    from pydantic import ValidationError

    from pinq.public.dialect import Dialect

    given = {name: _key(name, value) for name, value in stated.items() if value is not None}
    try:
        return Dialect.model_validate(given) if given else None
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        option = "".join(f"--{name}: ".replace("_", "-") for name in problem["loc"][:1])
        raise typer.BadParameter(f"{option}{problem['msg'].removeprefix('Value error, ')}") from None


def _key(name: str, value: str | float) -> str | float | tuple[str, ...] | None:
    """Returns what stands in a policy's ``csv`` for an option's value."""
    if name == "header":
        return tuple(column.strip() for column in str(value).split(","))
    return WORDS.get((name, value), value)
