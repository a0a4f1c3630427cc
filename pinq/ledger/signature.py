# SPDX-License-Identifier: Apache-2.0
"""By whom a provider's act is done, and why: what the log keeps of it beside the act itself.

At the command line it is the user of the operating system and the host; on the provider's page, the
page and the browser's address. The log is the provider's own, so this says who acted among several
people of one provider; it proves nothing against the one who runs the machine.
"""

from __future__ import annotations

import getpass
import os
import socket
from dataclasses import dataclass

from pinq.errors import QueryError

__all__ = ["Signature", "here"]

MAX_REASON = 500


@dataclass(frozen=True)
class Signature:
    """By whom, and why.

    Attributes:
        by: ``user@host``, or ``page, ADDRESS``.
        because: The reason, if one is given.

    Raises:
        QueryError: A reason that is too long, or has characters that do not print.
    """

    by: str
    because: str = ""

    def __post_init__(self) -> None:
        if len(self.because) > MAX_REASON or not self.because.isprintable():
            raise QueryError(
                f"must be at most {MAX_REASON} printable characters on one line. Nothing was changed.",
                parameter="because",
            )

    def to_body(self) -> dict[str, str]:
        """What an event keeps."""
        return {"by": self.by} | ({"because": self.because} if self.because else {})


def here(because: str = "") -> Signature:
    """The user who runs this process, on this machine."""
    return Signature(f"{_user()}@{socket.gethostname()}", because.strip())


def _user() -> str:
    """The real user, whatever the environment says; in a container the number may have no name."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except ModuleNotFoundError:  # not a POSIX system
        return getpass.getuser()
    except KeyError:
        return str(os.getuid())
