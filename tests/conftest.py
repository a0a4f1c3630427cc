# SPDX-License-Identifier: Apache-2.0
"""Shared fixtures: tiny policies, and handles that were granted a budget a moment ago."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings

# Fixtures import what they need: the process that hands out tests to others needs none of it, and they wait for it.
if TYPE_CHECKING:
    import pandas as pd

    from pinq.analyst.queryable import PrivateQueryable
    from pinq.policy.policy import Policy
    from pinq.public.schema import Schema

# Nothing is garbage while modules are imported and tests are listed: looking for it took a third of that time.
gc.disable()

# The same examples each time, so that what passed here passes elsewhere; `make explore` draws new ones.
settings.register_profile(
    "pinq",
    deadline=None,
    print_blob=True,
    derandomize=not os.environ.get("PINQ_EXPLORE"),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
# A planted fault needs any example that fails, and not the smallest.
settings.register_profile("first", settings.get_profile("pinq"), phases=(Phase.explicit, Phase.generate))
settings.load_profile("pinq")


@pytest.hookimpl(tryfirst=True)  # so that its cleanup comes last
def pytest_configure(config: pytest.Config) -> None:
    """Warnings are errors, but for those that tests provoke all over by small tables and odd rows.

    ``test_fit_warnings.py`` makes them errors again and says where they are given and where they are not.
    """
    # At its end the interpreter takes everything apart again; DuckDB's bindings report what is left.
    config.add_cleanup(gc.unfreeze)
    if "XDG_STATE_HOME" not in os.environ:  # servers keep heads of their ledgers there
        state = tempfile.TemporaryDirectory(prefix="pinq-state-")
        os.environ["XDG_STATE_HOME"] = state.name
        config.add_cleanup(state.cleanup)
    for kind in ("miners.budget.plan.FitWarning", "miners.fitted.route.UndeclaredValueWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::{kind}")


LONG = dict.fromkeys(Path(__file__).with_name("long.txt").read_text(encoding="utf-8").splitlines())  # the longest first


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests of ``long.txt``, or of a file that is named there, are marked."""
    if item.nodeid in LONG or item.nodeid.partition("::")[0] in LONG:
        item.add_marker("long")


@pytest.hookimpl(trylast=True)  # after the order was drawn
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first, so that no core waits for one at the end; a file's tests stay together."""
    order = {file: place for place, file in enumerate(dict.fromkeys(test.partition("::")[0] for test in LONG))}
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], len(order)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Noise is the same each time a test runs, but for tests of the noise itself."""
    from tests.support.laws.fixed_noise import COINS, seed_of, take_over

    take_over()
    COINS.seed(seed_of(item.nodeid))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """What several tests share does not depend on which of them is the first."""
    if fixturedef.scope == "function":
        return (yield)
    from tests.support.laws.fixed_noise import COINS, seed_of

    name = f"{fixturedef.baseid}::{fixturedef.argname}[{getattr(request, 'param_index', 0)}]"
    with COINS.apart(seed_of(name)):
        return (yield)


def pytest_collection_finish() -> None:
    """From here on garbage is looked for, and only among what the tests themselves make."""
    gc.freeze()
    # What tests share stays too, and is more than their garbage: it is gone through a seventh as often as usual.
    gc.set_threshold(2_000, 10, 25)
    gc.enable()


@pytest.fixture(autouse=True)
def figures_are_closed() -> Iterator[None]:
    """Pictures of one test are gone before the next: matplotlib warns of many, whoever drew them."""
    yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")


@pytest.fixture
def frame() -> pd.DataFrame:
    """Forty rows that fit ``tiny_policy``."""
    from tests.support.tables.tiny_tables import rows

    return rows()


@pytest.fixture
def tiny_policy(tmp_path: Path) -> Policy:
    """A reviewed policy without a source, whose ledger lies in the test's folder."""
    from tests.support.tables.tiny_tables import policy_in

    return policy_in(tmp_path)


@pytest.fixture
def schema(tiny_policy: Policy) -> Schema:
    """The public part of ``tiny_policy``."""
    return tiny_policy.schema_


@pytest.fixture
def granted(tiny_policy: Policy, frame: pd.DataFrame) -> Iterator[Callable[..., PrivateQueryable]]:
    """Makes a handle: ``granted(epsilon=1)``, on ``tiny_policy`` and ``frame`` unless others are given."""
    import pinq
    from pinq.provider.opening import open_ledger
    from pinq.public.epsilon import Epsilon

    opened: list[PrivateQueryable] = []

    def make(
        epsilon: Any = 1, *, analyst: str = "ana", policy: Policy = tiny_policy, data: Any = frame
    ) -> PrivateQueryable:
        ledger = open_ledger(policy)
        if analyst not in ledger.grants():
            ledger.grant(analyst, Epsilon.of(epsilon))
        ledger.close()
        opened.append(pinq.open(policy, analyst=analyst, data=data))
        return opened[-1]

    yield make
    for handle in opened:
        handle.close()


@pytest.fixture
def unrehearsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request runs on dummy rows first: for tests that look at what is drawn, or that fail after the charge."""
    monkeypatch.setattr("pinq.curator.monitor.Rehearsals.require", lambda *_: None)


@pytest.fixture
def in_memory(tiny_policy: Policy, frame: pd.DataFrame) -> Iterator[Callable[..., PrivateQueryable]]:
    """Makes a handle whose ledger lives in memory: for tests that ask thousands of times."""
    from pinq.analyst.queryable import PrivateQueryable
    from pinq.curator.monitor import Curator
    from pinq.ledger.ledger import Ledger
    from pinq.provider.local import LocalSession
    from pinq.public.epsilon import Epsilon
    from tests.support.requests.handles import engine_on

    opened: list[Any] = []

    def make(epsilon: Any = 1, *, policy: Policy = tiny_policy, data: Any = frame) -> PrivateQueryable:
        schema = policy.schema_
        ledger = Ledger("sqlite://", policy.dataset)
        ledger.declare(schema.digest, Epsilon.of(epsilon), {})
        ledger.grant("ana", Epsilon.of(epsilon))
        engine = engine_on(policy, data, ledger.salt)
        opened.extend([ledger, engine])
        return PrivateQueryable(LocalSession(policy.dataset, "ana", Curator(schema, ledger, engine)))

    yield make
    for one in opened:
        one.close()


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """The URL of a PostgreSQL server that this session started."""
    from tests.support.processes.postgresql import running

    with running() as url:
        yield url


@pytest.fixture
def postgresql(postgresql_url: str) -> str:
    """The URL of a database of the test's own."""
    from tests.support.processes.postgresql import database

    return database(postgresql_url)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    from tests.support.processes.wheels import build_wheel

    return build_wheel(tmp_path_factory.mktemp("dist"))
