# SPDX-License-Identifier: Apache-2.0
"""Known answers, made by another implementation (tests/assurance/known_draws.py): every sampler gives them, and a faulty one does not.

`make assurance` makes both files again and compares.
"""

from __future__ import annotations

import json
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pinq.curator import mechanisms
from pinq.provider.selftest import known
from pinq.provider.selftest.known import KINDS, wrong_answers
from pinq.public import noise
from pinq.public.noise import Bits
from pinq_secure.mpc import noise as shared
from pinq_secure.mpc.noise import own_shares, stream

SHARES = Path(__file__).parents[1] / "contract" / "golden" / "shares.json"


def test_every_sampler_gives_the_known_answers() -> None:
    """Some thousand numbers of each scale and each kind, and all bits are used."""
    total, wrong = wrong_answers()
    assert wrong == []
    assert total > 2500


def test_the_file_is_small_and_has_lines_of_each_kind() -> None:
    """So small that it is shipped; noise of scales from 10^-6 to 10^27."""
    file = Path(known.__file__).with_name("known_draws.json")
    assert file.stat().st_size < 300_000
    content = json.loads(file.read_text())
    assert set(content) == set(KINDS)
    scales = [Fraction(line["scale"]) for line in content["numbers"]]
    assert (min(scales), max(scales)) == (Fraction(1, 10**6), Fraction(10**27, 7))
    more = [line for line in content["numbers"] if len(line["numbers"]) == 1 and len(line["bits"]) > 16]
    assert len(more) > 50


FAULTS: dict[str, tuple[object, str, Any, set[str]]] = {
    "open digits decided at once": (noise.Digit, "settled", lambda digit, word, source: 0, {"numbers"}),
    "half the scale": (mechanisms, "scale_of", lambda span, epsilon: float(span / epsilon / 2), {"noise", "choices"}),
    "scales that are not rounded up": (mechanisms, "scale_of", lambda span, eps: float(span / eps), set()),
    "half the loss": (mechanisms, "_weights", None, {"weighted"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_sampler_gives_other_answers(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the kinds that have the fault."""
    place, name, wrong, kinds = FAULTS[fault]
    if wrong is None:
        right = mechanisms._weights
        wrong = lambda candidates, best, eta: right(candidates, best, eta / 2)  # noqa: E731
    mechanisms._laplace.cache_clear()
    monkeypatch.setattr(place, name, wrong)
    found = {line.split()[0] for line in wrong_answers()[1]}
    mechanisms._laplace.cache_clear()
    assert found >= kinds


@pytest.mark.parametrize("line", json.loads(SHARES.read_text()), ids=lambda line: str(line["seed"]))
def test_a_session_draws_the_known_shares(line: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """From a key's stream of bits; with other odds, or in another order, it does not."""
    asked = (len(line["shares"]), Fraction(line["epsilon"]), line["order"])
    assert own_shares(*asked, stream(line["seed"].encode())).tolist() == line["shares"]
    assert own_shares(*asked, stream(b"another")).tolist() != line["shares"]
    if line["order"] > 1:
        right = shared._odds
        monkeypatch.setattr(shared, "_odds", lambda first, end, order: right(first, end, order + 1))
        assert own_shares(*asked, stream(line["seed"].encode())).tolist() != line["shares"]


def test_numbers_below_a_limit() -> None:
    """Of the bits that the limit needs and no more, drawn again if too large."""
    tape = iter([b"\xff", b"\x3f", b"\x9f", b"\x01\x80"])
    source = Bits(lambda size: next(tape))
    assert source.below(6) == 1  # 7 of 0xff is too large; 0x3f is 1 in its three highest bits
    assert source.below(5) == 4
    assert source.below(257) == 3  # nine bits of 0x0180
    empty = Bits(lambda size: bytes(size))
    assert [empty.below(limit) for limit in (1, 2, 2**64)] == [0, 0, 0]


@pytest.mark.skipif("PINQ_ASSURANCE" not in os.environ, reason="set PINQ_ASSURANCE=1; it takes fifteen seconds")
def test_both_files_are_made_again() -> None:
    """By the implementation that made them."""
    pytest.importorskip("mpmath")
    from tests.assurance import known_draws

    draws, shares = known_draws.made()
    assert draws == json.loads(known_draws.DRAWS.read_text())
    assert shares == json.loads(known_draws.SHARES.read_text())
