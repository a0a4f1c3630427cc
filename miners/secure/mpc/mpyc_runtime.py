# SPDX-License-Identifier: Apache-2.0
"""``install`` and ``simulate`` make MPyC a library; no other module imports it.

MPyC's own start reads the command line, configures logging and unpickles what peers send; ours does
none of that. ``Arithmetic`` uses the runtime that is made here, and ``Codec`` also writes what
parties send each other without MPyC.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
import warnings
from argparse import Namespace
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol, TypeVar

import numpy as np

from pinq.errors import QueryError, SessionError
from pinq.public.plugins import install_line

__all__ = [
    "Codec",
    "Connection",
    "MPyC",
    "alone",
    "field_bits",
    "install",
    "mpyc",
    "run_to_end",
    "simulate",
    "threshold_of",
]


MPyC = Any
"""MPyC's runtime of one party, and its arrays: it has no types."""

SECURITY = 40  # bits: what a comparison opens is this close, 2^-40, to independent of the secret
_LOADING = threading.Lock()  # two threads that exchange sys.argv would not put it back
_ONE_AT_A_TIME = threading.Lock()  # MPyC knows one runtime for each process

T = TypeVar("T")


class Connection(Protocol):
    """Carries messages to and from one other party, each with a label that both ends know."""

    def send(self, label: int, payload: bytes) -> None:
        """Sends a message."""

    def receive(self, label: int) -> bytes | asyncio.Future[bytes]:
        """Returns the message of this label, or a future of it where it has not arrived."""


def mpyc() -> MPyC:
    """Returns the module ``mpyc.runtime``, imported without its side effects.

    Raises ``QueryError`` if it is not installed.
    """
    with _LOADING:
        return _loaded()


@cache
def _loaded() -> MPyC:
    arguments, root = sys.argv, logging.getLogger()
    quiet = logging.NullHandler()
    root.addHandler(quiet)  # so that MPyC finds logging configured
    sys.argv = [arguments[0], "--no-log"]
    try:
        # MPyC takes its thread's event loop for its own, so it gets a thread without a notebook's.
        with ThreadPoolExecutor(1) as other:
            module = other.submit(_import_runtime).result()
    except ImportError:
        raise QueryError(f"secure computation needs MPyC: {install_line('secure')}.") from None
    finally:
        sys.argv = arguments
        root.removeHandler(quiet)
    return module


def _import_runtime() -> MPyC:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        policy = asyncio.get_event_loop_policy()
        import mpyc.runtime as module

        module.mpc._loop.close()
        asyncio.set_event_loop_policy(policy)
    return module


class Codec:
    """Writes numbers as bytes of a fixed width, end to end.

    In MPyC it stands in the place of pickle, which would run what a peer sends.
    """

    def __init__(self, width: int) -> None:
        self.width = width

    def dumps(self, values: np.ndarray) -> bytes:
        """Writes an array of integers from 0 to below 256^width."""
        return b"".join([value.to_bytes(self.width, "little") for value in values.tolist()])

    def loads(self, data: bytes) -> np.ndarray:
        """Reads what ``dumps`` wrote."""
        width, read = self.width, int.from_bytes
        return np.array([read(data[i : i + width], "little") for i in range(0, len(data), width)], dtype=object)


def threshold_of(parties: int) -> int:
    """Returns how many parties may pool what they see: fewer than half."""
    return (parties - 1) // 2


def field_bits(bits: int, parties: int) -> int:
    """Returns the size of the prime field in which numbers of so many bits are compared."""
    return bits + _mask_bits(parties) + 2


def _mask_bits(parties: int) -> int:
    """Returns by how many bits a mask is longer than what it hides.

    A mask is the sum of one pseudorandom number for each set of parties that could be honest; of
    colluders the last such number is unknown, and MPyC makes each as many bits shorter as there are
    sets, rounded up.
    """
    return SECURITY + math.comb(parties, threshold_of(parties)).bit_length()


@cache
def _masking_runtime() -> MPyC:
    """Makes MPyC's runtime with a zero test of our own, which masks what it opens."""
    mpyc()
    from mpyc import asyncoro, thresha
    from mpyc.runtime import Runtime as MPyCsOwn

    class MaskingRuntime(MPyCsOwn):  # type: ignore[misc]  # MPyC has no types
        """Computes among the parties of one computation."""

        # MPyC reads the annotation, which may have no argument.
        @asyncoro.mpc_coro  # type: ignore[untyped-decorator]
        async def np_is_zero_public(self, secrets: MPyC) -> asyncio.Future:  # type: ignore[type-arg]
            """Opens whether each secret is 0, also inside comparisons.

            MPyC opens the bare product of the secret's polynomial a(x) and a random r(x). All see
            the whole of a(x) r(x), whose roots are those of a(x) and of r(x): who knows one point
            of a(x) then knows a(0). A random polynomial of the same degree that is 0 at 0 hides all
            but a(0) r(0).
            """
            field, shape = secrets.sectype.field, secrets.shape
            values = (await self.gather(secrets)).value.reshape(-1)
            parties, functions = len(self.parties), self.prfs(field.order)
            factors = thresha.np_pseudorandom_share(field, parties, self.pid, functions, self._prss_uci(), values.size)
            masks = thresha.np_pseudorandom_share_0(field, parties, self.pid, functions, self._prss_uci(), values.size)
            opened = await self.output(field.array(values * factors.value + masks.value), threshold=2 * self.threshold)
            return (opened == 0).reshape(shape)

    return MaskingRuntime


def install(party: int, parties: int, *, bits: int, connections: Mapping[int, Connection] | None = None) -> MPyC:
    """Makes a runtime in the running event loop, in the place of any other one of this process.

    Args:
        party: This party's number.
        parties: How many compute.
        bits: The largest bit length that will be compared.
        connections: The connection to each other party.
    """
    module = mpyc()
    peers = [module.Party(number) for number in range(parties)]
    options = Namespace(
        threshold=threshold_of(parties),
        no_log=True,
        no_async=parties == 1,
        no_prss=False,
        no_barrier=True,
        ssl=False,
        sec_param=_mask_bits(parties),
        bit_length=32,
        mix32_64bit=False,
        workers=0,
    )
    runtime = _masking_runtime()(party, peers, options)
    if connections:  # MPyC's own handler prints traces, and does not know every event loop
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    from mpyc import asyncoro, mpctools, random, secgroups, seclists, secpols, sectypes, statistics

    for part in (sectypes, asyncoro, mpctools, seclists, secpols, secgroups, random, statistics):
        part.runtime = runtime
    sectypes._SecInt.cache_clear()  # a field made for another number of parties may be too small
    module.pickle = Codec((runtime.SecInt(bits).field.modulus.bit_length() + 7) // 8)
    for number, connection in (connections or {}).items():
        peers[number].protocol = connection
    return runtime


def run_to_end(main: Coroutine[object, None, T]) -> T:
    """Runs a coroutine in an event loop of its own, also from inside a running one.

    Errors of steps that were broken off on the way are not printed: what matters of them is raised.
    """

    def run() -> T:
        with asyncio.Runner() as runner:
            runner.get_loop().set_exception_handler(lambda loop, context: None)
            return runner.run(main)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    with ThreadPoolExecutor(1) as other:
        return other.submit(run).result()


def simulate(work: Callable[[MPyC], Awaitable[T]], bits: int) -> T:
    """Runs a protocol in this process, as the one party there is. Protects nothing."""
    mpyc()

    async def run() -> T:
        return await work(install(0, 1, bits=bits))

    with _ONE_AT_A_TIME:
        return run_to_end(run())


@contextmanager
def alone() -> Iterator[None]:
    """Keeps other computations out of this process, which has one runtime of MPyC's.

    Raises ``SessionError`` if there is one.
    """
    if not _ONE_AT_A_TIME.acquire(blocking=False):
        raise SessionError("another session computes in this process; join each from a process of its own.")
    try:
        yield
    finally:
        _ONE_AT_A_TIME.release()
