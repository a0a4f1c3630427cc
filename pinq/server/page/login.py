# SPDX-License-Identifier: Apache-2.0
"""How the provider signs in: one password, kept as a hash in a private file; sessions in memory.

A session is an opaque cookie of 256 random bits, of which only the digest is kept. It opens the
provider's page and nothing else: the analyst's routes read bearer tokens, this one reads none.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pinq.analyst.tokens import digest, require_private
from pinq.errors import PinqError, PolicyError, QueryError, TooManyRequests
from pinq.server.limits import AuthThrottle, Settings

__all__ = ["Login", "Notice", "Session", "WrongPassword", "hash_password", "read_password_file", "write_password_file"]

SHORTEST, LONGEST = 12, 1024
WRONG_A_MINUTE = 10
IDLE_SECONDS, SESSION_SECONDS, MAX_SESSIONS, MAX_DONE = 30 * 60, 12 * 3600, 64, 256
COST = {"n": 2**15, "r": 8, "p": 1}  # 32 MB and about a tenth of a second for each guess
_FORM = "scrypt"


class WrongPassword(PinqError):
    """Not the provider's password."""

    code = "wrong-password"

    def __init__(self) -> None:
        super().__init__(
            "That is not the password. `pinq password` sets another, which counts when the server starts again."
        )


@dataclass(frozen=True)
class Notice:
    """What a page says once after an act.

    Attributes:
        text: What was done.
        warnings: What to know about it.
        token: A token that can never be seen again.
    """

    text: str
    warnings: tuple[str, ...] = ()
    token: str = field(default="", repr=False)


@dataclass
class Session:
    """A provider who has signed in.

    Attributes:
        csrf: Must come back with every form.
        notices: What is still to be said, by the number of the form that it answers.
        done: Where each form that was sent led; a form sent twice leads there again and does
            nothing.
        lock: One act at a time.
    """

    started: float
    used: float
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    notices: dict[str, Notice] = field(default_factory=dict)
    done: OrderedDict[str, str] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def once(self, number: str, act: Callable[[], tuple[str, Notice]]) -> str:
        """Does what a form asks, unless this very form was sent before; returns where to go.

        Args:
            number: The form's own, drawn when it was shown.
            act: Does it; returns where to go and what to say there.
        """
        with self.lock:
            if number not in self.done:
                self.done[number], self.notices[number] = act()
                while len(self.done) > MAX_DONE:
                    self.notices.pop(self.done.popitem(last=False)[0], None)
            return self.done[number]

    def notice(self, number: str) -> Notice | None:
        """What is to be said about a form, the first time."""
        with self.lock:
            return self.notices.pop(number, None)


class Login:
    """Opens and keeps sessions.

    Args:
        hashed: The password's hash, see ``hash_password``.
        clock: Seconds that never go back.
    """

    def __init__(self, hashed: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._hashed, self._clock = hashed, clock
        self._throttle = AuthThrottle(Settings(guesses=WRONG_A_MINUTE, guesses_in_all=10 * WRONG_A_MINUTE), clock)
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.Lock()
        self._hashing = asyncio.Lock()
        self._key = secrets.token_bytes(32)

    async def open(self, password: str, address: str) -> str:
        """A new session's cookie.

        Raises:
            WrongPassword: It is not the password.
            TooManyRequests: Too many wrong ones within a minute, from this address or from all.
        """
        async with self._hashing:  # one at a time: guesses can fill neither memory nor processors
            try:
                self._throttle.check(address, "")
            except TooManyRequests as error:
                raise TooManyRequests(
                    f"Too many wrong passwords. Try again in {math.ceil(error.retry_after)} s.", error.retry_after
                ) from None
            if not await asyncio.to_thread(_matches, password, self._hashed):
                self._throttle.wrong(address, "")
                raise WrongPassword()
        cookie, now = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            self._sessions[digest(cookie)] = Session(now, now)
            while len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return cookie

    def session(self, cookie: str) -> Session | None:
        """The session of a cookie, unless it ended."""
        key, now = digest(cookie), self._clock()
        with self._lock:
            session = self._sessions.get(key)
            if session is None:
                return None
            if now - session.used > IDLE_SECONDS or now - session.started > SESSION_SECONDS:
                del self._sessions[key]
                return None
            session.used = now
            return session

    def close(self, cookie: str) -> None:
        """Ends a session."""
        with self._lock:
            self._sessions.pop(digest(cookie), None)

    def form_token(self, cookie: str) -> str:
        """What the sign-in form must bring back beside its cookie: nobody else can make it."""
        return hmac.new(self._key, cookie.encode(), hashlib.sha256).hexdigest()


def hash_password(password: str) -> str:
    """A password as it is kept: ``scrypt``, its cost, a salt, the hash.

    Raises:
        QueryError: Too short or too long.
    """
    if not SHORTEST <= len(password) <= LONGEST:
        raise QueryError(f"the password has {len(password)} characters; it must have {SHORTEST} to {LONGEST}.")
    salt = secrets.token_bytes(16)
    return "$".join([_FORM, *map(str, COST.values()), salt.hex(), _scrypt(password, salt, *COST.values()).hex()])


def write_password_file(file: Path, password: str) -> None:
    """Keeps a password's hash in a private file. Errors as in ``hash_password``."""
    text = hash_password(password) + "\n"
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="ascii") as opened:
        opened.write(text)
    fresh.replace(file)


def read_password_file(file: Path) -> str:
    """The hash in a password file.

    Raises:
        PolicyError: There is none, others may read it, or it is not one.
    """
    try:
        with file.open(encoding="ascii") as opened:
            require_private(opened, file, "the password file")
            text = opened.read(4096).strip()
    except FileNotFoundError:
        raise PolicyError(f"There is no password file {file}. `pinq password {file}` makes one.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"The password file {file} cannot be read: {error}.") from None
    except QueryError as error:
        raise PolicyError(str(error)) from None
    try:
        _parse(text)
    except ValueError:
        raise PolicyError(f"The file {file} is not a password file. `pinq password {file}` makes one.") from None
    return text


def _matches(password: str, hashed: str) -> bool:
    n, r, p, salt, kept = _parse(hashed)
    # Whatever was typed is hashed, so that its length takes no other time.
    return hmac.compare_digest(_scrypt(password[:LONGEST], salt, n, r, p), kept) and len(password) <= LONGEST


def _parse(hashed: str) -> tuple[int, int, int, bytes, bytes]:
    form, n, r, p, salt, kept = hashed.split("$")
    if form != _FORM:
        raise ValueError(form)
    return int(n), int(r), int(p), bytes.fromhex(salt), bytes.fromhex(kept)


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        password.encode("utf-8", "surrogatepass"), salt=salt, n=n, r=r, p=p, maxmem=256 * n * r, dklen=32
    )
