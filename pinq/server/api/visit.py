# SPDX-License-Identifier: Apache-2.0
"""``Visit``: what is known of a request on its way through the server."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pinq.curator.work import Turn
from pinq.ledger.terms import Grant
from pinq.server.datasets import Dataset

__all__ = ["Visit", "Work"]


@dataclass
class Visit:
    """What is known of a request: from its start, once its token was accepted, and at its end.

    Attributes:
        started: When it arrived.
        turn: With how much work, and until when, it may run.
        clock: When its work began, from which time buckets are counted.
        authority: Looks at a visit's token in the ledger, as it is now; ``NotAuthorised``. It must
            not know this visit: whoever is in a cycle keeps a dataset's codes when nobody uses them.
    """

    asked: str
    route: str
    address: str
    started: float = field(default_factory=time.monotonic)
    dataset: Dataset | None = None
    grant: Grant | None = None
    request: str | None = None
    turn: Turn = field(default_factory=Turn)
    clock: float = field(default_factory=time.monotonic)
    padded: bool = False
    authority: Callable[[Visit], None] = lambda _: None

    def authorise(self) -> None:
        """Looks at its token in the ledger, as it is now; ``NotAuthorised``."""
        self.authority(self)

    @property
    def opened(self) -> tuple[Dataset, Grant]:
        """What the token opened."""
        assert self.dataset is not None
        assert self.grant is not None
        return self.dataset, self.grant


Work = Callable[[Visit, bytes], str]
"""What a route does: from an accepted visit and the body to JSON. It can be pickled."""
