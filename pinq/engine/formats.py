# SPDX-License-Identifier: Apache-2.0
"""Guesses the form of a text file, for the proposal of a policy only, never for an open dataset.

``FormatDoubt`` names the form that a file seems to have, with the keys of ``csv`` that would read it.
"""

from __future__ import annotations

import csv
import re
from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, pairwise, product

import duckdb

from pinq.engine.numbers import moment_sql, number_sql
from pinq.errors import PolicyError
from pinq.policy.dialect import Dialect

# A column looks misread if another form reads at least this share of its values, and at least one
# value more than the declared form.
LIKELY = 0.8
# The forms of dates that are tried. Numbers of eight digits are dates only if all of them can be.
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
# Each text has the letters beyond ASCII of one language; a word of a table has letters of one language.
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
    "iso-8859-15": (*_WESTERN, "äõöüšž"),
    "cp1255": ("אבגדהוזחטיךכלםמןנסעףפץצקרשת",),
}
"""The alphabets of an encoding's languages. Encodings whose names begin with cp cannot be declared."""
_NO_LETTERS = re.compile("^[€°§µ‘“”„«»…½]+|[€°§µ‘“”„«»…½]+$|[\u00a0–—’·]|(?<=m)[²³]$")
WORDS_THAT_FIT = 0.9  # the least share of words with letters beyond ASCII that a named encoding fits
FEW_WORDS = 2  # different words, which may be names or faults: so many more tell nothing between encodings
MOST_WORDS = 20_000  # different words that are looked at, of all files
Changes = Mapping[str, object]
"""New values for keys of a policy's ``csv``."""


class FormatDoubt(PolicyError):
    """A text file seems to be written in another form than the declared one.

    Attributes:
        choices: Alternative changes that would read it; empty if none is known.
    """

    def __init__(self, text: str, choices: Sequence[Changes] = ()) -> None:
        super().__init__(text)
        self.choices = choices


class HeaderFault(FormatDoubt):
    """A header that cannot name columns."""

    def __init__(self, names: Sequence[str], text: str, choices: Sequence[Changes]) -> None:
        super().__init__(text, choices)
        self.names = names

    @property
    def with_index(self) -> tuple[str, ...]:
        """The names if only the first is missing, as pandas writes an index of rows; else empty."""
        names = ("index", *self.names[1:])
        unnamed = bool(self.names) and not self.names[0] and not any(map(_spells_number, names))
        return names if unnamed and not column_fault(names) else ()


def typed(changes: Changes) -> dict[str, str]:
    """Writes changes of a dialect as a person types them; a tab, a no-break space and no sign have names."""
    words = {"\t": "tab", **_BLANKS}
    texts = {key: ",".join(value) if isinstance(value, (list, tuple)) else value for key, value in changes.items()}
    return {key: "none" if text in (None, "") else words.get(str(text), str(text)) for key, text in texts.items()}


def as_options(changes: Changes) -> str:
    """Writes changes of a dialect as options of ``pinq init``."""
    quotes = dict.fromkeys(("decimal", "thousands", "dates", "header", "quote"), '"') | {"delimiter": "'", "sheet": "'"}
    words = {key: (quotes.get(key, "") if word != "tab" else "", word) for key, word in typed(changes).items()}
    return " ".join(f"--{key.replace('_', '-')} {quote}{word}{quote}" for key, (quote, word) in words.items())


def encodings_of(blocks: Iterable[bytes]) -> list[str]:
    """The encodings in which the words of a text are of a language; several if nothing tells them apart.

    A word fits an encoding if one alphabet has all its letters, and no accented capital follows a small letter.
    Several are returned, too, if words that do not fit the best encoding have other letters in another one.
    """
    words = Counter(_foreign_words(blocks))
    if any(_decoded(word, "utf-8") is not None for word in words):  # lines of several encodings
        return []
    fits = {encoding: _Fit.of(words, encoding) for encoding in _LETTERS}
    order = sorted(fits, key=lambda encoding: -fits[encoding].share)
    best = fits[order[0]]
    if best.share < WORDS_THAT_FIT:
        return []
    likely = list[str]()
    for encoding in order:
        fit = fits[encoding]
        is_close = fit.share >= WORDS_THAT_FIT and len(fit.language) >= len(best.language) - FEW_WORDS
        if is_close or fit.reads_more_than(best):
            likely += [encoding] if not any(fits[other].covers(fit) for other in likely) else []
    return likely


@dataclass(frozen=True)
class _Fit:
    """The words of a text as an encoding reads them.

    Attributes:
        share: The share of the words that fit, of the language that fits best.
        language: The words of that language, with their texts.
        texts: The words of any language that uses the encoding, with their texts.
    """

    share: float
    language: Mapping[bytes, str | None]
    texts: Mapping[bytes, str | None]
    decoded: Mapping[bytes, str | None]

    @classmethod
    def of(cls, words: Counter[bytes], encoding: str) -> _Fit:
        decoded = {word: _decoded(word, encoding) for word in words}
        languages = [
            {word: text for word, text in decoded.items() if _is_of(text, letters)}
            for letters in map(set, _LETTERS[encoding])
        ]
        counts = [sum(map(words.__getitem__, language)) for language in languages]
        best = languages[counts.index(max(counts))]
        return cls(max(counts) / max(1, words.total()), best, dict(ChainMap(*languages)), decoded)

    def reads_more_than(self, best: _Fit) -> bool:
        """Whether it reads the words of the best encoding's language alike, and others as other words of its own."""
        others = [word for word in self.texts if word not in best.language]
        return best.language.items() <= self.decoded.items() and any(
            self.texts[word] != best.decoded[word] for word in others
        )

    def covers(self, other: _Fit) -> bool:
        """Whether it reads all words that fit another encoding alike."""
        return self.decoded.items() >= other.texts.items()


def _foreign_words(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The words with letters beyond ASCII, until so many are known."""
    words = set[bytes]()
    for line in chain.from_iterable(block.split(b"\n") for block in blocks if not block.isascii()):
        for word in () if line.isascii() else re.findall(rb"[A-Za-z]*[\x80-\xff][A-Za-z\x80-\xff]*", line):
            words.add(word)
            yield word
        if len(words) >= MOST_WORDS:
            return


def letters_fit(blocks: Iterable[bytes]) -> tuple[list[Changes], str]:
    """The likely encodings of a text as changes, and in words; no changes if one of them cannot be declared."""
    likely = encodings_of(blocks)
    foreign = [encoding for encoding in likely if encoding.startswith("cp")]
    choices: list[Changes] = [] if foreign else [{"encoding": encoding} for encoding in likely]
    if foreign:
        return (
            [],
            f" Its letters fit {' or '.join(likely)}: convert it, iconv -t UTF-8 -f {foreign[0].upper()}, or say it.",
        )
    return choices, f" Its letters fit: try {' or '.join(map(as_options, choices))}." if choices else ""


def _decoded(word: bytes, encoding: str) -> str | None:
    """A word in an encoding, without signs that are no letters; None if it cannot be decoded."""
    with suppress(UnicodeDecodeError):
        return _NO_LETTERS.sub("", word.decode(encoding))
    return None


def _is_of(word: str | None, alphabet: set[str]) -> bool:
    """Whether a word's letters beyond ASCII are of an alphabet; Greek and Cyrillic words have no other letters."""
    if word is None or any(a.islower() and b.isupper() and not b.isascii() for a, b in pairwise(word)):
        return False
    others = {letter for letter in word.lower() if not letter.isascii()}
    return others <= alphabet and (max(alphabet) < "\u0370" or word.isascii() or len(others) == len(set(word.lower())))


def other_shape(glances: Mapping[str, list[list[str]]], dialect: Dialect, *, named: bool) -> dict[str, object]:
    """The delimiter and the number of title lines that a file's beginning suggests, if not the declared."""
    # The best sign cuts most lines into equally many fields, below a header of names; in a tie the declared sign
    # wins. A decimal comma cuts lines alike, but no header.
    sign = max(glances, key=lambda sign: (_has_header(glances[sign]), _alike(glances[sign])))
    changes: dict[str, object] = {} if sign == next(iter(glances)) else {"delimiter": sign}
    skip = _titles_above(glances[sign]) if dialect.header is True and not (named and dialect.skip) else None
    if skip is not None and skip != dialect.skip:
        changes["skip"] = skip
    return changes


def fields_of(line: str, sign: str, quote: str) -> list[str]:
    """Splits a line of a file's beginning."""
    return next(csv.reader([line], delimiter=sign, quotechar=quote), []) if quote else line.split(sign)


def column_fault(names: Sequence[str]) -> str:
    """The reason why names cannot name columns; empty if they can."""
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
    """The number of title lines above the header; None if the header cannot be recognised.

    A title line has one filled field, or empty fields between filled ones, as merged cells above a header
    have. Names are public, so a row of the table must not become the header. Therefore the header must
    differ in kind from the rows: it has a name for each column, none of them a number, and some column
    below it has numbers.
    """
    widths = Counter(_width(row) for row in rows if any(row))
    if not widths:
        return None
    usual = max(widths, key=lambda width: (widths[width], width))
    number = next(number for number, row in enumerate(rows) if _width(row) >= usual)
    if number == 0:
        return 0
    header, below = rows[number][: _width(rows[number])], [row for row in rows[number + 1 :] if _width(row) == usual]
    has_names = all(header) and not column_fault(header) and not any(map(_spells_number, header))
    columns = [[row[index] for row in below if row[index]] for index in range(usual)]
    has_numbers = any(column and all(map(_spells_number, column)) for column in columns)
    is_repeated = any(name in column for name, column in zip(header, columns, strict=False))
    are_titles = all(sum(map(bool, row)) <= 1 or not all(row[: _width(row)]) for row in rows[:number])
    return number if are_titles and has_names and has_numbers and not is_repeated else None


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether most lines have the same number of fields, below a header."""
    return 2 * _alike(rows) >= sum(map(any, rows)) and _titles_above(rows) is not None


def _spells_number(field: str) -> bool:
    return re.fullmatch(r"\W*\d[\d\W]*", field) is not None


def _width(row: Sequence[str]) -> int:
    return max((number for number, field in enumerate(row, 1) if field), default=0)


def _alike(rows: Sequence[Sequence[str]]) -> int:
    """The number of rows with the commonest number of fields; rows of one field do not count."""
    return max(Counter(len(row) for row in rows if len(row) > 1).values(), default=0)


def other_spelling(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str], dialect: Dialect
) -> FormatDoubt | None:
    """The spelling that would read more numbers than the dialect, which is not doubted where it states one.

    None if all is well.
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
    """Returns changes by which more of a column's values are numbers; empty if there are none.

    Several are returned if each reads all values, as different numbers: 1.234 may be a fraction or
    1234.
    """
    others = list(_others(dialect))
    if not others:
        return ()
    # Forms differ only in texts of digits and at least one sign. So few texts are read again.
    signed = f"regexp_full_match({column}, '[-+0-9eE\\s{_SIGNS}]*[{_SIGNS}][-+0-9eE\\s{_SIGNS}]*')"
    # A sign that always has three digits behind it may be a decimal sign or separate thousands, but not in 0.125.
    signs = [sign for sign in (".", ",") if sign == dialect.decimal or dialect.decimal == "."]
    grouped = [
        f"count(*) FILTER ({signed} AND contains({column}, '{sign}')), count(*) FILTER (contains({column}, '{sign}') "
        f"AND regexp_full_match({column}, '\\s*[+-]?[1-9][0-9]{{0,2}}[{sign}][0-9]{{3}}\\s*'))"
        for sign in signs
    ]
    number = f"count({number_sql(column, dialect)})"
    totals = f"{number}, {number} FILTER (NOT {signed}), count(*) FILTER ({signed}), count({column})"
    query = f"SELECT {', '.join([totals, *grouped])} FROM {table}"
    declared, unsigned, doubtful, filled, *by_sign = connection.execute(query).fetchall()[0]
    ambiguous = [sign for sign, has, fits in zip(signs, by_sign[::2], by_sign[1::2], strict=True) if 0 < has == fits]
    if unsigned + doubtful < LIKELY * filled or (unsigned + doubtful == declared and not ambiguous):
        return ()
    reads = ", ".join(f"count({number_sql(column, form)})" for form in others)
    counts = connection.execute(f"SELECT {reads} FROM {table} WHERE {signed}").fetchall()[0]
    best = unsigned + max(counts)
    if best < max(LIKELY * filled, declared):
        return ()
    forms = [form for form, count in zip(others, counts, strict=True) if unsigned + count == best]
    uncertain = [form for form in forms for sign in ambiguous if sign in (form.thousands or form.decimal)]
    choices = [_changes(form, dialect) for form in uncertain or (forms[:1] if best > declared else ())]
    return (*choices, *([_kept(dialect)] if uncertain and best == declared else ()))


def date_forms(connection: duckdb.DuckDBPyConnection, table: str, value: str) -> tuple[list[str], str]:
    """Returns the forms that read more of a column's values as dates, with an example; empty for no gain.

    Several forms are returned if they read equally many, such as 01/02/2024 with the day or the month first.
    """
    sample = f"(FROM {table} LIMIT {SAMPLE})"
    reads = [f"count(coalesce({moment_sql(value, form)}, moment_of({value})))" for form in _FORMS]
    totals = f"count({value}), count(moment_of({value})), max({value}) FILTER (moment_of({value}) IS NULL)"
    in_any_form = f"count({_any_of(value, _FORMS[:-1])})"
    filled, declared, example, dates, *counts = connection.execute(
        f"SELECT {totals}, {in_any_form}, {', '.join(reads)} FROM {sample}"
    ).fetchall()[0]
    # Numbers of eight digits are dates only if all of them can be.
    enough = {
        form: count == filled if form == "%Y%m%d" else dates >= LIKELY * filled
        for form, count in zip(_FORMS, counts, strict=True)
    }
    best = max((count for form, count in zip(_FORMS, counts, strict=True) if enough[form]), default=0)
    forms = [form for form, count in zip(_FORMS, counts, strict=True) if count == best > declared and enough[form]]
    return [form for form in forms if _order(form) == _order(forms[0])], example or ""


def _order(form: str) -> str:
    """The form with day and month alike. Two forms with the same result read one text as different dates."""
    return form.replace("%m", "%d")


def _any_of(value: str, forms: Sequence[str]) -> str:
    """SQL for the time of a text in the first of some forms that reads it, or in the declared form."""
    return f"coalesce({', '.join([*(moment_sql(value, form) for form in forms), f'moment_of({value})'])})"


def other_dates(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str], dialect: Dialect
) -> FormatDoubt | None:
    """The forms that would read more texts as dates than the dialect, if it states none; else None.

    If a column does not show the order of day and month, another column of the file decides; else both
    orders are choices.
    """
    if "dates" in dialect.model_fields_set:
        return None
    by_column = {column: date_forms(connection, table, column) for column in columns}
    likely = {column: (forms, example) for column, (forms, example) in by_column.items() if forms}
    sole = [forms[0] for forms, _ in likely.values() if len(forms) == 1]
    adopted = list({_order(form): form for form in reversed(sole)}.values())[::-1]  # one order for all columns
    ambiguous = next((forms for forms, _ in likely.values() if not set(forms) & set(adopted)), [])
    for column in columns:  # a column may mix forms: exports of two years
        while not ambiguous and (more := _further_forms(connection, table, column, adopted)):
            likely.setdefault(column, more)
            adopted, ambiguous = (adopted, more[0]) if len(more[0]) > 1 else ([*adopted, *more[0]], [])
    if not likely:
        return None
    lists = [[*adopted, form] for form in ambiguous] or [adopted]
    choices: list[Changes] = [{"dates": tuple(forms)} for forms in lists]
    shown = ", ".join(f"{column} ({example!r})" for column, (_, example) in likely.items())
    doubt = " Both orders of day and month read all of them: say which it is." if ambiguous else ""
    exceptions = [_other_order(connection, table, column, adopted) for column in likely]
    if not ambiguous and (exception := next(filter(None, exceptions), "")):
        doubt = (
            f" Some, such as {exception!r}, have day and month in the other order, and the rest may have: correct them."
        )
    return FormatDoubt(
        f"The values of {shown} look like dates in another form: try {' or '.join(map(as_options, choices))} (in a "
        f"policy `csv: {{dates: {lists[0]}}}`).{doubt} To keep them as they are: --dates none.",
        choices,
    )


def _further_forms(
    connection: duckdb.DuckDBPyConnection, table: str, value: str, adopted: Sequence[str]
) -> tuple[list[str], str] | None:
    """The forms that read most of a column's dates that adopted forms do not read, with an example; None for none."""
    in_adopted = _any_of(value, adopted)
    begin = f"SELECT count({value}), count({_any_of(value, _FORMS[:-1])}) FROM (FROM {table} LIMIT {SAMPLE})"
    filled, dates = connection.execute(begin).fetchall()[0]
    forms = [form for form in _FORMS if _order(form) not in set(map(_order, adopted))]
    if dates < max(1, LIKELY * filled) or not forms or len(adopted) == MOST_FORMS:
        return None
    reads = [moment_sql(value, form) for form in forms]
    counted = (
        f"max({value}) FILTER (coalesce({', '.join(reads)}) IS NOT NULL), {', '.join(map('count({})'.format, reads))}"
    )
    unread = f"(FROM {table} WHERE {value} IS NOT NULL AND {in_adopted} IS NULL LIMIT {SAMPLE})"
    example, *counts = connection.execute(f"SELECT {counted} FROM {unread}").fetchall()[0]
    best = [form for form, count in zip(forms, counts, strict=True) if count == max(counts) > 0]
    return ([form for form in best if _order(form) == _order(best[0])], example) if best else None


def _other_order(connection: duckdb.DuckDBPyConnection, table: str, value: str, adopted: Sequence[str]) -> str:
    """A text that is a date only with day and month swapped in an adopted form; empty for none."""
    swap = {"%d": "%m", "%m": "%d"}
    turned = [re.sub("%[dm]", lambda part: swap[part[0]], form) for form in adopted if "%m" in form]
    reads = ", ".join(moment_sql(value, form) for form in turned if form in _FORMS)
    if not reads:
        return ""
    unread = f"{_any_of(value, adopted)} IS NULL AND coalesce({reads}) IS NOT NULL"
    return str(connection.execute(f"SELECT max({value}) FILTER ({unread}) FROM {table}").fetchall()[0][0] or "")


def together(doubts: Sequence[FormatDoubt]) -> FormatDoubt:
    """Joins several doubts about one file: each choice of one with each choice of the others."""
    lists = [doubt.choices for doubt in doubts if doubt.choices]
    choices = [dict(ChainMap(*map(dict, reversed(changes)))) for changes in product(*lists)] if lists else []
    return FormatDoubt(" ".join(map(str, doubts)), choices)


def _others(dialect: Dialect) -> Iterator[Dialect]:
    """Other spellings, the simplest first, without changes of declared settings."""
    stated = dialect.model_fields_set
    for decimal in (dialect.decimal,) if "decimal" in stated else (dialect.decimal, ","):
        for thousands in (dialect.thousands,) if "thousands" in stated else (None, ".", ",", *_GROUPS):
            if thousands != decimal and (decimal, thousands) != (dialect.decimal, dialect.thousands):
                yield dialect.model_copy(update={"decimal": decimal, "thousands": thousands})


def _kept(dialect: Dialect) -> Changes:
    """The keys that state a dialect's spelling, so that it is not doubted."""
    return {"decimal": dialect.decimal, "thousands": dialect.thousands}


def _changes(likely: Dialect, declared: Dialect) -> Changes:
    decimal = {"decimal": likely.decimal} if likely.decimal != declared.decimal else {}
    return decimal | ({"thousands": likely.thousands} if likely.thousands else {})
