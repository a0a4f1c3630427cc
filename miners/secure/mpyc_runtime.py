# SPDX-License-Identifier: Apache-2.0
"""MPyC made a library: the only import of it. Its own start reads the command line, configures logging and unpickles what peers send; ours does none of that."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import warnings
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from pinq.errors import QueryError

__all__ = ["SECURITY", "collecting_less", "install", "mpyc", "new_loop", "simulate", "threshold_of"]

SECURITY = 40  # bits: what a comparison opens is this close, 2^-40, to independent of the secret


@cache
def mpyc() -> Any:
    """The module ``mpyc.runtime``, imported without its side effects. ``QueryError`` where it is not installed."""
    arguments, root = sys.argv, logging.getLogger()
    quiet = logging.NullHandler()
    root.addHandler(quiet)  # so that MPyC finds logging configured
    sys.argv = [arguments[0], "--no-log"]
    policy = asyncio.get_event_loop_policy()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import mpyc.runtime as module
        module.mpc._loop.close()
    except ImportError:
        raise QueryError("secure computation needs MPyC: pip install 'pinq-miners[secure]'.") from None
    finally:
        sys.argv = arguments
        root.removeHandler(quiet)
        asyncio.set_event_loop_policy(policy)
        asyncio.set_event_loop(None)
    module.pickle = _Codec
    return module


class _Codec:
    """What shares look like on the wire: numbers of a fixed width, end to end. In the place of pickle, which would run what a peer sends."""

    width = 0

    @classmethod
    def dumps(cls, values: np.ndarray) -> bytes:
        """An array of integers from 0 to below 256^width."""
        width = cls.width
        return b"".join([value.to_bytes(width, "little") for value in values.tolist()])

    @classmethod
    def loads(cls, data: bytes) -> np.ndarray:
        """What ``dumps`` wrote."""
        width, read = cls.width, int.from_bytes
        return np.array([read(data[i : i + width], "little") for i in range(0, len(data), width)], dtype=object)


def threshold_of(parties: int) -> int:
    """How many parties may pool what they see: fewer than half."""
    return (parties - 1) // 2


def install(party: int, peers: Sequence[Any], *, bits: int, kind: Callable[..., Any] | None = None) -> Any:
    """A runtime for this party, in the running event loop, in the place of any other one of this process.

    Args:
        party: This party's number.
        peers: MPyC's description of each party, this one included.
        bits: The largest bit length that will be compared.
        kind: MPyC's ``Runtime`` or a class below it.
    """
    module = mpyc()
    alone = len(peers) == 1
    options = Namespace(
        threshold=threshold_of(len(peers)), no_log=True, no_async=alone, no_prss=False, no_barrier=True, ssl=False,
        sec_param=SECURITY, bit_length=32, mix32_64bit=False, workers=0,
    )
    runtime = (kind or module.Runtime)(party, peers, options)
    from mpyc import asyncoro, mpctools, random, secgroups, seclists, secpols, sectypes, statistics

    for part in (sectypes, asyncoro, mpctools, seclists, secpols, secgroups, random, statistics):
        part.runtime = runtime
    _Codec.width = (runtime.SecInt(bits).field.modulus.bit_length() + 7) // 8
    return runtime


def new_loop() -> asyncio.AbstractEventLoop:
    """Uvloop's event loop where there is one, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def simulate(work: Callable[[Any], Awaitable[Any]], bits: int) -> Any:
    """Runs a protocol in this process as the one party there is: the same steps on unmasked numbers, for trying and testing. Protects nothing."""

    async def run() -> Any:
        module = mpyc()
        runtime = install(0, [module.Party(0)], bits=bits)
        return await work(runtime)

    mpyc()
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(run())


@contextmanager
def collecting_less() -> Iterator[None]:
    """Python's cyclic garbage collector walks every pending step of a protocol again and again; meanwhile it rests and ``gc.collect`` is ours to call."""
    was = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was:
            gc.enable()
