# SPDX-License-Identifier: Apache-2.0
"""MPyC made a library: the only import of it. Its own start reads the command line, configures logging and unpickles what peers send; ours does none of that."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import sys
import threading
import warnings
from argparse import Namespace
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from pinq.errors import QueryError

__all__ = ["collecting_less", "field_bits", "install", "mpyc", "run_to_end", "simulate", "threshold_of"]

SECURITY = 40  # bits: what a comparison opens is this close, 2^-40, to independent of the secret
_LOADING = threading.Lock()  # two threads that exchange sys.argv would not put it back
_ONE_AT_A_TIME = threading.Lock()  # MPyC knows one runtime for each process


def mpyc() -> Any:
    """The module ``mpyc.runtime``, imported without its side effects. ``QueryError`` where it is not installed."""
    with _LOADING:
        return _loaded()


@cache
def _loaded() -> Any:
    arguments, root = sys.argv, logging.getLogger()
    quiet = logging.NullHandler()
    root.addHandler(quiet)  # so that MPyC finds logging configured
    sys.argv = [arguments[0], "--no-log"]
    try:
        with ThreadPoolExecutor(1) as other:  # MPyC takes the event loop of its thread for its own: a notebook's, here
            module = other.submit(_import_runtime).result()
    except ImportError:
        raise QueryError("secure computation needs MPyC: pip install 'pinq-miners[secure]'.") from None
    finally:
        sys.argv = arguments
        root.removeHandler(quiet)
    module.pickle = _Codec
    return module


def _import_runtime() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        policy = asyncio.get_event_loop_policy()
        import mpyc.runtime as module

        module.mpc._loop.close()
        asyncio.set_event_loop_policy(policy)
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


def field_bits(bits: int, parties: int) -> int:
    """The size of the prime field in which numbers of so many bits are compared."""
    return bits + _mask_bits(parties) + 2


def _mask_bits(parties: int) -> int:
    """Bits by which a mask is longer than what it hides.

    A mask is the sum of one pseudorandom number for each set of parties that could be honest; of
    colluders the last such number is unknown, and MPyC makes each as many bits shorter as there are
    sets, rounded up.
    """
    return SECURITY + math.comb(parties, threshold_of(parties)).bit_length()


@cache
def _masking_runtime() -> Any:
    """MPyC's runtime with one step of our own: a product that is opened without a round of resharing is masked first."""
    module = mpyc()
    from mpyc import asyncoro, thresha

    class Runtime(module.Runtime):  # type: ignore[misc, name-defined]  # MPyC has no types
        """Among the parties of one computation."""

        @asyncoro.mpc_coro  # type: ignore[untyped-decorator]
        async def np_is_zero_public(self, secrets: Any) -> asyncio.Future:  # type: ignore[type-arg]  # MPyC reads this annotation
            """Opens whether each secret is 0, also inside comparisons.

            MPyC opens the bare product of the secret's polynomial a(x) and a random r(x). All see
            the whole of a(x) r(x), whose roots are those of a(x) and of r(x): who knows one point
            of a(x) then knows a(0). A random polynomial of the same degree that is 0 at 0 hides all
            but a(0) r(0).
            """
            field, shape = type(secrets).sectype.field, secrets.shape
            values = (await self.gather(secrets)).value.reshape(-1)
            parties, functions = len(self.parties), self.prfs(field.order)
            factors = thresha.np_pseudorandom_share(field, parties, self.pid, functions, self._prss_uci(), values.size)
            masks = thresha.np_pseudorandom_share_0(field, parties, self.pid, functions, self._prss_uci(), values.size)
            opened = await self.output(field.array(values * factors.value + masks.value), threshold=2 * self.threshold)
            return (opened == 0).reshape(shape)

    return Runtime


def install(party: int, peers: Sequence[Any], *, bits: int) -> Any:
    """A runtime for this party, in the running event loop, in the place of any other one of this process.

    Args:
        party: This party's number.
        peers: MPyC's description of each party, this one included.
        bits: The largest bit length that will be compared.
    """
    alone = len(peers) == 1
    options = Namespace(
        threshold=threshold_of(len(peers)),
        no_log=True,
        no_async=alone,
        no_prss=False,
        no_barrier=True,
        ssl=False,
        sec_param=_mask_bits(len(peers)),
        bit_length=32,
        mix32_64bit=False,
        workers=0,
    )
    runtime = _masking_runtime()(party, peers, options)
    from mpyc import asyncoro, mpctools, random, secgroups, seclists, secpols, sectypes, statistics

    for part in (sectypes, asyncoro, mpctools, seclists, secpols, secgroups, random, statistics):
        part.runtime = runtime
    sectypes._SecInt.cache_clear()  # a field made for another number of parties may be too small
    _Codec.width = (runtime.SecInt(bits).field.modulus.bit_length() + 7) // 8
    return runtime


def run_to_end(main: Coroutine[Any, Any, Any], *, loop: Callable[[], asyncio.AbstractEventLoop] | None = None) -> Any:
    """Runs a coroutine in an event loop of its own, also from where one is running already, as in a notebook.

    Errors of steps that were broken off on the way are not printed: what matters of them is raised.
    """

    def run() -> Any:
        with asyncio.Runner(loop_factory=loop or _fast_loop) as runner:
            runner.get_loop().set_exception_handler(lambda loop, context: None)
            return runner.run(main)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    with ThreadPoolExecutor(1) as other:
        return other.submit(run).result()


def _fast_loop() -> asyncio.AbstractEventLoop:
    """Uvloop's event loop where there is one, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def simulate(work: Callable[[Any], Awaitable[Any]], bits: int) -> Any:
    """Runs a protocol in this process as the one party there is: the same steps on unmasked numbers, for trying and testing. Protects nothing."""
    module = mpyc()

    async def run() -> Any:
        return await work(install(0, [module.Party(0)], bits=bits))

    with _ONE_AT_A_TIME:
        return run_to_end(run(), loop=asyncio.new_event_loop)


@contextmanager
def collecting_less() -> Iterator[None]:
    """Python's cyclic garbage collector would walk every pending step of a protocol again and again: here it rests, and what runs for long calls ``gc.collect`` now and then."""
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
