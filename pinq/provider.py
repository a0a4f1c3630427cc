# SPDX-License-Identifier: Apache-2.0
"""What a data provider does: propose a policy, check it, grant budgets and watch them. Thin; the ``pinq`` command prints it.

Everything here sees exact numbers and is for the provider's eyes only.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime, time
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pinq.audit_html import printable
from pinq.claim import ledger_url
from pinq.engine import open_engine, read_columns
from pinq.engine.encoding import quoted
from pinq.epsilon import Loss, exact, to_nano
from pinq.epsilon import show as decimal
from pinq.errors import InternalError, PolicyError, QueryError
from pinq.ledger import Grant, Ledger, now
from pinq.local import open_ledger
from pinq.policy import Policy, _number, load_policy
from pinq.schema import REAL_CELLS, Categorical, closest

__all__ = ["Account", "CheckReport", "Status", "check", "extend", "grant", "parse_expiry", "propose", "revoke", "show"]

_WHOLE = r"(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER)"
_REAL = r"(FLOAT|DOUBLE|DECIMAL.*)"
_MOMENT = r"(DATE|TIME.*)"
_TEXT = r"(VARCHAR|UUID|BOOLEAN|ENUM.*)"
_QUANTITY = (
    r"(^|[\W_])(age|num|number|count|n|years?|hours?|days?|weeks?|months?|minutes?|amount|income|salary|price|cost|gain|loss|score|"
    r"weight|height|size|total|sum|qty|quantity)([\W_]|$)"
)
_IDENTITY = r"(^|[\W_])(id|ids|uuid|guid|ssn|key|index|rowid|unnamed)([\W_]|$)|id$"

MAX_CATEGORIES = 1000
FEW = 20
MAX_TEXT = 200
MAX_STEPS_OF_ONE = 2**17
MAX_NAME = 128
LEFT_OUT_SHARE = 0.1  # from this share of rows on, ``check`` advises to look at the column


@dataclass(frozen=True)
class CheckReport:
    """How a policy fits its source. Exact numbers: for the provider's eyes only.

    Attributes:
        source_rows: Rows in the source.
        encoded_rows: Rows that queries see.
        max_rows: What the policy declares.
        over_unit: Rows beyond their privacy unit's bound, or whose unit is missing.
        left_out: For each column, rows whose value cannot be encoded.
        clamped: For each numeric column, rows outside [lower, upper].
        unreviewed: Values that were read off the data and that nobody confirmed.
        problems: What must change before the policy opens; empty when it is ready.
        advice: What is worth a look.
    """

    dataset: str
    source_rows: int
    encoded_rows: int
    max_rows: int
    over_unit: int
    left_out: dict[str, int]
    clamped: dict[str, int]
    unreviewed: tuple[str, ...]
    problems: tuple[str, ...]
    advice: tuple[str, ...]

    @property
    def ready(self) -> bool:
        """Whether the policy can be granted on."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"ready": self.ready}


@dataclass(frozen=True)
class Account:
    """One analyst's budget as the ledger has it; nano-epsilons.

    Attributes:
        remaining: What can still be asked: 0 once revoked or expired, and never more than the cap leaves.
        state: ``active``, ``spent``, ``cap reached``, ``expired`` or ``revoked``.
        warnings: After a change, what the provider should know about it.
    """

    analyst: str
    limit: int
    spent: int
    remaining: int
    expires: datetime | None
    state: str
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; losses as decimal numbers."""
        numbers = {name: float(exact(getattr(self, name))) for name in ("limit", "spent", "remaining")}
        return {"analyst": self.analyst, **numbers, "expires": self.expires.isoformat() if self.expires else None, "state": self.state}


@dataclass(frozen=True)
class Status:
    """All accounts of a dataset, and what all analysts together spent under the cap; nano-epsilons."""

    dataset: str
    cap: int
    spent: int
    accounts: tuple[Account, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; losses as decimal numbers."""
        numbers = {"cap": self.cap, "spent": self.spent, "remaining": max(0, self.cap - self.spent)}
        return {"dataset": self.dataset, **{k: float(exact(v)) for k, v in numbers.items()}, "analysts": [one.to_dict() for one in self.accounts]}


def check(policy: str | os.PathLike[str] | Policy) -> CheckReport:
    """Encodes the source as the policy says and counts what happened. Works on unreviewed policies, which are not ready.

    Raises:
        PolicyError: Wrong policy, or a source that cannot be read or lacks a declared column.
    """
    loaded = load_policy(policy)
    # Any salt will do: which of a unit's rows are kept depends on it, how many does not.
    engine, counted = open_engine(loaded, salt=b"check", report=True)
    engine.close()
    assert counted is not None
    unreviewed = tuple(loaded.unreviewed_fields())
    problems = [f"{_many(len(unreviewed), 'value')} read off the data and not reviewed: {_listed(unreviewed)}"] if unreviewed else []
    if counted.source_rows > loaded.max_rows:
        problems.append(f"the source has {counted.source_rows:,} rows, more than max_rows ({loaded.max_rows:,}); declare a bound that holds")
    if counted.encoded_rows == 0:
        problems.append("no row can be encoded, so every answer would be noise alone")
    rows = max(1, counted.source_rows)
    advice = [
        f"{name}: {missing:,} rows ({100 * missing / rows:.0f} %) have no declared value and are left out; declare it, or `nullable: true`"
        for name, missing in counted.left_out.items() if missing >= LEFT_OUT_SHARE * rows and missing
    ]
    advice += [
        f"{name}: {outside:,} rows ({100 * outside / rows:.0f} %) lie outside [lower, upper] and count as the nearer bound"
        for name, outside in counted.clamped.items() if outside >= LEFT_OUT_SHARE * rows and outside
    ]
    return CheckReport(
        loaded.dataset, counted.source_rows, counted.encoded_rows, loaded.max_rows, counted.over_unit,
        counted.left_out, counted.clamped, unreviewed, tuple(problems), tuple(advice),
    )


def grant(policy: str | os.PathLike[str] | Policy, analyst: str, epsilon: Loss, expires: str | date | None = None) -> Account:
    """Grants a new analyst a budget. Warns, and does not refuse, where all grants together pass the cap.

    Args:
        policy: A reviewed policy.
        analyst: Printable text of at most 128 characters.
        epsilon: The limit.
        expires: See ``parse_expiry``.

    Raises:
        PolicyError: Wrong or unreviewed policy, or its source does not exist.
        QueryError: A malformed argument.
        LedgerError: The analyst has a grant already, or the ledger cannot be trusted.
    """
    _require_name(analyst)
    limit, until = to_nano(epsilon), _future(expires)
    loaded = load_policy(policy)
    loaded.require_reviewed()
    _require_source(loaded)
    with closing(open_ledger(loaded)) as ledger:
        ledger.grant(analyst, limit, until)
        return _report(ledger, analyst)


def extend(policy: str | os.PathLike[str] | Policy, analyst: str, epsilon: Loss | None = None, expires: str | date | None = None) -> Account:
    """Raises an analyst's limit by ``epsilon``, moves the expiry, or both.

    Raises:
        QueryError: Neither is given, or one is malformed.
        LedgerError: There is no such grant, or the ledger cannot be trusted.
        PolicyError: Wrong or unreviewed policy.
    """
    if epsilon is None and expires is None:
        raise QueryError("extend needs `epsilon` (how much more), `expires`, or both.")
    more, until = None if epsilon is None else to_nano(epsilon), _future(expires)
    with closing(_existing(load_policy(policy), declare=True)) as ledger:
        ledger.extend(analyst, more, until)
        return _report(ledger, analyst)


def revoke(policy: str | os.PathLike[str] | Policy, analyst: str) -> Account:
    """Ends a grant at once; what it spent stays spent.

    Raises:
        LedgerError: There is no such grant, or the ledger cannot be trusted.
        PolicyError: Wrong policy.
    """
    # A policy under revision must never stand in the way of taking a grant back, so nothing is declared here.
    with closing(_existing(load_policy(policy), declare=False)) as ledger:
        ledger.revoke(analyst)
        return _report(ledger, analyst)


def show(policy: str | os.PathLike[str] | Policy) -> Status:
    """What each analyst was granted, spent and has left. Reads the ledger only.

    Raises:
        LedgerError: There is no ledger, or it cannot be trusted.
        PolicyError: Wrong policy.
    """
    loaded = load_policy(policy)
    with closing(_existing(loaded, declare=False)) as ledger:
        spent, cap = ledger.joint()
        accounts = tuple(_account(one, max(0, cap - spent)) for one in ledger.grants().values())
        return Status(loaded.dataset, cap, spent, accounts)


def parse_expiry(expires: str | date | None) -> datetime | None:
    """The moment from which a grant no longer counts.

    Args:
        expires: An ISO date, which means until the end of that day in UTC, or an ISO date and time, in UTC unless it says
            otherwise; or a ``date`` or ``datetime``. None for never.

    Raises:
        QueryError: Neither of these.
    """
    if expires is None:
        return None
    found = expires if isinstance(expires, date) else None
    for read in (date.fromisoformat, datetime.fromisoformat):
        if isinstance(expires, str) and found is None:
            with suppress(ValueError):
                found = read(expires.strip())
    if found is None:
        raise QueryError(f"`expires` is {str(expires)[:40]!r}; write 2030-01-31 for all of that day (UTC), or a time, 2030-01-31T18:00Z.")
    try:
        moment = found if isinstance(found, datetime) else datetime.combine(found, time(23, 59, 59, 999_999))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise QueryError(f"`expires` is {str(expires)[:40]!r}, which no calendar in UTC has.") from None


def _future(expires: str | date | None) -> datetime | None:
    moment = parse_expiry(expires)
    if moment is not None and moment <= now():
        shown = moment.isoformat(sep=" ", timespec="seconds")
        raise QueryError(f"`expires` is {shown}, which is past; name a moment to come. To end a grant now, use `pinq revoke`.")
    return moment


def _require_name(analyst: object) -> None:
    if not isinstance(analyst, str) or not analyst.strip() or analyst != analyst.strip() or len(analyst) > MAX_NAME or not analyst.isprintable():
        raise QueryError(f"`analyst` is {repr(analyst)[:60]}; it must be 1 to {MAX_NAME} printable characters without blanks around them.")


def _require_source(policy: Policy) -> None:
    """A misspelt source must not get a ledger: budgets would be kept beside nothing."""
    path = policy.source_path()
    if path is None:
        return
    pattern = any(sign in path.name for sign in "*?[")
    if not (any(path.parent.glob(path.name)) if pattern else path.exists()):
        raise PolicyError(f"There is no source {path}. Correct `source:` of {policy.dataset!r}; relative paths start at the policy file.")


def _existing(policy: Policy, *, declare: bool) -> Ledger:
    """The ledger of a policy where there is one; it is never made here. ``declare`` also logs a changed policy."""
    if declare:
        policy.require_reviewed()
        return open_ledger(policy, create=False)
    return Ledger(ledger_url(policy), policy.dataset, create=False)


def _report(ledger: Ledger, analyst: str) -> Account:
    grants, (spent, cap) = ledger.grants(), ledger.joint()
    # What was spent under an ended grant still counts against the cap.
    promised = sum(one.limit if one.valid else one.spent for one in grants.values())
    warnings = []
    if grants[analyst].valid and promised > cap:
        warnings.append(
            f"All grants together come to epsilon {decimal(promised)}, above the cap of {decimal(cap)}: analysts who share little of what they ask "
            "will be refused under the cap before they reach their own limits."
        )
    return replace(_account(grants[analyst], max(0, cap - spent)), warnings=tuple(warnings))


def _account(one: Grant, cap_left: int) -> Account:
    state = "revoked" if one.revoked else "expired" if not one.valid else "spent" if one.remaining == 0 else "active" if cap_left else "cap reached"
    return Account(one.analyst, one.limit, one.spent, min(one.remaining, cap_left), one.expires, state)


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


# Propose


def propose(
    data: str | os.PathLike[str], *, target: str | None = None, dataset: str | None = None, folder: str | os.PathLike[str] | None = None
) -> str:
    """Proposes a policy for a table, as YAML with comments. Nothing in it counts before the provider reviewed it.

    Args:
        data: A Parquet or CSV file (or pattern), or ``file.duckdb::table`` (``file.duckdb::schema::table``).
        target: The column that models will predict; it must be fit for it.
        dataset: The name under which analysts will know it; the file's or table's by default.
        folder: Where the policy will be kept; ``source`` is written relative to it. Absolute by default.

    Raises:
        PolicyError: The source cannot be read, or nothing in it, or not the target, can be a column.
    """
    source, stem = _source_of(os.fspath(data), folder)
    name = dataset if dataset is not None else re.sub(r"[^A-Za-z0-9_.-]+", "_", stem).strip("_.-")[:64] or "dataset"
    try:
        column = Categorical(values=("-",))
        bare = Policy.model_validate({"dataset": name, "source": source, "cap": 1, "max_rows": 1, "columns": {"-": column}, "folder": folder or "."})
    except ValidationError:
        raise PolicyError(f"The dataset name {name[:80]!r} must be 1 to 64 letters, digits, `_`, `.` and `-`, the first a letter or digit.") from None
    connection, table, types = read_columns(bare)
    with closing(connection):
        if target is not None and target not in types:
            raise PolicyError(f"The source has no column {target!r}{closest(target, types)}; it has {', '.join(types)}.")
        rows = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # type: ignore[index]
        columns: dict[str, dict[str, Any]] = {}
        left_out: dict[str, str] = {}
        for each, kind in types.items():
            found = _propose_column(connection, table, each, kind, rows, each == target, columns)
            if isinstance(found, str):
                left_out[each] = found
            else:
                columns[each] = found
    if target in left_out:
        raise PolicyError(f"The target {target!r} cannot be a column: {left_out[target]}.")
    if not columns:
        reasons = "; ".join(f"{each}: {why}" for each, why in left_out.items()) or "it has no columns"
        raise PolicyError(f"Nothing in the source can be a column. {reasons}.")
    text = _yaml(name, source, rows, columns, left_out, target)
    Policy(**yaml.safe_load(text))
    if yaml.safe_load(text)["columns"] != columns:
        raise InternalError("The proposed policy does not read back as it was written. Please report it.")
    return text


def _propose_column(connection: Any, table: str, name: str, kind: str, rows: int, target: bool, known: dict[str, Any]) -> dict[str, Any] | str:
    """A column's declaration, or why it has none."""
    if not name or "\x00" in name or any(name.casefold() == other.casefold() for other in known):
        return "its name is empty, contains a NUL character, or differs from another only in case"
    if not re.fullmatch(f"{_WHOLE}|{_REAL}|{_MOMENT}|{_TEXT}", kind):
        return f"values of type {kind[:40]} are neither categories nor numbers"
    # A cast as encoding does it, so that what is proposed is what is encoded; NaN is missing, infinities clamp.
    q, real = quoted(name), bool(re.fullmatch(_REAL, kind))
    number = "NULL::DOUBLE" if re.fullmatch(_MOMENT, kind) else f"TRY_CAST({q} AS DOUBLE)"
    finite = f"FILTER (isfinite({number}))"
    filled, parsed, low, high, whole, codes, longest, distinct = connection.execute(
        f"SELECT count({q}) {f'FILTER (NOT isnan({number}))' if real else ''}, count({number}) FILTER (NOT isnan({number})), "
        f"min({number}) {finite}, max({number}) {finite}, coalesce(bool_and({number} = trunc({number})) {finite}, false), "
        f"count(*) FILTER (regexp_matches({q}::VARCHAR, '^[+-]?0[0-9]')), coalesce(max(length({q}::VARCHAR)), 0), "
        f"approx_count_distinct({q}) FROM {table}"
    ).fetchone()
    if not filled:
        return "it holds no values"
    numeric = parsed == filled and not codes and low is not None and not re.fullmatch(_MOMENT, kind) and kind != "BOOLEAN"
    texts = None
    if distinct <= 1.2 * MAX_CATEGORIES:  # the estimate's error is a few percent
        found = connection.execute(f"SELECT DISTINCT {q}::VARCHAR FROM {table} WHERE {q} IS NOT NULL LIMIT {MAX_CATEGORIES + 1}").fetchall()
        texts = [text for text, in found]
    few = texts is not None and len(texts) <= FEW
    if re.fullmatch(_MOMENT, kind) and not few:
        return "dates and times are neither categories nor numbers here; add a column such as a year or an age to the source"
    if re.search(_IDENTITY, name.casefold()) and distinct > 0.9 * rows > FEW and (whole or not numeric):
        unit = f"privacy_unit: {{column: {json.dumps(name, ensure_ascii=False)}, max_rows: ...}}"
        return f"it seems to name rows or persons; where a person can have several rows, declare {unit}"
    if numeric and not (few and whole and (target or _are_codes(name, len(texts or ()), low, high))):
        return _propose_numeric(low, high, bool(whole), kind, parsed < rows)
    if texts is None or len(texts) > MAX_CATEGORIES:
        return f"it has more than {MAX_CATEGORIES:,} different values; group them in the source, or declare those that are publicly known"
    if len(texts) > FEW and len(texts) > rows / 2 and not numeric:
        return "its values hardly repeat, so they may name persons"
    values = [_category(text, kind) for text in texts if not (real and text.lower() in ("nan", "inf", "-inf"))]
    if longest > MAX_TEXT or any("\x00" in str(value) for value in values):
        return f"it holds texts of more than {MAX_TEXT} characters, or with NUL characters, which are no categories"
    values.sort(key=lambda value: (isinstance(value, str), value))
    return {"type": "categorical", "values": values, "nullable": filled < rows, "unreviewed": ["values", "nullable"]}


def _are_codes(name: str, count: int, low: float, high: float) -> bool:
    """Whether a few whole numbers are categories: two of them, or dense ones under a name that is no quantity's."""
    return count <= 2 or (not re.search(_QUANTITY, name.casefold()) and high - low + 1 <= 2 * count)


def _category(text: str, kind: str) -> str | int | bool:
    """The declared form of a value, whose text is the one that encoding compares."""
    if kind == "BOOLEAN":
        return text == "true"
    if kind in ("DOUBLE", "FLOAT") and float(text).is_integer():
        return int(float(text))
    return int(text) if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) else text


def _propose_numeric(low: float, high: float, whole: bool, kind: str, nullable: bool) -> dict[str, Any]:
    """Bounds rounded outward to a round unit, and a round step: each bound is a whole number of steps, so the grid is exact."""
    least, most = Decimal(repr(low)), Decimal(repr(high))
    unit = _round_up((most - least) / 10 or abs(most) / 10 or Decimal(1))
    unit = max(Decimal(1), unit) if whole else unit
    lower, upper = (least / unit).to_integral_value(ROUND_FLOOR) * unit, (most / unit).to_integral_value(ROUND_CEILING) * unit
    upper += unit if lower == upper else 0
    declared: dict[str, Any] = {"type": "numeric", "lower": _number(lower), "upper": _number(upper)}
    waiting = ["lower", "upper"]
    if whole:
        declared["integer"] = True
        waiting += [] if re.fullmatch(_WHOLE, kind) else ["integer"]
    if not whole or upper - lower > MAX_STEPS_OF_ONE:
        declared["step"] = _number(_round_up((upper - lower) / REAL_CELLS))
        waiting.append("step")
    return declared | {"nullable": nullable, "unreviewed": [*waiting, "nullable"]}


def _round_up(number: Decimal) -> Decimal:
    """The smallest of 1, 2 and 5 times a power of ten that is not below ``number``."""
    power = Decimal(1).scaleb(number.adjusted())
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= number)


def _source_of(data: str, folder: str | os.PathLike[str] | None) -> tuple[str | dict[str, str], str]:
    """The policy's ``source`` and a name for the dataset."""
    path, *inside = data.split("::")
    if len(inside) > 2 or not path or not all(inside):
        raise PolicyError(f"{data!r} is no source; write data.parquet, data.csv, or file.duckdb::table.")
    if not inside and path.endswith((".duckdb", ".db", ".ddb")):
        raise PolicyError(f"{path} is a database; say which table of it: {path}::TABLE.")
    shown = os.path.abspath(path)
    if folder is not None:
        shown = os.path.relpath(os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path)), os.path.realpath(folder))
    if not inside:
        return shown, Path(path).name.split(".")[0]
    return {"database": shown, "table": inside[-1]} | ({"schema": inside[0]} if len(inside) == 2 else {}), inside[-1]


_HEAD = """\
# Proposed by `pinq init`. What is named under `unreviewed` was read off the data, and a domain that follows the rows leaks them,
# so this policy opens nothing yet:
#   1. Put what is publicly known (a code book, a form, a law) in the place of each such value, or confirm it, and delete
#      its name from `unreviewed`. Delete `unreviewed` where nothing is left in it.
#   2. Delete columns that nobody should ask about. Values and bounds are public: every analyst reads them.
#   3. `pinq check` shows what the policy does to the data; `pinq grant` gives an analyst a budget.
"""


_HINTS = {
    "lower": "smaller numbers count as this one; choose it without looking at the rows",
    "upper": "larger numbers count as this one",
    "step": "width of a grid cell; both bounds are whole numbers of steps",
    "nullable": "whether a missing value is a value of its own; false leaves such rows out",
}


def _yaml(name: str, source: Any, rows: int, columns: dict[str, dict[str, Any]], left_out: dict[str, str], target: str | None) -> str:
    lines = [
        _HEAD.rstrip("\n"), *_dump({"version": 1, "dataset": name, "source": source}, False),
        "cap: 1.0  # epsilon over all analysts together, for they may collude",
        "adjacency: add-remove  # hides whether a row is in the table; `substitute` hides what is in it, and costs twice the noise",
        "privacy_unit: row  # or {column: person_id, max_rows: 3}, where a person can have several rows",
        f"max_rows: {_round_up(Decimal(rows + 1)):f}  # no table under this policy will ever have more rows",
        "unreviewed: [max_rows]", "", "columns:",
    ]
    hints = dict(_HINTS)  # each is given once
    for column, declared in columns.items():
        lines += ["  # the target"] if column == target else []
        for line in _dump({column: declared}, None):
            key = line.removeprefix("  ").split(":")[0]
            hint = hints.pop(key, None) if line.startswith("  ") else None
            lines.append(f"  {line}" + (f"  # {hint}" if hint else ""))
    if left_out:
        lines += ["", "# Left out:", *(f"#   {printable(column)}: {printable(why)}" for column, why in left_out.items())]
    return "\n".join(lines) + "\n"


def _dump(content: dict[str, Any], flow: bool | None) -> list[str]:
    """Lines of YAML; with ``flow`` None, innermost lists stand in brackets."""
    # PyYAML folds Unicode's own line breaks into blanks unless they are escaped.
    plain = not re.search("[\x85\u2028\u2029\ufeff]", json.dumps(content, ensure_ascii=False))
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=plain, width=110, default_flow_style=flow)).rstrip("\n").split("\n")
