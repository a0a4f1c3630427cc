# SPDX-License-Identifier: Apache-2.0
"""``Session`` is the agreement of all parties, made before any party sends anything."""

from __future__ import annotations

import hashlib
import json
import ssl
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, ValidationInfo, field_validator, model_validator

from miners.pictures import shorten
from miners.scorecards.costs import MAX_STEPS
from pinq.errors import QueryError, SessionError
from pinq.public.columns import Declared, FiniteDecimal, problems
from pinq.public.epsilon import Epsilon
from pinq.public.schema import MAX_ROWS, Column, PrivacyUnit, Schema
from pinq_secure.id3.public_tree import ExactRules, LossSplit, NoisyRules, Rule
from pinq_secure.id3.secret_tree import require_paths
from pinq_secure.id3.task import Task, require_records
from pinq_secure.mpc.arithmetic import require_bits, threshold_of
from pinq_secure.sums import Miner, sum_bits

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"


class Member(Declared):
    """A party of a session."""

    name: str = Field(pattern=NAME, description="its name for the others")
    host: str = Field(min_length=1, description="the host on which it accepts the parties listed before it")
    port: int = Field(ge=1, le=65535)
    rows: int = Field(ge=1, le=MAX_ROWS, description="an upper bound of its rows: its policy's `max_rows`")
    lookups: int = Field(
        default=0, ge=0, le=10_000, description="sid3s, sid3t: the number of rows that it may classify"
    )
    certificate: str | None = Field(
        default=None, description="its certificate, PEM, or a file with it beside the session"
    )

    @field_validator("certificate")
    @classmethod
    def _read_in(cls, certificate: str | None, info: ValidationInfo) -> str | None:
        """Reads the named file, so that the certificate itself is part of the agreement.

        The context is the folder of the session's file.
        """
        if certificate is None or info.context is None:
            return certificate
        try:
            text = certificate if "-----BEGIN" in certificate else (info.context / certificate).read_text("ascii")
            return ssl.DER_cert_to_PEM_cert(first_certificate(text))
        except (OSError, ValueError) as error:
            raise ValueError(f"the certificate {certificate[:80]!r} cannot be read: {error}") from None

    @cached_property
    def certificate_der(self) -> bytes | None:
        """The certificate in DER form."""
        return None if self.certificate is None else ssl.PEM_cert_to_DER_cert(self.certificate)


def first_certificate(text: str) -> bytes:
    """The first certificate of a PEM file, DER. Raises ``ValueError`` if there is none."""
    start, end = text.index(ssl.PEM_HEADER), text.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)
    return ssl.PEM_cert_to_DER_cert(text[start:end])


Protocol = Literal["sid3", "sid3s", "sid3t", "sid3p", "topdown", "scorecard"]
SUMMED = ("topdown", "scorecard")  # protocols whose model follows from noisy sums
PUBLIC = ("sid3", "sid3p", *SUMMED)  # protocols whose model is opened to all
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Session(Declared):
    """The agreement of several parties: the computation, its rules, and the opened values."""

    version: Literal[1] = 1
    session: str = Field(pattern=NAME, description="its name")
    protocol: Protocol = Field(
        description="sid3: records are shared; sid3p: only each party's counts; sid3t, sid3s: the tree stays secret; "
        "topdown: a tree of noisy sums of counts; scorecard: a scorecard of noisy sums"
    )
    target: str = Field(description="the column to predict")
    parties: tuple[Member, ...] = Field(
        min_length=3, max_length=16, description="at least three; more than half of them must not pool what they see"
    )
    reveals: tuple[str, ...] = Field(description="all opened values; must be exactly those that the protocol opens")
    columns: dict[str, Column] = Field(min_length=1, description="as in a policy")
    adjacency: Literal["add-remove", "substitute"] = "add-remove"
    privacy_unit: Literal["row"] | PrivacyUnit = "row"
    attributes: tuple[str, ...] | None = Field(
        default=None, description="the columns to learn from, by default all but the target; ties go to the first"
    )
    cuts: dict[str, tuple[float, ...] | int] | None = Field(
        default=None, description="where numeric columns are cut; topdown: their thresholds"
    )
    stop_share: Annotated[FiniteDecimal, Field(ge=0, le=1)] = Field(
        default=Decimal("0.05"), description="a node with at most this share of all rows becomes a leaf"
    )
    alpha: int = Field(
        default=8, ge=1, le=2**16, description="weight of a row in the denominators of scores: y = alpha n + 1"
    )
    noise: Literal["none", "discrete-laplace"] = Field(
        default="none", description="none: exact, which every party's policy must permit"
    )
    epsilon: FiniteDecimal | None = Field(
        default=None, description="with noise: the privacy loss of a row in the whole session"
    )
    depth: int | None = Field(
        default=None,
        ge=0,
        le=32,
        description="with noise: levels of splits; topdown: by default as many as may be of use",
    )
    steps: int | None = Field(
        default=None,
        ge=0,
        le=MAX_STEPS,
        description="scorecard: the number of steps, each for one attribute; by default as many as may be of use",
    )
    colluding: int | None = Field(
        default=None,
        ge=0,
        description="with noise: the number of parties that may pool their noise; "
        "by default as many as the protocol withstands",
    )
    timeout: float = Field(
        default=60, ge=1, le=3600, description="seconds of silence after which a party counts as gone"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Session:
        for wrong, text in (*self._wrong_parties(), *self._wrong_noise()):
            if wrong:
                raise ValueError(text)
        if self.epsilon is not None:
            Epsilon.of(self.epsilon)
        if self.reveals != self.opened:
            raise ValueError(f"`reveals` must name exactly what is opened: {json.dumps(list(self.opened))}")
        _ = self.bits  # an impossible session is refused here
        return self

    def _wrong_parties(self) -> Sequence[tuple[bool, str]]:
        """Possible faults of parties, each with its text."""
        names, certificates = zip(*((member.name, member.certificate_der) for member in self.parties), strict=True)
        twice = next((name for name in names if names.count(name) > 1), None)
        far = any(member.host not in LOOPBACK for member in self.parties)
        are_distinct = None not in certificates and len(set(certificates)) == len(certificates)
        lookups = any(member.lookups for member in self.parties)
        return (
            (twice is not None, f"two parties are called {twice!r}"),
            (far and not any(certificates), "parties on several machines need a `certificate` each"),
            (any(certificates) and not are_distinct, "each party needs a certificate of its own"),
            (
                lookups and self.protocol in PUBLIC,
                "`lookups` are for the secret trees of sid3t and sid3s; a public tree is looked up at home",
            ),
        )

    def _wrong_noise(self) -> Sequence[tuple[bool, str]]:
        """Possible faults of noise and its parameters."""
        noisy, summed, card = self.noise != "none", self.protocol in SUMMED, self.protocol == "scorecard"
        has_values = self.epsilon is not None or self.depth is not None or self.colluding is not None
        needed = "`epsilon`" if summed else "`epsilon` and `depth`"
        return (
            (
                self.steps is not None and not card,
                f"`steps` are those of `protocol: scorecard`; {self.protocol} learns a tree",
            ),
            (self.depth is not None and card, "`depth` is that of a tree; a scorecard has `steps`"),
            (
                has_values and not noisy,
                "`epsilon`, `depth` and `colluding` go with `noise: discrete-laplace`; an exact tree grows until its "
                "nodes stop, see `stop_share`",
            ),
            (
                summed and not noisy,
                f"{self.protocol} opens noisy sums: it needs `noise: discrete-laplace` and `epsilon`",
            ),
            (
                noisy and self.protocol not in PUBLIC,
                "noise makes a public tree private: use sid3p, sid3, topdown or scorecard. "
                "A secret tree opens its shape or nothing, without noise",
            ),
            (
                noisy and (self.epsilon is None or (self.depth is None and not summed)),
                f"`noise: discrete-laplace` needs {needed}",
            ),
            (
                self.colluding_parties >= len(self.parties),
                f"`colluding` is {self.colluding}; it must be below the number of parties, {len(self.parties)}",
            ),
        )

    @classmethod
    def drafted(cls, fields: Mapping[str, object]) -> Session:
        """Makes a session with the required ``reveals``; raises ``QueryError`` that names each wrong field."""
        try:
            parties = fields["parties"]
            members = [Member.model_validate(member) for member in parties] if isinstance(parties, Sequence) else []
            unchecked = cls.model_construct(None, **{**fields, "parties": members})
            return cls.model_validate({**fields, "reveals": unchecked.opened})
        except ValidationError as error:
            raise QueryError(f"this cannot be a session:\n{problems(error)}") from None

    @property
    def colluding_parties(self) -> int:
        """The number of parties that may pool their noise."""
        return threshold_of(len(self.parties)) if self.colluding is None else self.colluding

    @property
    def opened(self) -> tuple[str, ...]:
        """All values that the protocol opens, and their receivers."""
        if self.protocol == "topdown":
            return (
                "to all: noisy counts of the classes in nodes of the tree, by the values of each attribute",
                "to all: noisy counts of the classes in its leaves",
            )
        if self.protocol == "scorecard":
            return (
                "to all: noisy counts of rows by the target, alone and in the cells of each attribute",
                "to all: in each step noisy sums of derivatives in the cells of one attribute",
            )
        if self.noise != "none":
            return "to all: the noisy number of all rows", "to all: the noisy tree, its attributes and its classes"
        if self.protocol in ("sid3", "sid3p"):
            return ("to all: the exact tree, its attributes and its classes",)
        shape = "to all: which nodes of the tree are leaves, and so the lengths of its paths"
        return (shape,) * (self.protocol == "sid3t") + tuple(
            f"to {member.name}: the classes of the {member.lookups} rows that it looks up"
            for member in self.parties
            if member.lookups
        )

    @cached_property
    def schema_(self) -> Schema:
        """The public columns, with room for all parties' rows together."""
        rows = min(MAX_ROWS, sum(member.rows for member in self.parties))
        return Schema.model_validate(
            {
                "columns": dict(self.columns),
                "max_rows": rows,
                "adjacency": self.adjacency,
                "privacy_unit": self.privacy_unit,
            }
        )

    @cached_property
    def task(self) -> Task:
        """The columns as attributes and classes."""
        rows, miner = tuple(member.rows for member in self.parties), self.miner()
        if miner is None:
            return Task.of(self.schema_, self.target, rows, self.attributes, self.cuts)
        return Task(self.schema_, self.target, miner.sums_needed(self.schema_, self.target).cells, rows)

    @property
    def nano(self) -> int:
        """The charge to each party's ledger in nano-epsilons; 0 without noise."""
        return 0 if self.epsilon is None else Epsilon.of(self.epsilon).nano

    @cached_property
    def bits(self) -> int:
        """The size of the longest compared or added numbers, so that none wraps around.

        Raises ``QueryError`` for an impossible protocol.
        """
        if self.protocol in ("sid3", "sid3t", "sid3s"):
            require_records(self.task)
        if self.protocol == "sid3s":
            require_paths(self.task)
        miner = self.miner()
        return require_bits(self.rule().bits if miner is None else sum_bits(miner, self.task))

    def rule(self) -> Rule:
        """Makes the rule of ID3; new for each run.

        Noise is calibrated to a row's share of epsilon (the schema's distance).
        """
        share = Fraction(self.stop_share)
        if not self.nano:
            return ExactRules(self.task, share, self.alpha)
        epsilon = Epsilon(self.nano).exact / self.task.schema.distance
        budget = LossSplit.spread(epsilon, min(self.depth or 0, len(self.task.sizes)))
        return NoisyRules(self.task, share, budget, self.colluding_parties)

    def miner(self) -> Miner | None:
        """Makes the miner that queries sums; None for ID3, which computes on shares."""
        # Imported here, because other protocols need neither scikit-learn nor pandas.
        options: dict[str, Any] = {
            "epsilon": Epsilon(self.nano).exact,
            "strategy": "secure",
            "attributes": self.attributes,
        }
        if self.protocol == "topdown":
            from miners.federated.topdown import FederatedTopDown

            return FederatedTopDown(max_depth=self.depth, splits=self.cuts, **options)
        if self.protocol == "scorecard":
            from miners.federated.scorecard import FederatedScorecard, FederatedScorecardRegressor

            kind = FederatedScorecardRegressor if self.target in self.schema_.numeric_columns else FederatedScorecard
            return kind(steps=self.steps, cuts=self.cuts, **options)
        return None

    @cached_property
    def text(self) -> str:
        """The canonical text: two files with one meaning have one text."""
        # Without `steps`, so that sessions of trees keep the hash that they had before this key existed.
        without = {"steps"} if self.steps is None else set()
        return json.dumps(self.model_dump(mode="json", exclude=without), sort_keys=True, ensure_ascii=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the text, hexadecimal; all parties agree to it."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def difference(self, text: str) -> str:
        """Describes the differences to another party's session, for people."""
        try:
            theirs = TypeAdapter(dict[str, object]).validate_json(text)
        except ValueError:
            return "it is none"
        ours = json.loads(self.text)
        differences = [
            f"`{name}` is {shorten(json.dumps(theirs.get(name), ensure_ascii=False), 60)} there "
            f"and {shorten(json.dumps(ours.get(name), ensure_ascii=False), 60)} here"
            for name in sorted(ours.keys() | theirs.keys())
            if ours.get(name) != theirs.get(name)
        ]
        return "; ".join(differences) or "it is written differently"

    def number(self, party: str) -> int:
        """The number of a party, from its number or name; raises ``SessionError`` if there is none."""
        numbers = {str(number): number for number in range(len(self.parties))}
        numbers |= {member.name: number for number, member in enumerate(self.parties)}
        if party not in numbers:
            parties = ", ".join(f"{number} ({member.name})" for number, member in enumerate(self.parties))
            raise SessionError(f"there is no party {party!r}; the parties are {parties}.")
        return numbers[party]


def load_session(path: str | Path) -> Session:
    """Reads a session file, and the certificates that it names.

    Raises:
        SessionError: The file is unreadable or not YAML, or declares something impossible; the
            message names each place.
    """
    import yaml

    from pinq.policy.plain_yaml import read_yaml

    file = Path(path)
    try:
        content = read_yaml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SessionError(f"the session file {file} cannot be read: {error}.") from None
    except yaml.YAMLError as error:
        raise SessionError(f"the session file {file} is not valid YAML: {error}.") from None
    if not isinstance(content, Mapping):
        raise SessionError(
            f"the session file {file} must be a mapping with keys like `session`, `protocol`, `parties`, `columns`."
        )
    try:
        return Session.model_validate(content, context=file.parent)
    except QueryError as error:
        raise SessionError(f"the session file {file} is not valid:\n  {error}") from None
    except ValidationError as error:
        raise SessionError(f"the session file {file} is not valid:\n{problems(error)}") from None
