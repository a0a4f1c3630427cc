# SPDX-License-Identifier: Apache-2.0
"""Which connections stay open where more come than a server holds.

One rule holds for an address that has as many as one may have and for a server that has as many as
it holds: the crowded address closes the connection that has waited longest for its client. That
costs a client nothing that it asked: between requests it connects again, and a request that was cut
off is sent again under its id. So addresses that hold connections keep out nobody who comes anew,
however many they are, and who holds most pays first.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from itertools import count

__all__ = ["Admission", "Held", "network"]


def network(address: str) -> str:
    """Whom an address counts as: itself, or for IPv6 the 64 bits that one customer has at least."""
    if ":" not in address:
        return address
    parsed = ipaddress.IPv6Address(address)
    return str(parsed.ipv4_mapped or ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))


class Held:
    """An open connection.

    Attributes:
        address: Of its client.
        close: Ends it, whatever it does.
        waits: Whether it waits for its client: for a handshake, a request, the rest of a request.
        since: Since which turn it waits, or is worked for; later turns are greater.
    """

    def __init__(self, address: str, close: Callable[[], None], since: int) -> None:
        self.address, self.close, self.since = address, close, since
        self.waits = True


class Admission:
    """The open connections of a server, by address.

    Args:
        most: How many there may be.
        of_address: How many one address may have.
    """

    def __init__(self, most: int, of_address: int) -> None:
        self._most, self._of_address = most, of_address
        self._held: dict[str, set[Held]] = {}
        self._count, self._turns = 0, count()

    def admit(self, address: str, close: Callable[[], None]) -> Held | None:
        """Takes a connection in, and ends another where there is no room.

        None where the connection itself is the one to refuse.
        """
        own = len(self._held.get(address, ()))
        if own >= self._of_address:
            room = self._make_room(address, only_waiting=True)
        elif self._count >= self._most:
            # A has 3 connections and B has 1, all worked for, and there is no room: a connection of
            # B, or of C, ends one of A's; a fourth of A is refused.
            crowded = max(self._held, key=lambda name: self._crowd(name, address))
            # What is worked for ends only for somebody who has fewer, and would still have fewer.
            room = self._make_room(crowded, only_waiting=len(self._held[crowded]) <= own + 1)
        else:
            room = True
        if not room:
            return None
        held = Held(address, close, next(self._turns))
        self._held.setdefault(address, set()).add(held)
        self._count += 1
        return held

    def turn(self, held: Held, *, waits: bool) -> None:
        """Notes whether a connection waits for its client now."""
        if held.waits != waits:
            held.waits, held.since = waits, next(self._turns)

    def release(self, held: Held) -> None:
        """Forgets a connection that has ended, once."""
        of_address = self._held.get(held.address, set())
        if held in of_address:
            of_address.remove(held)
            self._count -= 1
            if not of_address:
                del self._held[held.address]

    def __iter__(self) -> Iterator[Held]:
        return (held for of_address in self._held.values() for held in of_address)

    def __len__(self) -> int:
        return self._count

    def _crowd(self, address: str, newcomer: str) -> tuple[int, bool]:
        """How many an address has, with the one that comes, and whether one of them may go."""
        return len(self._held[address]) + (address == newcomer), any(held.waits for held in self._held[address])

    def _make_room(self, address: str, *, only_waiting: bool) -> bool:
        """Ends a connection of an address; whether there was one to end."""
        ending = [held for held in self._held[address] if held.waits or not only_waiting]
        if not ending:
            return False
        # Who waits for its client goes first, and of those who has waited longest.
        oldest = min(ending, key=lambda held: (not held.waits, held.since))
        self.release(oldest)  # it counts no longer, though it takes a moment to end
        oldest.close()
        return True
