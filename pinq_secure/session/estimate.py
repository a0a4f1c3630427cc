# SPDX-License-Identifier: Apache-2.0
"""``estimate`` foretells the bytes and the time of a session, by public facts.

Two numbers of b bits are compared by opening b + 3 numbers and multiplying b, and each of these
goes to every other party. Time is the processor time of the messages; the network's own delay is
added to it.
"""

from __future__ import annotations

import math

from miners.budget.plan import Plan
from pinq_secure.id3.public_tree import ExactRules
from pinq_secure.mpc.arithmetic import field_bits, signed_bits
from pinq_secure.session.loss import most_splits
from pinq_secure.session.session import Session


def estimate(session: Session) -> str:
    """Returns a sentence on bytes and seconds, of each party."""
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
    # 0.3 ms draw the noise of a number and add it up; 50 ms meet, and write two lines of a ledger.
    seconds = numbers * 0.0003 + len(plan.lines) * 0.05
    return f"Each party sends at most {_bytes(sent)}, and takes at most about {seconds:.1f} s."


def _compared(bits: int) -> int:
    """Returns the count of numbers to each other party for a comparison and the winner's product."""
    return 2 * bits + 5


def _size(sent: float) -> str:
    # A party's processor takes 0.4 s for each MB where numbers are compared (benchmarks.speed.sessions).
    return f"{_bytes(sent)} and {sent / 1e6 * 0.4:.1f} s of processor"


def _bytes(sent: float) -> str:
    return f"{sent / 1e6:.1f} MB" if sent >= 1e5 else f"{sent / 1000:.0f} kB"


def plan_text(session: Session) -> str:
    """Returns the queries with their fractions of epsilon, as text; empty where there is no plan."""
    miner, owners = session.miner(), len(session.parties)
    return "" if miner is None else repr(miner.plan(session.schema_, session.target, owners=owners))
