# SPDX-License-Identifier: Apache-2.0
"""``SecureID3`` learns from all parties' tables in one process, for trials of a session of several machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np

from miners.budget.plan import Plan
from miners.estimator import TREE_LIMITS, Classifier, GrownMiner, required_schema
from miners.fitted.node import as_array
from miners.fitted.route import Frame
from pinq.errors import QueryError
from pinq.public.checks import Shown, whole_number
from pinq.public.epsilon import Epsilon
from pinq.public.schema import MAX_ROWS, Schema
from pinq_secure.id3.task import hold, require_tables
from pinq_secure.mpc.arithmetic import field_bits
from pinq_secure.session.loss import Loss
from pinq_secure.session.party import run_simulation
from pinq_secure.session.session import Member, Session


@dataclass(frozen=True)
class SecurePlan(Shown):
    """The plan of a session, from public facts alone.

    Attributes:
        protocol: Its name.
        opened: All opened values, and their receivers.
        bits: The size of the longest compared numbers.
        field_bits: The size of their prime field.
        loss: The privacy loss of a row, epsilon and delta, and the number of comparisons; neither epsilon
            nor delta if the tree is exact, which is experimental.

    Examples:
        >>> import pinq
        >>> from pinq_secure import SecureID3
        >>> schema = pinq.load_policy("policies/adult.yaml").schema_
        >>> plan = SecureID3(attributes=["relationship", "sex"]).plan(schema, "income", rows=1000)
        >>> plan.protocol, plan.epsilon, plan.loss.comparisons
        ('sid3p', None, 34)
    """

    protocol: str
    opened: tuple[str, ...]
    bits: int
    field_bits: int
    loss: Loss

    @property
    def epsilon(self) -> Fraction | None:
        """The privacy loss of a row; None if the tree is exact."""
        return self.loss.epsilon

    def __repr__(self) -> str:
        head = f"SecurePlan: {self.protocol}, {self.loss}; of {self.bits} bits in a field of {self.field_bits}"
        return "\n".join([head, *(f"  opens {opening}" for opening in self.opened)])


@dataclass(kw_only=True, repr=False, eq=False)
class SecureID3(Classifier, GrownMiner):
    """ID3 by secure multi-party computation of at least three parties (de Hoogh et al. 2014).

    ``fit`` gets all tables, so it protects nothing; ``pinq secure join`` runs the protocol between machines.

    Args:
        protocol: ``"sid3p"``, the cheapest: each party shares counts of its own rows. ``"sid3"``:
            each party shares its records; a party may have none. ``"sid3t"``: as ``"sid3"``, and
            the tree stays secret except for the lengths of its paths. ``"sid3s"``: nothing of the
            tree is opened.
        stop_share: A node with at most this fraction of all rows becomes a leaf.
        alpha: Weight of a row in the denominators of scores, y = alpha n + 1. A larger value is
            closer to the Gini index and needs longer numbers.
        epsilon: With it the tree is differentially private (``sid3``, ``sid3p``): all parties
            together draw the noise, and no party knows it.
        depth: With ``epsilon``: levels of splits.
        colluding: With ``epsilon``: the number of parties that may pool the noise that they drew;
            by default the number that the protocol tolerates. 0 adds the smallest noise.
        attributes: Columns to split by, by default all but the target; ties go to the first.
        cuts: Cut points of numeric columns, or numbers of intervals.
        rows: The largest number of rows of each party, public; by default the rows of its table. It
            determines the size of the field.

    Attributes:
        tree_: The tree, if the protocol opens it; its leaves have classes and no counts, so it has
            no probabilities.
        cost_: The privacy loss of a row: epsilon, or 0 for an exact tree, which no epsilon
            describes.
        depths_: SID3T: the lengths of the paths to leaves.
        looked_up_: SID3T and SID3S: for each party the classes of the rows that it classified.
        opened_: All values that were opened to the first party, in order.

    Privacy:
        Without ``epsilon`` the result is exact, which is experimental: it leaks, and no epsilon describes it. With it a
        session of N comparisons of secret numbers is (epsilon, N 2^-40)-differentially private; ``plan`` prints
        epsilon, delta and the largest number of comparisons (``pinq_secure.session.loss``). See
        ``pinq_secure.mpc.arithmetic`` for the values that parties see, and ``pinq_secure.id3.public_tree`` for the
        opened values and their noise.

    Examples:
        >>> import pandas as pd, pinq
        >>> from pinq_secure import SecureID3
        >>> rows = pd.read_parquet("data/adult.parquet")
        >>> schema = pinq.load_policy("policies/adult.yaml").schema_
        >>> tables = [rows[start:300:3] for start in range(3)]
        >>> miner = SecureID3(protocol="sid3p", attributes=["relationship", "sex"])
        >>> miner.fit(tables, "income", schema=schema).tree_.depth <= 2
        True
    """

    protocol: str = "sid3p"
    stop_share: float | Decimal = Decimal("0.05")
    alpha: int = 8
    epsilon: float | str | Decimal | None = None
    depth: int | None = None
    colluding: int | None = None
    attributes: Sequence[str] | None = None
    cuts: Mapping[str, object] | None = None
    rows: int | None = None

    _limits = ("Only the class of each leaf is known, not the rows behind it.", *TREE_LIMITS[1:])

    def _require_fitted(self, attribute: str) -> None:
        if attribute == "tree_" and hasattr(self, "cost_") and not hasattr(self, "tree_"):
            raise QueryError(
                f"the tree of {self.protocol} stays secret; give `fit` the rows to look up, `lookups=[...]`, "
                "and find their classes in `looked_up_`."
            )
        super()._require_fitted(attribute)

    @property
    def unspent_(self) -> Fraction:
        """Always 0: a tree that ends early counts as the whole epsilon."""
        return Fraction(0)

    def plan(  # type: ignore[override]  # of parties
        self, schema: Schema, target: str, parties: int = 3, rows: int | None = None
    ) -> SecurePlan:
        """Returns the values that a session would open, and the size of its numbers.

        Args:
            schema: The public columns.
            target: The column to predict.
            parties: The number of parties.
            rows: The largest number of rows of each party; by default the schema's.
        """
        declared = self.rows if rows is None else rows
        max_rows = required_schema(schema).max_rows if declared is None else whole_number("rows", declared, 1, MAX_ROWS)
        session = self._checked(required_schema(schema), target, [max_rows] * parties)
        bits = session.bits
        return SecurePlan(self.protocol, session.opened, bits, field_bits(bits, parties), Loss.of(session))

    def fit(  # type: ignore[override]  # of tables
        self, tables: Sequence[Frame], target: str, *, schema: Schema, lookups: Sequence[Frame | None] = ()
    ) -> SecureID3:
        """Learns from all parties' tables.

        Args:
            tables: One pandas or Arrow table for each of at least three parties.
            target: The column to predict, categorical.
            schema: The public columns.
            lookups: SID3T and SID3S: a table for each party, or None, of rows to classify.

        Raises:
            QueryError: An argument is wrong, or the numbers would be too large for a field.
        """
        require_tables(tables)
        if lookups and len(lookups) != len(tables):
            raise QueryError(
                f"`lookups` has {len(lookups)} tables for {len(tables)} parties; "
                "pass None for a party that looks up nothing."
            )
        max_rows = None if self.rows is None else whole_number("rows", self.rows, 1, MAX_ROWS)
        session = self._checked(
            schema,
            target,
            [max_rows or max(1, len(table)) for table in tables],
            [0 if table is None else len(table) for table in lookups],
        )
        holdings = [hold(session.task, table) for table in tables]
        codes = [None if table is None else session.task.lookup_codes(table) for table in lookups]
        for name in ("tree_", "classes_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        outcomes = run_simulation(session, holdings, codes)
        first = outcomes[0]
        self.opened_, self.depths_ = first.opened, first.depths
        classes = as_array(session.schema_.categorical(session.target).values)
        self.looked_up_: list[np.ndarray] = [classes[outcome.looked_up] for outcome in outcomes]
        self.cost_, self.schema_ = Epsilon(session.nano).exact, session.schema_
        return self if first.tree is None else self._fitted(first.tree, self.cost_)

    def _plan_of(self, fitted: SecureID3) -> Plan:
        if not self.cost_:
            raise QueryError("an exact tree has no card: no epsilon describes what it tells of its rows.")
        notes = (
            f"protocol {fitted.protocol!r}, among parties that see none of each other's rows",
            "delta: 2^-40 for each comparison of secret numbers; `plan` adds them up",
        )
        return Plan(f"SecureID3 for `{self._model.target}`", (), self.cost_, notes)

    def _checked(  # type: ignore[override]  # of parties, not of a handle
        self, schema: Schema, target: str, rows: Sequence[int], lookups: Sequence[int] = ()
    ) -> Session:
        """Makes the session of the parameters; raises ``QueryError`` if it is impossible."""
        if self.protocol == "scorecard":
            raise QueryError("protocol 'scorecard' learns no tree; use FederatedScorecard(strategy='secure').")
        lookup_rows = list(lookups) or [0] * len(rows)
        members = [
            Member(name=f"party{number}", host="127.0.0.1", port=number + 1, rows=max_rows, lookups=count)
            for number, (max_rows, count) in enumerate(zip(rows, lookup_rows, strict=True))
        ]
        is_list = self.attributes is not None and not isinstance(self.attributes, str)
        return Session.drafted(
            {
                "session": "local",
                "protocol": self.protocol,
                "target": target,
                "columns": dict(schema.columns),
                "adjacency": schema.adjacency,
                "privacy_unit": schema.privacy_unit,
                "parties": members,
                "attributes": tuple(self.attributes or ()) if is_list else self.attributes,
                "cuts": self.cuts,
                "stop_share": str(self.stop_share),
                "alpha": self.alpha,
                "noise": "none" if self.epsilon is None else "discrete-laplace",
                "epsilon": None if self.epsilon is None else Decimal(str(Epsilon.of(self.epsilon))),
                "depth": self.depth,
                "colluding": self.colluding,
            }
        )
