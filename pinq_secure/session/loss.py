# SPDX-License-Identifier: Apache-2.0
"""The loss of a session, its number of comparisons, and its bytes and time, by public facts.

Two secret numbers are compared by opening one under a mask that is 2^40 times as large
(``pinq_secure.mpc.arithmetic``). So a session of N comparisons is (epsilon, N 2^-40)-differentially private. An exact
session has no epsilon and no delta, because its exact tree is opened. A comparison of b bits opens b + 3 numbers and
multiplies b, each of which is sent to every other party. Estimated seconds are processor time.

Privacy:
    Claim: with noise, the view of any parties that may pool their shares is (epsilon, delta)-DP. Why: a mask has a part
    from each party; given the parts of the pooling parties, it is uniform on W = 2^(bits + 40) numbers. A secret of
    ``bits`` bits, sign included, shifts this range by less than 2^bits. So each opening is, with probability above
    1 - 2^-40, uniform on a range that is the same for all secrets; call this event a coin, which depends on no row. If
    all coins succeed, the parties see the opened values of an epsilon-DP algorithm, and numbers that are independent of
    all data. Some coin fails with probability at most N 2^-40. A share of noise beyond ``noise_bound`` is replaced by
    the bound, which changes a law by at most 2^-100; for two neighbouring tables this counts 1 + exp(epsilon) times.
    The slack of 2^-40 also covers zero tests, and shares that are uniform up to 2^-128. Delta is that of one run; a
    repeated round compares again. Assumes: as ``Arithmetic``; common randomness is pseudorandom, and
    delta does not count this. Held by: tests/unit/secure/test_secure_loss.py, which counts comparisons of real runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

from miners.budget.plan import Plan
from pinq.public.epsilon import Epsilon
from pinq_secure.id3.public_tree import ExactRules
from pinq_secure.mpc.arithmetic import SECURITY, field_bits, signed_bits
from pinq_secure.session.session import Session
from pinq_secure.sums import Miner

EXACT = "experimental: exact results are opened, which no epsilon describes"


@dataclass(frozen=True)
class Loss:
    """The loss of a row in a session.

    Attributes:
        epsilon: The agreed epsilon; None for exact results, which are experimental.
        delta: Delta, rounded up to two figures; None without epsilon.
        comparisons: The largest number of comparisons of secret numbers.
    """

    epsilon: Fraction | None
    delta: float | None
    comparisons: int

    @classmethod
    def of(cls, session: Session) -> Loss:
        miner = session.miner()
        comparisons, numbers = _of_tree(session) if miner is None else (0, _noisy_sums(session, miner))
        if not session.nano:
            return cls(None, None, comparisons)
        epsilon = Epsilon(session.nano).exact
        replaced = Fraction(numbers * len(session.parties) * (1 + 3 ** math.ceil(epsilon)), 2**100)  # e < 3
        delta = min(Fraction(1), Fraction(comparisons, 2**SECURITY) + replaced)
        rounded = Context(prec=2, rounding=ROUND_CEILING).divide(Decimal(delta.numerator), Decimal(delta.denominator))
        return cls(epsilon, float(rounded), comparisons)

    def to_dict(self) -> dict[str, object]:
        return {"comparisons": self.comparisons, "delta": self.delta, "experimental": self.epsilon is None}

    def __str__(self) -> str:
        numbers = f"at most {self.comparisons:,}" if self.comparisons else "no"
        compared = f"{numbers} comparisons of secret numbers"
        if self.epsilon is None:
            return f"{EXACT}; {compared}, each hidden up to 2^-{SECURITY}"
        return f"epsilon {Epsilon.of(self.epsilon)}, delta at most {self.delta:.2g}; {compared}"


def most_splits(session: Session) -> int:
    """The largest number of nodes of a level with more than the stop share of all rows."""
    # Fewer than 1/share nodes can have more than this share: at most 19 with more than a twentieth each.
    share, rows = Fraction(session.stop_share), session.task.max_rows
    return min(rows, math.ceil(1 / share) - 1) if share else rows


def _noisy_sums(session: Session, miner: Miner) -> int:
    """The largest number of noisy numbers: for each part of the plan its widest table."""
    task, width = session.task, miner.sums_needed(session.schema_, session.target).width
    plan = miner.plan(session.schema_, session.target, owners=len(session.parties))
    return sum(line.parts for line in plan.lines) * max(width, sum(task.sizes) * task.classes)


def _of_tree(session: Session) -> tuple[int, int]:
    """The number of comparisons, and the number of noisy numbers."""
    task, rule, votes = session.task, session.rule(), session.task.classes - 1
    if session.protocol == "sid3s":
        # Each prefix of each path needs its most frequent class, and a test whether it has rows.
        return sum(math.prod(task.sizes[:length]) for length in range(len(task.sizes) + 1)) * (votes + 1), 0
    # In a secret tree every node may use all attributes, and has as many children as the widest attribute has values.
    exact, secret = isinstance(rule, ExactRules), session.protocol == "sid3t"
    sizes = [max(task.sizes)] * len(task.sizes) if secret else sorted(task.sizes, reverse=True)
    nodes, comparisons, noisy = 1, 0, 0
    for level in range(rule.deepest + 1):
        attributes, is_last = len(sizes) - (0 if secret else level), level == rule.deepest
        splitting = 0 if is_last else min(nodes, most_splits(session)) if exact else nodes
        # The largest of five classes needs four comparisons. An exact node finds its class and has two stop tests.
        # A noisy node below the root has one stop test; a split needs more comparisons than the class of a leaf.
        for_node = votes + 2 * (not is_last) if exact else votes if is_last else int(level > 0)
        for_split = attributes - 1 + (0 if exact else sum(sizes[:attributes]) * votes)
        comparisons += nodes * for_node + splitting * for_split
        noisy += 0 if exact else nodes * (1 + task.classes + attributes)
        nodes = min(math.prod(sizes[: level + 1]), splitting * sizes[0])
    return comparisons, noisy


def estimate(session: Session) -> str:
    """Describes the bytes and seconds of each party in a sentence."""
    if (miner := session.miner()) is not None:
        return _of_sums(session, miner.plan(session.schema_, session.target, owners=len(session.parties)))
    task, rule, others = session.task, session.rule(), len(session.parties) - 1
    to_others = (field_bits(session.bits, len(session.parties)) + 7) // 8 * others
    values, classes, attributes = sum(task.sizes), task.classes, len(task.sizes)
    counts, children = _compared(signed_bits(task.max_rows)), values / attributes
    if isinstance(rule, ExactRules):
        split: float = values * 3 + (attributes - 1) * _compared(rule.gini)
        split += children * ((classes - 1) * counts + 2 * _compared(rule.stop))
    else:
        split = values * (classes - 1) * counts + (attributes + children * classes) * _compared(rule.bits)
    shared = task.max_rows * (values - attributes + classes) if session.protocol != "sid3p" else 0
    if session.protocol == "sid3s":
        paths = math.prod(task.sizes)
        shared += 2 * paths * classes * counts + 2 * task.max_rows * classes * math.isqrt(paths)
        return f"Each party sends about {_size(shared * to_others)}."
    # The number of nodes of a level with more than the stop share of all rows is limited, and a path
    # has a level for each attribute.
    max_splits = most_splits(session)
    sizes = sorted(task.sizes, reverse=True)[: rule.deepest]
    splits = sum(min(math.prod(sizes[:level]), max_splits) for level in range(len(sizes)))
    sharing = f"Each party sends about {_size(shared * to_others)} to share its records. " if shared else ""
    node = _size((split + (task.max_rows * classes * children if shared else 0)) * to_others)
    return f"{sharing}Each node that splits takes at most about {node} of each party; at most {splits:,} split."


def _of_sums(session: Session, plan: Plan) -> str:
    tables = sum(session.task.sizes) * session.task.classes if session.protocol == "topdown" else 1
    numbers = sum(line.parts * (2 if line.verb == "noisy_sum" else tables) for line in plan.lines[:-1])
    numbers += plan.lines[-1].parts * (2 if plan.lines[-1].verb == "noisy_sum" else 1)
    sent = 2 * numbers * (len(session.parties) - 1) * (session.bits + 7) // 8
    # 0.3 ms for the noise and the sum of each number; 50 ms for each round: a meeting, and two lines of the ledger.
    seconds = numbers * 0.0003 + len(plan.lines) * 0.05
    return f"Each party sends at most {_bytes(sent)}, and takes at most about {seconds:.1f} s."


def _compared(bits: int) -> int:
    """The count of numbers sent to each other party for a comparison and the choice of the larger number."""
    return 2 * bits + 5


def _size(sent: float) -> str:
    # A party's processor takes 0.4 s for each MB where numbers are compared (benchmarks.speed.sessions).
    return f"{_bytes(sent)} and {sent / 1e6 * 0.4:.1f} s of processor"


def _bytes(sent: float) -> str:
    return f"{sent / 1e6:.1f} MB" if sent >= 1e5 else f"{sent / 1000:.0f} kB"


def plan_text(session: Session) -> str:
    """The queries with their fractions of epsilon, as text; empty without a plan."""
    miner, owners = session.miner(), len(session.parties)
    return "" if miner is None else repr(miner.plan(session.schema_, session.target, owners=owners))
