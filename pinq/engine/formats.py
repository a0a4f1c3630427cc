# SPDX-License-Identifier: Apache-2.0
"""Guesses how a text file is written: for whoever proposes a policy, and never while a dataset is open.

``FormatDoubt`` says what else a file seems to be, and has the keys of ``csv`` that would read it so.
"""

from __future__ import annotations

import csv
import re
from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, product

import duckdb

from pinq.engine.numbers import moment_sql, number_sql
from pinq.errors import PolicyError
from pinq.policy.dialect import Dialect

# A column looks misread where another form reads at least this share of its values, and more than the
# declared one does, by even one.
LIKELY = 0.8
# Forms of dates that are looked for. Numbers of eight digits are dates where all of them can be.
_FORMS = (
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d"),
    *("%d. %m. %Y", "%Y.%m.%d.", "%Y. %m. %d."),
    *("%d %b %Y", "%d-%b-%Y", "%d%b%Y", "%b %d, %Y", "%Y%m%d"),
)
_BLANKS = {"\u00a0": "nbsp", "\u202f": "nnbsp"}  # as the command line calls them
_GROUPS = (" ", "'", *_BLANKS, "’")
_SIGNS = f".,{''.join(_GROUPS)}".replace("'", "''")  # in a pattern in SQL
MOST_FORMS = 8  # of dates in a policy
SAMPLE = 20_000  # rows in which forms of dates are looked for
SEPARATORS = {";": "';'", "\t": "tab", "|": "'|'", ",": "','"}
# Letters beyond ASCII of one language each; a word of a table is written with those of one.
_WESTERN = (
    *("äöüßéèàç", "àâæçéèêëîïôœùûüÿ", "áéíóúüñ", "àáâãçéêíóõôúü", "àèéìíòóùú", "àáèéíïòóúüç"),
    *("åäöéü", "åæøéöü", "áðéíóúýþæö", "äõöü", "éëïöüèáâêîôûó"),
)
_CENTRAL = ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţ", "čćđšž")
_RUSSIAN, _UKRAINIAN = "абвгдеёжзийклмнопрстуфхцчшщъыьэюя", "абвгґдеєжзиіїйклмнопрстуфхцчшщьюяў"
_GREEK, _TURKISH = ("άέήίόύώαβγδεζηθικλμνξοπρστυφχψωςϊϋΐΰ",), ("çğıöşüâîû\u0307",)
_CYRILLIC = (_RUSSIAN, _UKRAINIAN, "абвгдђежзијклљмнњопрстћуфхцчџшѓќѕ")
_LETTERS = {
    **{"windows-1252": _WESTERN, "windows-1250": _CENTRAL, "iso-8859-2": _CENTRAL, "windows-1254": _TURKISH},
    **{"windows-1257": ("ąčęėįšųūž", "āčēģīķļņšūž", "äõöüšž"), "windows-1253": _GREEK, "iso-8859-7": _GREEK},
    **{"windows-1251": _CYRILLIC, "koi8-r": (_RUSSIAN,), "iso-8859-5": (_RUSSIAN,), "mac-roman": _WESTERN},
    **{"cp850": _WESTERN, "cp852": _CENTRAL, "cp857": _TURKISH, "cp866": (_RUSSIAN,), "cp737": _GREEK},
    "cp1255": ("אבגדהוזחטיךכלםמןנסעףפץצקרשת",),
}
"""The alphabets of the languages that an encoding is used for; those that begin with cp cannot be declared."""
_NO_LETTERS = re.compile("^[€°§µ‘“”„«»…½]+|[€°§µ‘“”„«»…½]+$|[\u00a0–—’·]|(?<=m)[²³]$")
WORDS_THAT_FIT = 0.9  # of those with letters beyond ASCII, so that an encoding is named
AS_GOOD = 0.97  # of the words that fit best: another encoding that fits so many may be meant as well
Changes = Mapping[str, object]
"""Keys of a policy's ``csv``, with other values than they have."""


class FormatDoubt(PolicyError):
    """A text file seems to be written in another form than the declared one.

    Attributes:
        choices: The changes that would read it, each by itself; empty where none is known.
    """

    def __init__(self, text: str, choices: Sequence[Changes] = ()) -> None:
        super().__init__(text)
        self.choices = choices


class HeaderFault(FormatDoubt):
    """A header that cannot name columns.

    Attributes:
        names: Its names, as they stand there.
    """

    def __init__(self, names: Sequence[str], text: str, choices: Sequence[Changes]) -> None:
        super().__init__(text, choices)
        self.names = names

    @property
    def with_index(self) -> tuple[str, ...]:
        """The names where the first alone is missing, as pandas writes a table's numbers of rows; else empty."""
        names = ("index", *self.names[1:])
        unnamed = bool(self.names) and not self.names[0] and not any(map(_spells_number, names))
        return names if unnamed and not column_fault(names) else ()


def typed(changes: Changes) -> dict[str, str]:
    """Writes changes of a dialect as a person types them: a tab, a no-break space and no sign by their names."""
    words = {"\t": "tab", **_BLANKS}
    texts = {key: ",".join(value) if isinstance(value, (list, tuple)) else value for key, value in changes.items()}
    return {key: "none" if text in (None, "") else words.get(str(text), str(text)) for key, text in texts.items()}


def as_options(changes: Changes) -> str:
    """Writes changes of a dialect as options of ``pinq init``."""
    quotes = dict.fromkeys(("decimal", "thousands", "dates", "header", "quote"), '"') | {"delimiter": "'", "sheet": "'"}
    words = {key: (quotes.get(key, "") if word != "tab" else "", word) for key, word in typed(changes).items()}
    return " ".join(f"--{key.replace('_', '-')} {quote}{word}{quote}" for key, (quote, word) in words.items())


def encodings_of(text: bytes) -> list[str]:
    """The encodings whose languages write the words of a text, several where nothing tells them apart.

    A word fits where all its letters are of one alphabet, and no capital of its own stands behind a small letter.
    """
    words = Counter(re.findall(rb"[A-Za-z]*[\x80-\xff][A-Za-z\x80-\xff]*", text))
    if any(map(_is_utf8, words)):  # lines of several encodings
        return []
    fitting: dict[tuple[str | None, ...], tuple[int, str]] = {}
    for encoding, alphabets in _LETTERS.items():
        read = {word: _decoded(word, encoding) for word in words}
        fits = max(sum(n for word, n in words.items() if _is_of(read[word], set(own))) for own in alphabets)
        if fits > fitting.get(key := tuple(read.values()), (0, ""))[0]:
            fitting[key] = (fits, encoding)
    best = max((fits for fits, _ in fitting.values()), default=0)
    enough = max(WORDS_THAT_FIT * words.total(), AS_GOOD * best)
    return [encoding for fits, encoding in sorted(fitting.values(), key=lambda one: -one[0]) if fits >= enough > 0]


def letters_fit(text: bytes) -> tuple[list[Changes], str]:
    """The encodings that a text may have as changes, and in words; no changes where one of them cannot be declared."""
    found = encodings_of(text)
    foreign = [encoding for encoding in found if encoding.startswith("cp")]
    choices: list[Changes] = [] if foreign else [{"encoding": encoding} for encoding in found]
    if foreign:
        return (
            [],
            f" Its letters fit {' or '.join(found)}: convert it, iconv -t UTF-8 -f {foreign[0].upper()}, or say it.",
        )
    return choices, f" Its letters fit: try {' or '.join(map(as_options, choices))}." if choices else ""


def _decoded(word: bytes, encoding: str) -> str | None:
    """A word in an encoding, without signs that are no letters; None where it is none."""
    with suppress(UnicodeDecodeError):
        return _NO_LETTERS.sub("", word.decode(encoding))
    return None


def _is_utf8(word: bytes) -> bool:
    return _decoded(word, "utf-8") is not None


def _is_of(word: str | None, alphabet: set[str]) -> bool:
    """Whether a word's letters beyond ASCII are of an alphabet; Greek and Cyrillic words have no others."""
    if word is None or any(a.islower() and b.isupper() and not b.isascii() for a, b in pairwise(word)):
        return False
    others = {letter for letter in word.lower() if not letter.isascii()}
    return others <= alphabet and (max(alphabet) < "\u0370" or word.isascii() or len(others) == len(set(word.lower())))


def other_shape(glances: Mapping[str, list[list[str]]], dialect: Dialect, *, named: bool) -> dict[str, object]:
    """The delimiter and the number of title lines that a file's beginning suggests, where they are not the declared.

    Args:
        glances: The beginning, by the sign that may stand between fields; first by the one that does.
        dialect: The declared form.
        named: Whether the declared form reads a header; where it does not, its title lines are doubted too.
    """
    # The sign that cuts most lines into the same number of fields, and first into names; where none is ahead, the
    # one that is declared. A decimal comma cuts lines alike, and no header.
    sign = max(glances, key=lambda sign: (_has_header(glances[sign]), _alike(glances[sign])))
    changes: dict[str, object] = {} if sign == next(iter(glances)) else {"delimiter": sign}
    skip = _titles_above(glances[sign]) if dialect.header is True and not (named and dialect.skip) else None
    if skip is not None and skip != dialect.skip:
        changes["skip"] = skip
    return changes


def fields_of(line: str, sign: str, quote: str) -> list[str]:
    """Splits a line for a glance at it."""
    return next(csv.reader([line], delimiter=sign, quotechar=quote), []) if quote else line.split(sign)


def column_fault(names: Sequence[str]) -> str:
    """Says why names cannot be those of columns; empty where they can."""
    if not names:
        return "is empty"
    if not names[-1] and all(names[:-1]):
        return "ends with a delimiter: its last name is empty"
    if not all(names):
        return f"has no name for column {names.index('') + 1} of {len(names)}"
    counts = Counter(name.casefold() for name in names)
    twice = next((name for name in names if counts[name.casefold()] > 1), None)
    return "" if twice is None else f"names {twice!r} more than once (also without regard to case)"


def _titles_above(rows: Sequence[Sequence[str]]) -> int | None:
    """The number of title lines above the header; None where nothing shows which line is the header.

    A title line has one filled field, or empty ones between filled ones, as a header of merged cells above the header
    has; so a line of two fields is never taken for one. A row of the table
    must not become the header, because names are public. So the header must differ in kind from the
    rows: it has a name for each column, none of them a number, and below it some column has numbers.
    """
    widths = Counter(_width(row) for row in rows if any(row))
    if not widths:
        return None
    most = max(widths, key=lambda width: (widths[width], width))
    number = next(number for number, row in enumerate(rows) if _width(row) >= most)
    if number == 0:
        return 0
    header, below = rows[number][: _width(rows[number])], [row for row in rows[number + 1 :] if _width(row) == most]
    named = all(header) and not column_fault(header) and not any(map(_spells_number, header))
    columns = [[row[place] for row in below if row[place]] for place in range(most)]
    counted = any(column and all(map(_spells_number, column)) for column in columns)
    again = any(name in column for name, column in zip(header, columns, strict=False))
    titles = all(sum(map(bool, row)) <= 1 or not all(row[: _width(row)]) for row in rows[:number])
    return number if titles and named and counted and not again else None


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether most lines have one number of fields, and the header too."""
    return 2 * _alike(rows) >= sum(map(any, rows)) and _titles_above(rows) is not None


def _spells_number(field: str) -> bool:
    """Whether a text is written with digits, as numbers, dates and codes are."""
    return re.fullmatch(r"\W*\d[\d\W]*", field) is not None


def _width(row: Sequence[str]) -> int:
    """The fields of a row up to the last that is filled."""
    return max((number for number, field in enumerate(row, 1) if field), default=0)


def _alike(rows: Sequence[Sequence[str]]) -> int:
    """The number of rows with the most frequent number of fields, of at least two."""
    return max(Counter(len(row) for row in rows if len(row) > 1).values(), default=0)


def other_spelling(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str], dialect: Dialect
) -> FormatDoubt | None:
    """Says which spelling would read numbers that the dialect does not; None if all is well.

    Where the dialect states how numbers are spelled, nothing is said.

    Args:
        connection: A connection that reads the table.
        table: The table of texts.
        columns: The columns, as SQL names them.
        dialect: The declared form. Declared settings are not guessed again.
    """
    for column in columns:
        if choices := likely_spelling(connection, table, column, dialect):
            options = " or ".join(map(as_options, choices))
            if len(choices) > 1:
                return FormatDoubt(
                    f"The values of {column} are numbers in several spellings, for three digits behind a sign may be a "
                    f"fraction or thousands: try {options}.",
                    choices,
                )
            return FormatDoubt(
                f"The values of {column} look like numbers in another spelling: try {options}. "
                f"To keep them as they are: {as_options(_kept(dialect))}.",
                choices,
            )
    return None


def likely_spelling(
    connection: duckdb.DuckDBPyConnection, table: str, column: str, dialect: Dialect
) -> tuple[Changes, ...]:
    """Returns changes that would have more of a column's values be numbers; none where no form would.

    Several are returned where each reads all, as different numbers: 1.234 may be one, or a thousand.
    """
    others = list(_others(dialect))
    if not others:
        return ()
    # All forms read texts alike that have none of the signs, or more than digits and signs. So few are read again.
    signed = f"regexp_full_match({column}, '[-+0-9eE\\s{_SIGNS}]*[{_SIGNS}][-+0-9eE\\s{_SIGNS}]*')"
    # Three digits behind a sign, each time, may be a fraction or thousands. 0.125 cannot be thousands.
    signs = [sign for sign in (".", ",") if sign == dialect.decimal or dialect.decimal == "."]
    grouped = [
        f"count(*) FILTER ({signed} AND contains({column}, '{sign}')), count(*) FILTER (contains({column}, '{sign}') "
        f"AND regexp_full_match({column}, '\\s*[+-]?[1-9][0-9]{{0,2}}[{sign}][0-9]{{3}}\\s*'))"
        for sign in signs
    ]
    number = f"count({number_sql(column, dialect)})"
    begun = f"{number}, {number} FILTER (NOT {signed}), count(*) FILTER ({signed}), count({column})"
    query = f"SELECT {', '.join([begun, *grouped])} FROM {table}"
    declared, alike, doubted, filled, *found = connection.execute(query).fetchall()[0]
    either = [sign for sign, has, fits in zip(signs, found[::2], found[1::2], strict=True) if 0 < has == fits]
    if alike + doubted < LIKELY * filled or (alike + doubted == declared and not either):
        return ()
    reads = ", ".join(f"count({number_sql(column, other)})" for other in others)
    counted = connection.execute(f"SELECT {reads} FROM {table} WHERE {signed}").fetchall()[0]
    best = alike + max(counted)
    if best < max(LIKELY * filled, declared):
        return ()
    read = [other for other, count in zip(others, counted, strict=True) if alike + count == best]
    doubtful = [other for other in read for sign in either if sign in (other.thousands or other.decimal)]
    choices = [_changes(other, dialect) for other in doubtful or (read[:1] if best > declared else ())]
    return (*choices, *([_kept(dialect)] if doubtful and best == declared else ()))


def date_forms(connection: duckdb.DuckDBPyConnection, table: str, value: str) -> tuple[list[str], str]:
    """Returns the forms in which more of a column's values are dates, and one that is not read yet; none for no gain.

    Several forms are returned where each reads as many, such as 01/02/2024 with the day or the month first.

    Args:
        connection: A connection that reads the table.
        table: The name of the table in SQL.
        value: A text, as SQL names it. Where all of them are dates as they are read already, no form is needed.
    """
    sample = f"(FROM {table} LIMIT {SAMPLE})"
    reads = [f"count(coalesce({moment_sql(value, form)}, moment_of({value})))" for form in _FORMS]
    counted = f"count({value}), count(moment_of({value})), max({value}) FILTER (moment_of({value}) IS NULL)"
    together = f"count({_any_of(value, _FORMS[:-1])})"
    filled, declared, example, either, *counts = connection.execute(
        f"SELECT {counted}, {together}, {', '.join(reads)} FROM {sample}"
    ).fetchall()[0]
    # Numbers of eight digits are dates where all of them can be.
    enough = {
        form: count == filled if form == "%Y%m%d" else either >= LIKELY * filled
        for form, count in zip(_FORMS, counts, strict=True)
    }
    best = max((count for form, count in zip(_FORMS, counts, strict=True) if enough[form]), default=0)
    forms = [form for form, count in zip(_FORMS, counts, strict=True) if count == best > declared and enough[form]]
    return [form for form in forms if _order(form) == _order(forms[0])], example or ""


def _order(form: str) -> str:
    """The form without what is the day and what the month: forms that are alike so read one text as two dates."""
    return form.replace("%m", "%d")


def _any_of(value: str, forms: Sequence[str]) -> str:
    """The time that an SQL expression spells in any of some forms, or in the declared one."""
    return f"coalesce({', '.join([*(moment_sql(value, form) for form in forms), f'moment_of({value})'])})"


def other_dates(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str], dialect: Dialect
) -> FormatDoubt | None:
    """Says which forms of dates would read texts that the dialect does not; None if all is well.

    Where a column's day and month may be either, and no other column of the file decides, it asks.

    Args:
        connection: A connection that reads the table.
        table: The table of texts.
        columns: The columns, as SQL names them.
        dialect: The declared form. Declared settings are not guessed again.
    """
    if "dates" in dialect.model_fields_set:
        return None
    found = {column: date_forms(connection, table, column) for column in columns}
    seen = {column: (forms, example) for column, (forms, example) in found.items() if forms}
    sole = [forms[0] for forms, _ in seen.values() if len(forms) == 1]
    known = list({_order(form): form for form in reversed(sole)}.values())[::-1]  # one order for all columns
    either = next((forms for forms, _ in seen.values() if not set(forms) & set(known)), [])
    for column in columns:  # another year's export may be written otherwise
        while not either and (more := _further_forms(connection, table, column, known)):
            seen.setdefault(column, more)
            known, either = (known, more[0]) if len(more[0]) > 1 else ([*known, *more[0]], [])
    if not seen:
        return None
    lists = [[*known, form] for form in either] or [known]
    choices: list[Changes] = [{"dates": tuple(forms)} for forms in lists]
    shown = ", ".join(f"{column} ({example!r})" for column, (_, example) in seen.items())
    doubt = " Both orders of day and month read all of them: say which it is." if either else ""
    others = [_other_order(connection, table, column, known) for column in seen]
    if not either and (turned := next(filter(None, others), "")):
        doubt = (
            f" Some, such as {turned!r}, have day and month in the other order, and the rest may have: correct them."
        )
    return FormatDoubt(
        f"The values of {shown} look like dates in another form: try {' or '.join(map(as_options, choices))} (in a "
        f"policy `csv: {{dates: {lists[0]}}}`).{doubt} To keep them as they are: --dates none.",
        choices,
    )


def _further_forms(
    connection: duckdb.DuckDBPyConnection, table: str, value: str, adopted: Sequence[str]
) -> tuple[list[str], str] | None:
    """Forms that read most of the texts that the adopted ones do not, in a column of dates; None for none."""
    read = _any_of(value, adopted)
    begin = f"SELECT count({value}), count({_any_of(value, _FORMS[:-1])}) FROM (FROM {table} LIMIT {SAMPLE})"
    filled, dates = connection.execute(begin).fetchall()[0]
    forms = [form for form in _FORMS if _order(form) not in set(map(_order, adopted))]
    if dates < max(1, LIKELY * filled) or not forms or len(adopted) == MOST_FORMS:
        return None
    reads = [moment_sql(value, form) for form in forms]
    counted = (
        f"max({value}) FILTER (coalesce({', '.join(reads)}) IS NOT NULL), {', '.join(map('count({})'.format, reads))}"
    )
    unread = f"(FROM {table} WHERE {value} IS NOT NULL AND {read} IS NULL LIMIT {SAMPLE})"
    example, *counts = connection.execute(f"SELECT {counted} FROM {unread}").fetchall()[0]
    best = [form for form, count in zip(forms, counts, strict=True) if count == max(counts) > 0]
    return ([form for form in best if _order(form) == _order(best[0])], example) if best else None


def _other_order(connection: duckdb.DuckDBPyConnection, table: str, value: str, adopted: Sequence[str]) -> str:
    """A text that is a date only with day and month in another order than an adopted form has; empty for none."""
    swap = {"%d": "%m", "%m": "%d"}
    turned = [re.sub("%[dm]", lambda part: swap[part[0]], form) for form in adopted if "%m" in form]
    reads = ", ".join(moment_sql(value, form) for form in turned if form in _FORMS)
    if not reads:
        return ""
    unread = f"{_any_of(value, adopted)} IS NULL AND coalesce({reads}) IS NOT NULL"
    return str(connection.execute(f"SELECT max({value}) FILTER ({unread}) FROM {table}").fetchall()[0][0] or "")


def together(doubts: Sequence[FormatDoubt]) -> FormatDoubt:
    """Joins what is said of one file, each choice with each of the others."""
    known = [doubt.choices for doubt in doubts if doubt.choices]
    choices = [dict(ChainMap(*map(dict, reversed(one)))) for one in product(*known)] if known else []
    return FormatDoubt(" ".join(map(str, doubts)), choices)


def _others(dialect: Dialect) -> Iterator[Dialect]:
    """Other spellings, the simplest first. Declared settings stay as they are: the provider looked."""
    stated = dialect.model_fields_set
    for decimal in (dialect.decimal,) if "decimal" in stated else (dialect.decimal, ","):
        for thousands in (dialect.thousands,) if "thousands" in stated else (None, ".", ",", *_GROUPS):
            if thousands != decimal and (decimal, thousands) != (dialect.decimal, dialect.thousands):
                yield dialect.model_copy(update={"decimal": decimal, "thousands": thousands})


def _kept(dialect: Dialect) -> Changes:
    """The keys that state a spelling, so that no other is looked for."""
    return {"decimal": dialect.decimal, "thousands": dialect.thousands}


def _changes(likely: Dialect, declared: Dialect) -> Changes:
    decimal = {"decimal": likely.decimal} if likely.decimal != declared.decimal else {}
    return decimal | ({"thousands": likely.thousands} if likely.thousands else {})
