# SPDX-License-Identifier: Apache-2.0
"""Whole numbers side by side in words of 64 bits: one addition adds all of a word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Field", "Packing"]

WORD_BITS = 64
# How many words may be added up before their numbers are taken apart: the one of the two with which a
# row has fewer words; the more where both have as many.
ROWS = (2**16, 2**15)


@dataclass(frozen=True)
class Field:
    """Where a number stands in a word.

    Attributes:
        number: Which of a row's numbers.
        bits: How many bits it has.
        signed: Whether it may be below 0.
    """

    number: int
    bits: int
    signed: bool

    @classmethod
    def of(cls, number: int, least: int, most: int, rows: int) -> Field:
        """Room for a number from ``least`` to ``most``, added up of so many rows."""
        signed = least < 0
        return cls(number, (max(-least, most) * rows).bit_length() + signed, signed)


@dataclass(frozen=True)
class Packing:
    """Where each of a row's numbers stands in its words.

    Sums are exact: a number has bits for what it may add up to, and its range is public.

    Attributes:
        rows: How many words may be added up before they are taken apart.
        fields: For each word what it holds, from its lowest bits on.
    """

    rows: int
    fields: tuple[tuple[Field, ...], ...]

    @classmethod
    def of(cls, ranges: Sequence[tuple[int, int]]) -> Packing:
        """Packs numbers by their least and most, of sizes below 2^40."""
        return min((cls._first_fit(ranges, rows) for rows in ROWS), key=lambda packing: packing.words)

    @classmethod
    def _first_fit(cls, ranges: Sequence[tuple[int, int]], rows: int) -> Packing:
        # From -65,514 to 65,514 needs 33 bits of 65,536 rows, from 0 to 16,384 31: they share a
        # word. What may be below 0 goes first, to the top; one bit of the top is for its sign.
        fields = [Field.of(number, *own, rows) for number, own in enumerate(ranges)]
        words: list[list[Field]] = []
        for field in sorted(fields, key=lambda field: not field.signed):
            fits = (word for word in words if sum(own.bits for own in (field, *word)) < WORD_BITS + word[-1].signed)
            word = next(fits, None)
            if word is None:
                words.append([field])
            else:
                word.insert(0, field)
        return cls(rows, tuple(map(tuple, words)))

    @property
    def words(self) -> int:
        """How many words a row has."""
        return len(self.fields)

    @property
    def numbers(self) -> int:
        """How many numbers a row has."""
        return sum(map(len, self.fields))

    def packed(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers of shape (numbers, ...), int64, as words of shape (words, ...)."""
        words = np.zeros((self.words, *numbers.shape[1:]), dtype=np.int64)
        for word, fields in zip(words, self.fields, strict=True):
            start = 0
            for field in fields:
                word += numbers[field.number] << start
                start += field.bits
        return words

    def unpacked(self, words: np.ndarray) -> np.ndarray:
        """The numbers in words, or in sums of at most ``rows`` words; inverse to ``packed``."""
        numbers = np.empty((self.numbers, *words.shape[1:]), dtype=np.int64)
        for number, own in self.apart(words):
            numbers[number] = own
        return numbers

    def apart(self, words: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yields each number's position and what ``unpacked`` has there."""
        for word, fields in zip(words, self.fields, strict=True):
            # In 8 bits beside 2, 255 may mean -1: 2 * 256 - 1 is 511, of which the low bits are 255
            # and the others 1; without -1 they are 2.
            rest = word
            for field in fields[:-1]:
                unused = WORD_BITS - field.bits
                own = (rest << unused) >> unused if field.signed else rest & (2**field.bits - 1)
                rest = (rest - own if field.signed else rest) >> field.bits
                yield field.number, own
            yield fields[-1].number, rest
