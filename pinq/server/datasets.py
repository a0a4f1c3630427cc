# SPDX-License-Identifier: Apache-2.0
"""The datasets that a server has open: policy, ledger and curator of each, and its tokens."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pinq.curator.monitor import Curator
from pinq.engine import open_engine
from pinq.errors import LedgerError, NotAuthorised, PolicyError
from pinq.ledger.ledger import Ledger
from pinq.ledger.terms import Grant
from pinq.provider.backup import heads_folder
from pinq.provider.local import curator_of, open_ledger
from pinq.provider.policy_file import load_policy
from pinq.public.policy import Policy

__all__ = ["Dataset", "Datasets"]


@dataclass(frozen=True)
class Dataset:
    """One open dataset."""

    policy: Policy
    ledger: Ledger
    curator: Curator

    @classmethod
    def open(cls, policy: str | os.PathLike[str] | Policy, data: Any = None) -> Dataset:
        """Opens a policy's ledger and encodes its source; the provider's own act."""
        loaded = load_policy(policy)
        ledger = open_ledger(loaded, heads=heads_folder())
        engine, _ = open_engine(loaded, data=data, salt=ledger.salt)
        return cls(loaded, ledger, curator_of(loaded, ledger, engine))

    @property
    def name(self) -> str:
        """Under which analysts know it."""
        return self.policy.dataset


class Datasets(Mapping[str, Dataset]):
    """All datasets of a server, by name.

    Attributes:
        drafts: Policy files of a folder that are not served, for they are not reviewed yet.
    """

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self._all: dict[str, Dataset] = {}
        self.drafts: tuple[Path, ...] = ()
        for dataset in datasets:
            if dataset.name in self._all:
                raise PolicyError(f"Two policies call their dataset {dataset.name!r}; a server needs different names.")
            self._all[dataset.name] = dataset
        if not self._all:
            raise PolicyError("There is no policy to serve.")

    @classmethod
    def open(cls, paths: Iterable[str | os.PathLike[str]]) -> Datasets:
        """Opens policy files, and every ``*.yaml`` of folders but for unreviewed drafts.

        Raises:
            PolicyError: A policy is wrong, or its name is taken; a file was named that is not
                reviewed; a folder has drafts alone.
            LedgerError: A ledger that cannot be trusted.
        """
        files = [(path, file) for path in map(Path, paths) for file in _files(path)]
        drafts = tuple(file for path, file in files if path.is_dir() and _is_draft(file))
        if files and len(drafts) == len(files):
            verb = "is" if len(drafts) == 1 else "are"
            raise PolicyError(f"There is no policy to serve: {', '.join(map(str, drafts))} {verb} not reviewed yet.")
        datasets = cls(_opened(file) for _, file in files if file not in drafts)
        datasets.drafts = drafts
        return datasets

    def authorise(self, name: str, hashed: str) -> tuple[Dataset, Grant]:
        """The dataset and the grant that the token with a digest opens.

        Raises:
            NotAuthorised: One text, after one look into one ledger, for an unknown dataset and for
                a token that is wrong, expired, revoked or another dataset's. What is left of a
                difference in time, the gate hides.
        """
        dataset = self._all.get(name, next(iter(self._all.values())))
        grant = dataset.ledger.holder(hashed)
        if grant is None or dataset.name != name:
            raise NotAuthorised()
        return dataset, grant

    def know(self, hashed: str) -> bool:
        """Whether a dataset gave out the token with a digest, as far as this process has read."""
        return any(dataset.ledger.knows(hashed) for dataset in self._all.values())

    def close(self) -> None:
        """Closes every engine and ledger."""
        for dataset in self._all.values():
            dataset.curator.close()

    def __getitem__(self, name: str) -> Dataset:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


def _is_draft(file: Path) -> bool:
    return bool(load_policy(file).unreviewed_fields())


def _opened(file: Path) -> Dataset:
    """A policy's dataset; what is wrong names the file, for a folder may have many."""
    try:
        return Dataset.open(file)
    except (PolicyError, LedgerError) as error:
        raise error if str(file) in str(error) else type(error)(f"{file}: {error}") from None


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted([*path.glob("*.yaml"), *path.glob("*.yml")])
    if not files:
        raise PolicyError(f"The folder {path} has no policy (*.yaml).")
    return files
