# SPDX-License-Identifier: Apache-2.0
"""Changes of valid inputs: of a few bytes of a text, or of a few places of its content."""

from __future__ import annotations

import copy
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# Pieces that mean something to a reader of YAML, JSON or numbers.
PIECES = [
    *(b"[", b"]", b"{", b"}", b"{a: [", b": ", b",", b"- ", b"\n", b"\r", b"\t", b" ", b"#", b"'", b'"', b"\\", b"|\n"),
    *(b"&a ", b"*a", b"&a [*a, *a]", b"<<: *a", b"? [a]\n: 1\n", b"? {a: 1}\n", b"!!python/object/apply:os.system [x]"),
    *(b"!!binary x", b"!!set {a}", b"!!timestamp x", b"%YAML 9.9\n", b"---\n", b"...\n", b"~", b"null", b"true"),
    *(b"NaN", b"-.inf", b"Infinity", b"1e999999999", b"-0", b"0x1f", b"9" * 5_000, b"1" * 25, b"0." + b"3" * 400),
    *(b"\x00", b"\x07", b"\x1b[2J", b"\x85", b"\xff\xfe", b"\xc3(", b"\xed\xa0\x80", b"\\ud800", b"\\u0000"),
    *("\ufeff".encode(), "\u2028".encode(), "\u202e".encode(), b"[" * 5_000, b"{a: " * 2_000, b"- " * 3_000),
]
# What may stand where something else should.
STRANGE: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**63, -(2**64), 10**400, 0.5, -0.0, 1e308, 5e-324, float("inf"), float("nan")),
    *(
        "",
        "0",
        "-1",
        "1e9999",
        "nan",
        "9" * 5_000,
        "\x00",
        "\ud800",
        "\u202e",
        "a\nb",
        "x" * 10_000,
        "../../etc/passwd",
    ),
    *([], {}, [[]], [{}], {"": {}}, [None], [0] * 3_000, {"kind": "values"}, {"a": {"a": {"a": []}}}),
]


def bent(text: bytes, draw: random.Random) -> bytes:
    """A text with one to three changes of its bytes."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        start = draw.randrange(len(text) + 1)
        end = min(len(text), start + draw.choice((0, 1, 1, 4, 16, 200)))
        match draw.randrange(6):
            case 0:  # cut out, or cut off
                text = text[:start] + (text[end:] if draw.random() < 0.8 else b"")
            case 1:
                text = text[:end] + text[start:]
            case 2:
                text = text[:start] + draw.choice(PIECES) + text[end:]
            case 3:
                text = text[:start] + draw.choice(PIECES) + text[start:]
            case 4 if start < len(text):
                text = text[:start] + bytes([text[start] ^ 1 << draw.randrange(8)]) + text[start + 1 :]
            case _:
                other = draw.randrange(len(text) + 1)
                text = text[:start] + text[other : other + end - start] + text[end:]
    return text


def changed(content: Any, draw: random.Random) -> Any:
    """Content of JSON or YAML with one to three places changed: another value, one less, one more, one taken from elsewhere."""
    content = copy.deepcopy(content)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        owners = list(_owners(content))
        if not owners:
            return draw.choice(STRANGE)
        owner = draw.choice(owners)
        keys = list(owner) if isinstance(owner, dict) else list(range(len(owner)))
        key, elsewhere = draw.choice(keys), draw.choice(owners)
        match draw.randrange(6):
            case 0:
                del owner[key]
            case 1 if isinstance(owner, dict):
                owner[draw.choice(["", "extra", "kind", "type", "version", "\ud800", *map(str, keys)])] = owner[key]
            case 1:
                owner.append(owner[key])
            case 2:
                owner[key] = copy.deepcopy(elsewhere)
            case 3:
                owner[key] = _nudged(owner[key], draw)
            case _:
                owner[key] = copy.deepcopy(draw.choice(STRANGE))
    return content


def _owners(content: Any) -> Iterator[Any]:
    """All objects and lists in it that hold something."""
    inside = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    if inside:
        yield content
    for item in inside:
        yield from _owners(item)


def _nudged(value: Any, draw: random.Random) -> Any:
    """Nearly the same value."""
    match value:
        case bool():
            return not value
        case int() | float() if abs(value) < 2**60:
            return draw.choice([-value, value + 1, value * 10**6, str(value), value + 0.5, [value]])
        case str():
            return draw.choice(
                [value + " ", value.upper(), value[:-1], value * 2, value[::-1], f"{value}\u0301", {value: 1}]
            )
        case list():
            return draw.choice([value[::-1], value * 2, value[:-1], dict.fromkeys(map(str, value), 1), str(value)])
    return draw.choice(STRANGE)


class Hangs(BaseException):
    """Work took too long; no ``except Exception`` catches this."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises ``Hangs`` if the work takes more CPU seconds of this process; other work on the machine does not count."""

    def stop(sign: int, frame: FrameType | None) -> None:
        raise Hangs

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
