# SPDX-License-Identifier: Apache-2.0
"""The page of a dataset, somebody who came to it, and the provider who has signed in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pinq.provider import grants as provider
from pinq.server.app import create_app
from pinq.server.datasets import Dataset, Datasets
from pinq.server.limits import Settings
from pinq.server.log import RequestLog
from tests.servers import publish
from tests.visitor import HASHED, Visitor


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A dataset on which ana was granted epsilon 2."""
    file = publish(tmp_path / "policies", "people", cap=10)
    provider.grant(file, "ana", 2)
    return file


@pytest.fixture
def served(policy: Path, tmp_path: Path) -> Iterator[tuple[Any, Datasets]]:
    """The application with the page, and its datasets."""
    datasets = Datasets.open([policy])
    log = RequestLog(tmp_path / "requests.log")
    yield create_app(datasets, Settings(), log, provider_password=HASHED), datasets
    datasets.close()
    log.close()


@pytest.fixture
def stranger(served: tuple[Any, Datasets]) -> Iterator[Visitor]:
    """Someone who has not signed in."""
    with asyncio.Runner() as runner:
        visitor = Visitor(served[0], runner)
        yield visitor
        visitor.close()


@pytest.fixture
def owner(stranger: Visitor) -> Visitor:
    """The provider, signed in."""
    assert stranger.sign_in().status_code == 200
    return stranger


@pytest.fixture
def people(served: tuple[Any, Datasets]) -> Dataset:
    return served[1]["people"]
