# SPDX-License-Identifier: Apache-2.0
"""Columns that name persons, or tell them apart: for the provider who proposes a policy, and for its check.

Names, in English, German, French, Spanish and Italian, and looks of texts only warn and leave out a column.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from pinq.engine import ColumnProfile, group_sizes
from pinq.engine.sources import quoted

FEW = 20  # the most different values that are categories under any name of the column
FEWEST = 20  # the least number of persons for which a value is proposed
GLANCE = 200_000  # rows in which columns that may name persons are compared
PERSONS = 3  # the rank of a column whose name clearly means persons
SHARED = 2  # the least number of other columns that are constant within each value of a column of persons

_ID = (
    r"(ids?|nr|no|num|nbr|number|nummer|numero|n|kennung|kennz\w*|key|code|schluessel|identifier|identifiant|"
    r"identificador|identifikator|identificativo|uid|uuid|guid|ref|reference|referenz|pseudonym|pseudo|hash)"
)
_SOMEBODY = (
    r"(pers|person\w{0,3}|personen|persona|personne|individu\w*|pat|patient\w{0,3}|paciente|paziente|subject|subj|"
    r"sujet|sujeto|participant|participante|teilnehmer|proband\w*|user|usuario|utilisateur|utente|nutzer|benutzer|"
    r"customer|client|cliente|kunde\w?|kund|member|membre|miembro|mitglied\w{0,2}|student\w{0,2}|schueler|eleve|"
    r"etudiant|alumno|estudiante|pupil|employee|employe|salarie|empleado|dipendente|mitarbeiter|worker|insured|"
    r"versicherte?\w{0,2}|assure|asegurado|beneficiar\w*|resident|citizen|buerger|respondent|befragte\w?|tenant|"
    r"mieter|donor|spender|voter|taxpayer|abonne\w?|subscriber)"
)
_OF_SOMEBODY = r"(kind|child|personal|staff|agent|versicherungs?|account|konto|steuer|sozialversicherungs?|secu)"
_HOUSEHOLD = r"(household|hh|haushalts?|hogar|menage|foyer|family|familie\w?|famille|familia|famiglia)"
_NATIONAL = (
    r"\b(ssn|nss|nir|dni|nie|nif|curp|rut|cpf|svnr|ahv|nhs|mrn|nhc|pid|matricule|matricula|matrikel\w*|egk|"
    r"codice fiscale|social security\w*|securite sociale|seguridad social|sozialversicherung\w*|passport|passnummer|"
    r"medical record|personalausweis\w*)\b"
)
_PERSON = (
    rf"^({_SOMEBODY}|{_OF_SOMEBODY}) ?{_ID}( (hash|nr|id))?$|\b{_SOMEBODY} {_ID}$|"
    rf"^{_ID} (de |du |des |del |della |d |l |of |der )*"
    rf"{_SOMEBODY}$|^{_SOMEBODY}$|{_NATIONAL}"
)
_FAMILY = rf"^{_HOUSEHOLD} ?{_ID}?$|^{_ID} (de |du |des |del |d |of )*{_HOUSEHOLD}$"
_IDENTITY = (
    r"\b(ids?|uuid|guid|key|index|rowid|unnamed|kennung|identifiant|identificador|dossier|aktenzeichen|fallnr)\b|"
    r"\w(nummer|kennung|nr)$| (nr|no|number)$|^(nr|numero|num|no) |^(nr|nummer)$"
)
_QUANTITY = (
    r"\b(age|num|number|count|n|years?|hours?|days?|weeks?|months?|minutes?|amount|income|salary|price|cost|"
    r"gain|loss|score|weight|height|size|total|sum|qty|quantity|alter|anzahl|jahre?|tage?|stunden|dauer|kosten|"
    r"betrag|preis|gehalt|einkommen|gewicht|groesse|summe|edad|nombre de|importe|precio|coste|peso|prix|montant|"
    r"duree|poids|taille)\b"
)
TELLING = {
    "names of persons": r"\b((sur|last|first|given|family|middle|full|user|patient|nach|vor|familien|zu)?name|"
    r"\w*(vorname|nachname|familienname)|surname|nom|prenom|apellidos?|nombre|cognome|forename|initialen|initials)"
    r"\b(?! de)",
    "addresses": r"\b(address|addr|street|road|house ?n\w*|\w*adresse|\w*anschrift|\w*strasse|str|hausnummer|hausnr|"
    r"rue|direccion|calle|indirizzo|via|domicil\w*|wohnort|latitude|longitude|lat|lon|lng|gps|coordinates?)\b",
    "e-mail addresses, phone numbers or accounts": r"\b(e? ?mails?|mail|courriel|correo\w*|\w*(telefon|phone|fon)"
    r"(nummer|nr)?|telephone|tel|mobile?|mobil|movil|handy\w*|portable|fax|iban|kontonummer|url|website|ip|login)\b",
    "employers": r"\b(employer|employeur|empleador|arbeitgeber\w*|company|firma|firmen\w*|entreprise|empresa|"
    r"azienda)\b",
    "free text": r"\b(\w*notiz\w*|\w*notes?|nota|notas|bemerkung\w*|\w*kommentar\w*|comments?|remarks?|remarque\w*|"
    r"commentaires?|observacion\w*|observation libre|anmerkung\w*|\w*freitext\w*|free ?text|\w*text|beschreibung|"
    r"description|comentarios?|anamnese|befund\w*)\b",
    "fine codes of places": r"\b(zip|zip ?code|post ?(al)? ?code|postal|plz|postleitzahl|code postal|codigo postal|cp|"
    r"birth ?place|geburtsort|lieu de naissance|lugar de nacimiento|place of birth)\b",
}
_LOOKS = {
    "e-mail addresses, phone numbers or accounts": r"[^@\s]+@[^@\s]+\.\w+|(\+|00?)[1-9][\d ()/.-]{6,}\d|"
    r"\(?\d{2,5}\)?[ /-]\d{2,5}([ /-]?\d{2,5}){1,3}|https?://.*|[A-Z]{2}\d{2}[A-Z0-9 ]{11,30}",
    "addresses": r"(\p{L}[\p{L}.' -]{2,}) \d{1,4} ?[a-zA-Z]?(,.*)?|\d{1,4}[,]? .*\b(?i:st|street|rd|road|ave|"
    r"avenue|rue|bd|boulevard|lane|ln|drive|dr|calle)\b.*",
    "free text": r".*\S+\s+\S+\s+\S+\s+\S+\s+\S+.*",
}


def plain(name: str) -> str:
    """Returns a column's name as words in lower case without accents: ``patientId`` gives ``patient id``."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.replace("N°", "nr ").replace("nº", "nr "))
    umlauts = apart.casefold().replace("ä", "ae").replace("ö", "oe").replace("ü", "ue")
    bare = "".join(sign for sign in unicodedata.normalize("NFKD", umlauts) if not unicodedata.combining(sign))
    return " ".join(re.split(r"[\W_]+", bare)).strip()


def person_rank(name: str) -> int:
    """Ranks how clearly a column's name means persons: 3 for persons, 2 for households, 1 for any key, else 0."""
    words = plain(name)
    if re.search(r"^(n|nb|num|number|no|nombre|numero|anzahl) (of |de |d |der )*\w+s$", words):
        return 0  # numbers of persons
    ranks = ((PERSONS, _PERSON), (2, _FAMILY), (1, _IDENTITY))
    return next((rank for rank, pattern in ranks if re.search(pattern, words)), 0)


def is_quantity(name: str) -> bool:
    """Whether a column's name means a count or a measurement."""
    return person_rank(name) < 2 and re.search(_QUANTITY, plain(name)) is not None


def telling_name(name: str) -> str:
    """The kind of personal text that a column's name means; empty for none."""
    words = plain(name)
    return next((kind for kind, pattern in TELLING.items() if re.search(pattern, words)), "")


def telling_look(connection: duckdb.DuckDBPyConnection, table: str, name: str) -> str:
    """The kind of personal text that most distinct values of a column look like; empty for none."""
    texts = f"SELECT DISTINCT {quoted(name)}::VARCHAR AS t FROM {table} WHERE {quoted(name)} IS NOT NULL LIMIT 2000"
    for kind, pattern in _LOOKS.items():
        share = connection.execute(
            f"SELECT avg(regexp_full_match(trim(t), $1)::INT) FROM ({texts})", [pattern]
        ).fetchone()
        if share is not None and (share[0] or 0) > 0.5:
            return kind
    return ""


@dataclass(frozen=True)
class Unit:
    """A column that may name the units whose presence is to be hidden.

    Attributes:
        largest: The number of rows of the commonest value.
        shared: The number of other columns that are constant within each value.
    """

    column: str
    values: int
    rows: int
    largest: int
    rank: int = 0
    shared: int = 0

    def __str__(self) -> str:
        return f"{self.column}: {self.values:,} values in {self.rows:,} rows; the commonest stands in {self.largest:,}"


def may_name_persons(name: str, profile: ColumnProfile) -> bool:
    """Whether a column may name persons: it has many values, and is neither measured nor a code."""
    measured = not profile.are_whole and profile.numbers > profile.filled / 2 and not profile.zero_led
    if profile.distinct <= FEW or measured:
        return False
    many_texts = profile.numbers < profile.filled / 2 or profile.zero_led > 0
    by_look = many_texts and profile.distinct >= profile.filled / 10 and not telling_name(name)
    return person_rank(name) > 0 or (by_look and not is_quantity(name))


def rank_units(
    connection: duckdb.DuckDBPyConnection, table: str, names: Sequence[str], profiles: Mapping[str, ColumnProfile]
) -> list[Unit]:
    """Ranks the columns that may name persons, the likeliest first, also those without repeated values."""
    units = []
    for name in names:
        values, [(largest, _)] = group_sizes(connection, table, name)
        others = [column for column in profiles if column != name and profiles[column].distinct > 1][:64]
        shared = _shared(connection, table, name, others) if largest > 1 and values > FEW else 0
        units.append(Unit(name, values, profiles[name].filled, largest, person_rank(name), shared))
    return sorted(units, key=lambda unit: (-unit.rank, -unit.shared, -unit.values))


def _shared(connection: duckdb.DuckDBPyConnection, table: str, name: str, others: Sequence[str]) -> int:
    if not others:
        return 0
    same = ", ".join(
        f"min({quoted(column)}) IS NOT DISTINCT FROM max({quoted(column)}) AS s{i}" for i, column in enumerate(others)
    )
    glance = f"(SELECT * FROM {table} WHERE {quoted(name)} IS NOT NULL LIMIT {GLANCE})"
    each = f"SELECT {same} FROM {glance} GROUP BY {quoted(name)} HAVING count(*) > 1"
    all_of = ", ".join(f"bool_and(s{i})" for i in range(len(others)))
    return sum(bool(constant) for constant in connection.execute(f"SELECT {all_of} FROM ({each})").fetchall()[0])


def standing_out(units: Sequence[Unit]) -> Unit | None:
    """The column that clearly names persons with several rows; None if there is no such column."""
    repeating = [unit for unit in units if unit.largest > 1]
    if not repeating or any(unit.rank == PERSONS and unit.largest == 1 for unit in units):
        return None  # in the second case each row is another person
    first, *others = repeating
    shares_most = first.shared >= SHARED and all(unit.shared < first.shared for unit in others)
    return first if first.rank == PERSONS or (first.rank and shares_most) else None


def counted_over(units: Sequence[Unit]) -> str | None:
    """The likeliest column of persons, by which persons are counted; None to count rows."""
    return next((unit.column for unit in units if unit.largest > 1 and (unit.rank > 1 or unit.shared >= SHARED)), None)


def persons_of_values(
    connection: duckdb.DuckDBPyConnection, table: str, name: str, unit: str | None, fewest: int, different: int = -1
) -> list[tuple[str, int]]:
    """The number of persons for each text of a column; the number of rows without a column of persons.

    A value with ``fewest`` persons in the first ``GLANCE`` rows is not counted further. If that holds for all
    ``different`` values, counting ends.
    """
    counted = "count(*)" if unit is None else f"count(DISTINCT {quoted(unit)})"
    value = f"{quoted(name)}::VARCHAR"
    glance = f"SELECT {value} AS v, {counted} AS c FROM (SELECT * FROM {table} LIMIT {GLANCE}) GROUP BY ALL"
    counts = connection.execute(f"SELECT v, c FROM ({glance}) WHERE v IS NOT NULL AND c >= {fewest}").fetchall()
    if len(counts) == different:
        return [(str(text), int(persons)) for text, persons in counts]
    uncounted = f"{value} IS NOT NULL AND {value} NOT IN (SELECT unnest($1::VARCHAR[]))"
    query = f"SELECT {value}, {counted} FROM {table} WHERE {uncounted} GROUP BY ALL"
    counts += connection.execute(query, [[text for text, _ in counts]]).fetchall()
    return [(str(text), int(persons)) for text, persons in counts]
