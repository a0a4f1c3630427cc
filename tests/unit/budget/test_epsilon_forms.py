# SPDX-License-Identifier: Apache-2.0
"""A loss has one form from a miner's constructor to the request."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType

from miners import DiffPC45
from pinq.public import epsilon
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.requests.handles import simulated

SCHEMA = Schema(
    columns={"x": Numeric(lower=0, upper=9, integer=True), "y": Categorical(values=("n", "p"))}, max_rows=5000
)
FORMS = ("exact", "__str__", "__float__", "exactly")


class Conversions:
    """Counts where miners and the analyst's face turn a loss from one form into another."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or frame.f_code.co_filename != epsilon.__file__ or frame.f_back is None:
            return
        caller = frame.f_back.f_code.co_filename
        name = frame.f_code.co_name
        read = name == "of" and not isinstance(frame.f_locals["loss"], Epsilon)
        if (read or name in FORMS) and ("/miners/" in caller or "/pinq/analyst/" in caller):
            self.calls[name] += 1


def test_a_fit_reads_its_loss_once_and_writes_it_once_for_each_request() -> None:
    """A depth-2 fit asks four requests, one of them free, and rehearses two of the others.

    Beside them it reads the loss and compares it.
    """
    conversions = Conversions()
    with simulated(SCHEMA, rows=500, epsilon=1) as handle:
        sys.setprofile(conversions)
        try:
            DiffPC45(epsilon=1, max_depth=2).fit(handle, "y")
        finally:
            sys.setprofile(None)
    assert conversions.calls["of"] == 1
    assert conversions.calls["__str__"] == 6
    assert conversions.calls.total() < 12
