# SPDX-License-Identifier: Apache-2.0
"""Numbers side by side in words: their sums are exact up to the last row, whatever stands beside them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pinq.language.derivatives import ROWS, Packing

UNIT = 2**16
LIMIT = 2**24
RANGES = {
    "logistic": ([(-65_514, 65_514), (0, UNIT // 4)], 1, 2**16),
    "softmax": ([(-UNIT, UNIT)] * 2 + [(0, UNIT // 4)] * 2, 2, 2**15),
    "residuals": ([(0, 2**14)] * 2, 1, 2**16),
    "large": ([(0, LIMIT)] * 2, 2, 2**16),
    "signed": ([(-LIMIT, LIMIT), (-7, 3)], 1, 2**16),
    "moments": ([(0, 1), (0, 100), (0, 10**4), (0, 0)], 2, 2**16),
    "one": ([(-5, 0)], 1, 2**16),
}


@pytest.mark.parametrize(("ranges", "words", "rows"), RANGES.values(), ids=RANGES)
def test_sums_of_words_are_those_of_their_numbers(ranges: list[tuple[int, int]], words: int, rows: int) -> None:
    """Of as many rows as may be added up, each of which has the least or the most there is: nothing touches its neighbour."""
    packing = Packing.of(ranges)
    assert (packing.words, packing.rows, packing.numbers) == (words, rows, len(ranges))
    extremes = np.array(list(itertools.product(*ranges)), dtype=np.int64).T
    packed = packing.packed(extremes)
    assert np.array_equal(packing.unpacked(packed), extremes)
    assert np.array_equal(packing.unpacked(packed * rows), extremes * rows)
    mixed = np.random.default_rng(0).integers(0, extremes.shape[1], (rows, 3))
    sums = packing.unpacked(packed[:, mixed].sum(axis=1))
    assert np.array_equal(sums, extremes[:, mixed].sum(axis=1))


@pytest.mark.parametrize("rows", ROWS)
def test_a_word_has_room_for_all_its_numbers(rows: int) -> None:
    """Random ranges: each number is in one word, and what a word holds never passes 64 bits."""
    draw = np.random.default_rng(rows)
    for _ in range(200):
        most = [2 ** int(bits) for bits in draw.integers(0, 25, draw.integers(1, 9))]
        ranges = [(-own * int(draw.integers(0, 2)), own) for own in most]
        packing = Packing._first_fit(ranges, rows)
        assert sorted(field.number for word in packing.fields for field in word) == list(range(len(ranges)))
        for word in packing.fields:
            # Each number, rows times, is in [-least, most]; all beside each other are a number of 64 bits.
            for end in (0, 1):
                total, start = 0, 0
                for field in word:
                    total += ranges[field.number][end] * rows << start
                    start += field.bits
                assert -(2**63) <= total < 2**63
