# SPDX-License-Identifier: Apache-2.0
"""Who stays connected where more come than there is room for."""

from __future__ import annotations

from itertools import count

from pinq.server.api.admission import Admission, Held, network


class Door:
    """An admission, and which connections it ended, by number."""

    def __init__(self, most: int, of_address: int) -> None:
        self.admission, self.ended, self._numbers = Admission(most, of_address), list[int](), count()

    def come(self, address: str) -> Held | None:
        number = next(self._numbers)
        return self.admission.admit(address, lambda: self.ended.append(number))

    def works(self, held: Held | None, works: bool = True) -> None:
        assert held is not None
        self.admission.turn(held, waits=not works)


def test_an_addresss_own_idlest_goes_first() -> None:
    """The one that has waited longest; one that was asked something meanwhile waits anew; others are not concerned."""
    door = Door(10, 3)
    held = [door.come("a") for _ in range(3)] + [door.come("b")]
    door.works(held[0])
    door.works(held[0], False)
    assert door.come("a") is not None
    assert door.ended == [1]


def test_what_is_worked_for_is_not_ended_for_the_same_address() -> None:
    """An address whose connections are all at work gets no more than its number."""
    door = Door(10, 2)
    for _ in range(2):
        door.works(door.come("a"))
    assert door.come("a") is None
    assert door.ended == []
    assert len(door.admission) == 2


def test_the_most_crowded_address_makes_room() -> None:
    """Its waiting connections first, then those at work, as long as it has more than the newcomer."""
    door = Door(6, 6)
    held = [door.come(address) for address in "aaabbc"]
    for of_a in held[:2]:
        door.works(of_a)
    assert door.come("d") is not None
    assert door.ended == [2]
    assert door.come("e") is not None  # of "a" and "b", with two each, "b" has one that waits
    assert door.ended == [2, 3]
    assert door.come("f") is not None  # only "a" still has two, though at work
    assert door.ended == [2, 3, 0]
    for _ in range(20):  # all have one now: who wants another gives up the own
        assert door.come("f") is not None
    assert sorted(held.address for held in door.admission) == list("abcdef")


def test_equals_at_work_keep_their_connections() -> None:
    """Where each address has one, and all are at work, the newcomer is refused; an idle one would go."""
    door = Door(3, 3)
    held = [door.come(address) for address in "abc"]
    for of_each in held:
        door.works(of_each)
    assert door.come("d") is None
    door.works(held[1], False)
    assert door.come("d") is not None
    assert door.ended == [1]


def test_an_end_is_counted_once() -> None:
    """Also of a connection that was ended for another, and whose end shows later."""
    door = Door(2, 1)
    first = door.come("a")
    second = door.come("a")
    assert first is not None
    assert second is not None
    door.admission.release(first)
    assert list(door.admission) == [second]
    door.admission.release(second)
    door.admission.release(second)
    assert len(door.admission) == 0


def test_a_network_of_ipv6_counts_as_one() -> None:
    """Whoever has one address of it has them all; an address of IPv4 that is written as IPv6 is what it is."""
    assert network("192.0.2.1") == network("::ffff:192.0.2.1") == "192.0.2.1"
    assert network("2001:db8::1") == network("2001:db8::ffff:0:1%eth0") == "2001:db8::/64"
    assert network("2001:db8:0:1::1") != network("2001:db8::1")
