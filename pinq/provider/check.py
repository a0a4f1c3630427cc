# SPDX-License-Identifier: Apache-2.0
"""``check`` shows how a policy fits its source; ``advice`` names declarations that probably lack the intended effect.

All results have raw values and exact numbers, for the provider only; they are never written or logged.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from fractions import Fraction

import pyarrow as pa

from pinq.engine import ArrayEngine, EncodingReport, SparkEngine, group_sizes, open_engine, read_columns
from pinq.engine.encoding import Encoder, bars_of
from pinq.engine.formats import as_options, date_forms, likely_spelling
from pinq.engine.numbers import define_readings
from pinq.engine.sources import declared_columns, quoted, require_columns, small_database
from pinq.errors import LedgerError, PolicyError
from pinq.ledger.database import NoLedger
from pinq.ledger.events import PolicyDeclared
from pinq.ledger.ledger import Ledger
from pinq.policy.dialect import Dialect
from pinq.policy.files import source_dialect, source_facts
from pinq.policy.policy import Policy
from pinq.provider.exposure import SourceFinding, exposure
from pinq.provider.opening import guarding_ledger
from pinq.provider.policy_file import load_policy
from pinq.provider.versions import cohorts_of, rows_of
from pinq.public.checks import first_of, text_of
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Column, unit_text


def advice(policy: Policy, counted: EncodingReport) -> tuple[str, ...]:
    """Declarations that probably do not have the intended effect."""
    return (*_lines(policy, counted), *_losses(policy, counted), *_uneven(policy))


def _lines(policy: Policy, counted: EncodingReport) -> list[str]:
    """Notes the lines of a text file that cannot be read, within the policy's limit, and cells of workbooks."""
    dialect, lines = source_dialect(policy), counted.lines
    if dialect is None:
        return []
    cells = [
        f"{name}: {count:,} {reason}"
        for reason, counts in lines.cells.items()
        for name, count in counts.items()
        if name in policy.columns
    ]
    return [
        *cells,
        *([] if not lines.lost or lines.beyond(dialect.max_unreadable) else [f"{lines}; they are left out"]),
    ]


def _losses(policy: Policy, counted: EncodingReport) -> list[str]:
    """Notes rows that are left out, clamped, or over their unit's bound, if they are many."""

    def many(count: int) -> bool:
        # A loss of at least a tenth of the rows is noted.
        return 0 < count >= 0.1 * counted.source_rows

    def share(count: int) -> str:
        return f"{count:,} rows ({100 * count / counted.source_rows:.0f} %)"

    notes = []
    for name, column in policy.columns.items():
        unread, texts = counted.unread.get(name, (0, []))
        if column.type != "categorical" and many(unread):
            notes.append(f"{name}: {share(unread)} hold {_misfits(policy, name, texts)}")
        elif many(count := counted.left_out[name]):
            such = f", such as {', '.join(map(repr, texts[:3]))}" if texts else ""
            is_truth = any(value is True for value in getattr(column, "values", ()))
            cure = "declare it" + (" as text or a number: only true and false are truth values" if is_truth else "")
            notes.append(
                f"{name}: {share(count)} have no declared value and are left out{such}; {cure}, or `nullable: true`"
            )
    notes += [
        f"{name}: {share(count)} lie outside [lower, upper] and count as the nearer bound"
        for name, count in counted.clamped.items()
        if many(count)
    ]
    if many(counted.over_unit):
        notes.append(
            f"privacy_unit: {share(counted.over_unit)} are beyond the bound of "
            f"{unit_text(policy.bounded_unit)}, or name no unit, "
            "and are left out; a higher bound keeps more and makes more noise"
        )
    return notes


def _misfits(policy: Policy, name: str, texts: list[str]) -> str:
    """Describes a numeric column's commonest texts that are no numbers or dates, and a form that would read them."""
    column, dialect = policy.columns[name], source_dialect(policy)
    shown = ", ".join(map(repr, texts[:3]))
    fate = "count as missing" if column.nullable else "are left out"
    noun = "numbers" if column.type == "numeric" else f"{column.type}s"
    cure = "correct them, or the type"
    with small_database() as connection:
        define_readings(connection, dialect)
        connection.register("misfits", pa.table({"text": texts}))
        if column.type != "numeric":
            clock = " %H:%M" if ":" in texts[0] else ""
            reads = [
                f'`csv: {{dates: ["{form}"]}}`' if dialect else f"`formula: strptime({quoted(name)}, '{form}{clock}')`"
                for form in date_forms(connection, "misfits", "text")[0]
            ]
            cure = f"they look like dates, read by {' or '.join(reads)}" if reads else cure
        elif choices := likely_spelling(connection, "misfits", "text", dialect or Dialect()):
            options = " or ".join(map(as_options, choices))
            cure = f"they look like numbers written otherwise: {options} of `pinq init`, or `csv:`"
        connection.unregister("misfits")
    return f"texts that are no {noun}, such as {shown}, and {fate}; {cure}"


def _uneven(policy: Policy) -> list[str]:
    """Notes grids whose last cell is cut off at ``upper``, such as 140 to 210 in steps of 0.03."""
    notes = []
    for name, column in policy.columns.items():
        if column.type == "categorical" or column.integer or column.step is None:
            continue
        end = column.lower + column.cells * column.step
        if Fraction(end) != Fraction(column.upper):
            middle = f"{column.number(column.cells - 1):g}"
            notes.append(
                f"{name}: {column.lower} to {column.upper} is no whole number of steps of {column.step}; the "
                f"last cell is cut off "
                f"at `upper`, and what lies in it counts as {middle}. With `upper: {end}` all cells are equal"
            )
    return notes


def _pending_cap(policy: Policy, ledger: Ledger) -> Iterator[str]:
    """Notes that the log has another cap, and when the policy's cap takes effect."""
    cap, declared = ledger.together().cap, Epsilon(policy.cap_nano)
    change, acts = ("lower", "opening or start") if declared < cap else ("higher", "or start")
    if declared != cap:
        when = f"a {change} cap counts from the next `pinq grant` or `extend`, {acts} of a server on"
        yield f"cap: the log has {cap}, this policy {declared}; {when}"


@dataclass(frozen=True)
class CheckReport:
    """The fit of a policy to its source.

    Attributes:
        encoded_rows: Rows that queries see.
        over_unit: Rows beyond their privacy unit's bound, or whose unit is missing.
        left_out: For each column, the number of rows whose value cannot be encoded.
        clamped: For each numeric column, the number of rows outside [lower, upper].
        unreviewed: Values that were read off the data and that nobody confirmed.
        problems: The faults that keep the policy from opening; empty when it is ready.
        advice: Facts that deserve a look.
        unreadable: Lines of delimited text that cannot be read, by reason; they count as rows that
            are left out.
        asked: The names of problems that the provider settles by a reason (``persons.COLUMN``).
        lost: For each column of categories, undeclared values and the numbers of their rows.
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
    unreadable: dict[str, int] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    lost: dict[str, list[tuple[str, int]]] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Whether the policy can be granted on."""
        return not self.problems

    def to_dict(self) -> dict[str, object]:
        return asdict(self) | {"ready": self.ready}


def check(policy: str | os.PathLike[str] | Policy) -> CheckReport:
    """Encodes the source as the policy declares, and counts omitted and clamped rows.

    Raises:
        PolicyError: Wrong policy, or a source that cannot be read or lacks a declared column.
    """
    loaded = load_policy(policy).at()
    with _known_ledger(loaded) as (ledger, wrong):
        # The salt decides which of a unit's rows are kept, not how many, so any salt will do. Digests of rows
        # need the ledger's salt.
        engine, counted = open_engine(loaded, salt=b"check" if ledger is None else ledger.salt, report=True)
        with closing(engine):
            changed, due = ((), ()) if ledger is None else _logged(loaded, ledger, engine)
    assert counted is not None
    unreviewed, exposed = tuple(loaded.unreviewed_in_table()), exposure(loaded, counted.unread)
    open_findings = [finding for finding in exposed.findings if finding.name and finding.name not in loaded.reviewed]
    settled = [
        finding.text + (f" (accepted: {loaded.reviewed[finding.name]})" if finding.name else "")
        for finding in exposed.findings
        if finding not in open_findings
    ]
    return CheckReport(
        loaded.name,
        counted.source_rows,
        counted.encoded_rows,
        loaded.max_rows,
        counted.over_unit,
        counted.left_out,
        counted.clamped,
        unreviewed,
        (*_problems(loaded, counted, unreviewed), *wrong, *changed, *(_asking(finding) for finding in open_findings)),
        (*settled, *advice(loaded, counted), *due),
        counted.lines.unreadable,
        tuple(finding.name for finding in open_findings),
        dict(exposed.lost),
    )


def _asking(finding: SourceFinding) -> str:
    return f"{finding.text}. Or say why it is right: pinq review --accept {shlex.quote(finding.name)} --because TEXT"


@contextmanager
def _known_ledger(policy: Policy) -> Iterator[tuple[Ledger | None, tuple[str, ...]]]:
    """Opens an existing ledger for reading; or returns the reason why no server can open it."""
    try:
        ledger = guarding_ledger(policy, read_only=True)
    except NoLedger:
        yield None, ()
    except (LedgerError, PolicyError, OSError) as error:
        yield None, (str(error),)
    else:
        with closing(ledger):
            yield ledger, ()


def _logged(
    policy: Policy, ledger: Ledger, engine: ArrayEngine | SparkEngine
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Compares a policy and its rows with the log; returns faults, and the changes by the next opening."""
    changed, due = _version(policy, ledger, engine)
    wrong = [changed] if changed else []
    try:
        ledger.log.state.due(
            PolicyDeclared(policy.schema_.digest, Epsilon(policy.cap_nano), policy.logged, "sum"), ledger.address, True
        )
    except LedgerError as error:
        wrong.append(str(error))
    return tuple(wrong), (*_pending_cap(policy, ledger), *due)


def _version(policy: Policy, ledger: Ledger, engine: ArrayEngine | SparkEngine) -> tuple[str, tuple[str, ...]]:
    """A fault if rows differ from their declared version, and a note if the next opening begins a version."""
    state = ledger.log.state
    before = state.rows.get(policy.table)
    try:
        rows = rows_of(policy, source_facts(policy)).after(before, state.last, engine.contents)
        for _, cohort, digest in cohorts_of(policy, engine):
            cohort.after(state.rows.get(cohort.place), state.last, lambda digest=digest: digest)  # type: ignore[misc]
    except PolicyError as error:
        return str(error), ()
    if before is None or rows.number == before.number:
        return "", ()
    begins = f"the next opening begins version {rows.number} ({rows.why})"
    return "", (f"rows: {begins}; what was asked of the earlier rows stays spent, and does not count as paid for it",)


def _problems(policy: Policy, counted: EncodingReport, unreviewed: tuple[str, ...]) -> Iterator[str]:
    """Yields the faults that keep the policy from opening."""
    if unreviewed:
        values = f"{len(unreviewed):,} value{'' if len(unreviewed) == 1 else 's'}"
        yield f"{values} guessed or read off the data and not reviewed: {first_of(unreviewed, 8)}"
    if counted.source_rows > policy.max_rows:
        rows = f"the source has {counted.source_rows:,} rows"
        yield f"{rows}, more than max_rows ({policy.max_rows:,}); declare a bound that holds"
    if counted.encoded_rows == 0:
        yield "no row can be encoded, so every answer would be noise alone"
    dialect, lines = source_dialect(policy), counted.lines
    if dialect is not None and lines.beyond(dialect.max_unreadable):
        share = dialect.max_unreadable
        yield f"{lines}; the policy allows {100 * share:g} % (`csv: {{max_unreadable: {share:g}}}`)"


LEFT_OUT = "left out"


@dataclass(frozen=True)
class Example:
    """A value of a row, and how the policy reads it.

    Attributes:
        raw: The value in the source; empty for a missing one.
        read: The value for queries; ``missing``, or ``left out`` if it is not declared.
    """

    raw: str
    read: str


@dataclass(frozen=True)
class RowsPerValue:
    """The numbers of rows of the values of a column, for example of each person.

    Attributes:
        largest: The number of rows with the commonest value.
        sizes: Pairs (number of rows, number of values with so many rows), the largest first.
    """

    values: int
    largest: int
    sizes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Shape:
    """The exact histogram of a column, for a picture beside its declaration.

    Attributes:
        bars: The numbers of rows: of each value, or of equal intervals between the bounds.
        below, above: The numbers of rows beyond a bound, which count as the bound.
        lost: The number of rows without a declared value.
        width: The width of an interval; 0 for values.
    """

    bars: tuple[int, ...]
    below: int
    above: int
    lost: int
    width: float


def shapes(policy: str | os.PathLike[str] | Policy) -> dict[str, Shape]:
    """Counts the rows of each column as its declaration would encode them, in one pass.

    Raises:
        PolicyError: Wrong policy, or a source that cannot be read or lacks a declared column.
    """
    loaded = load_policy(policy).at()
    with read_columns(loaded, likely=False) as raw:
        require_columns(declared_columns(loaded), raw.types)
        encoder = Encoder(raw.connection, loaded, raw.types, b"")
        ((rows, *maps),) = raw.connection.execute(encoder.shapes(raw.name)).fetchall()
    histograms: dict[str, Shape] = {}
    for (name, column), counts in zip(loaded.schema_.columns.items(), maps, strict=True):
        counts = counts or {}
        bars, width = (column.cells, 0.0) if column.type == "categorical" else bars_of(column)
        inside = tuple(counts.get(bar, 0) for bar in range(bars))
        beyond = 0 if width == 0 else counts.get(bars, 0)
        histograms[name] = Shape(inside, counts.get(-1, 0), beyond, rows - sum(counts.values()), width)
    return histograms


def examples(policy: str | os.PathLike[str] | Policy, rows: int = 5) -> dict[str, list[Example]]:
    """Reads some rows: for each column, raw values and how the policy reads them.

    Raises:
        PolicyError: Wrong policy, or a source that cannot be read or lacks a declared column.
    """
    loaded = load_policy(policy).at()
    with read_columns(loaded, likely=False) as raw:
        require_columns(declared_columns(loaded), raw.types)
        encoder = Encoder(raw.connection, loaded, raw.types, b"")
        lines = raw.connection.execute(encoder.compared(raw.name, rows)).fetchall()
    by_column: dict[str, list[Example]] = {}
    for position, (name, column) in enumerate(loaded.columns.items()):
        pairs = (line[2 * position : 2 * position + 2] for line in lines)
        by_column[name] = [Example(value or "", _read(column, code)) for value, code in pairs]
    return by_column


def groups(policy: str | os.PathLike[str] | Policy, column: str, limit: int = 6) -> RowsPerValue:
    """Counts the rows of each value of a column, to show whether it names persons, and their rows.

    Raises:
        PolicyError: Wrong policy, or a source that cannot be read or has no such column.
    """
    with read_columns(load_policy(policy).at(), likely=False) as raw:
        require_columns([column], raw.types)
        values, sizes = group_sizes(raw.connection, raw.name, column, limit)
        return RowsPerValue(values, sizes[0][0], tuple(size for size in sizes if values))


def raw_columns(policy: str | os.PathLike[str] | Policy) -> list[str]:
    """The names of all columns of the source, declared or not."""
    with read_columns(load_policy(policy).at(), likely=False) as raw:
        return list(raw.types)


def _read(column: Column, code: int | None) -> str:
    if code is None:
        return LEFT_OUT
    if code == column.null_code:
        return "missing"
    return text_of(column.values[code]) if column.type == "categorical" else column.text(column.number(code))
