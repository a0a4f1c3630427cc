# SPDX-License-Identifier: Apache-2.0
"""The datasets that a server has open: policy, ledger and curator of each, and its tokens."""

from __future__ import annotations

import logging
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from pinq.curator.deadline import Meter, WorkMeter
from pinq.curator.monitor import Curator
from pinq.engine import Engine, open_engine
from pinq.errors import LedgerError, PinqError, PolicyError, closed_on_error
from pinq.ledger.database import url_of
from pinq.ledger.ledger import Ledger
from pinq.policy.files import FileFacts, source_facts
from pinq.policy.policy import Policy
from pinq.provider.backup import heads_folder
from pinq.provider.claim import ledger_url
from pinq.provider.opening import curator_of, declare, guarding_ledger, open_ledger
from pinq.provider.policy_file import load_policy
from pinq.provider.versions import OpenRows, open_rows

_log = logging.getLogger("pinq.server.datasets")
T = TypeVar("T")


class Users:
    """Counts the users of an object, first one, and closes it after the last one."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close, self._count, self._lock = close, 1, threading.Lock()

    def come(self) -> Users:
        with self._lock:
            self._count += 1
        return self

    def go(self) -> None:
        with self._lock:
            self._count -= 1
            is_last = self._count == 0
        if is_last:
            self._close()


@dataclass(frozen=True)
class DatasetState:
    """The state of an open dataset, by which another process can open the same one.

    Attributes:
        salt: The ledger's salt, which distinguishes it from another ledger at the same address.
        source: The facts of the source's files before they were read.
        version: The version of the rows.
        closed: The numbers of the closed cohorts' versions, by the keys of their parts.
    """

    policy: Policy
    url: str
    salt: bytes = field(repr=False)
    source: tuple[FileFacts, ...]
    version: int
    closed: Mapping[bytes, int]


@dataclass(eq=False)
class Dataset:
    """One open dataset.

    It is closed when it is no longer served and its last lease has ended. A later state of the dataset
    may share its engine and ledger, which are closed with their last user.

    Attributes:
        rows: The encoded rows, and their version.
        meter: The meter of its analysts' work.
        trouble: The reason why its ledger last failed a request, until it can be written again.
        users: The count of users: the server while it serves the dataset, and each lease.
        number: The number by which a worker knows it.
    """

    policy: Policy
    ledger: Ledger
    curator: Curator
    rows: OpenRows
    meter: Meter
    trouble: str = ""
    number: int = field(init=False, default_factory=count().__next__)
    _of_ledger: Users = field(init=False, repr=False)
    _of_engine: Users = field(init=False, repr=False)
    users: Users = field(init=False, repr=False)

    @classmethod
    def open(
        cls,
        policy: str | os.PathLike[str] | Policy,
        data: Any = None,
        *,
        processes: int = 1,
        table: str | None = None,
        meter: Meter | None = None,
    ) -> Dataset:
        """Opens a policy's ledger and encodes its source, as an act of the provider."""
        loaded = load_policy(policy).at(table)
        with closed_on_error(open_ledger(loaded, heads=heads_folder())) as ledger:
            rows = open_rows(loaded, ledger, data)
        return cls._of(loaded, ledger, rows, meter or WorkMeter(processes=processes))

    @classmethod
    def beside(cls, state: DatasetState, meter: Meter) -> Dataset:
        """Opens a dataset that another process has open, with the same rows; logs nothing.

        Raises:
            PolicyError: The source cannot be read, or changed since.
            LedgerError: Another ledger is in its place.
        """
        policy = state.policy
        _require_same(policy, state.source)  # before the costly encoding
        with closed_on_error(Ledger(state.url, policy.dataset, create=False, heads=heads_folder())) as ledger:
            if ledger.salt != state.salt:
                raise LedgerError("another ledger is in the place of the one that the server has open.")
            engine, _ = open_engine(policy, salt=state.salt)
            with closed_on_error(engine):
                _require_same(policy, state.source)
        return cls._of(policy, ledger, OpenRows(engine, state.source, state.version, state.closed), meter)

    def renewed(self, policy: Policy) -> Dataset:
        """Opens it under a policy that may have changed, by the rules of a start.

        Ledger and codes are kept if they would be equal. The policy is logged last, so that an unreadable source leaves
        no trace of the new policy.

        Returns:
            This dataset if nothing changed, else another one; this one goes on answering.

        Raises:
            PolicyError, LedgerError: As ``open``. The old dataset stays; the ledger may have one more version of the
                rows, without queries.
        """
        policy.require_reviewed()
        same, source = url_of(ledger_url(policy)) == self.ledger.url, source_facts(policy)
        if same:
            ledger_url(policy, create=True)  # claims new files for the ledger
        ledger = self.ledger if same else guarding_ledger(policy, create=True, heads=heads_folder())
        # Another ledger has another salt, so other coins and other rows of a unit: it needs other codes.
        same_rows = ledger is self.ledger and source == self.source and not self.engine.problem()
        same_codes = same_rows and _codes(policy) == _codes(self.policy)
        with ExitStack() as refused:
            if ledger is not self.ledger:
                refused.callback(ledger.close)
            rows = self.rows if same_codes else open_rows(policy, ledger)
            if not same_codes:
                refused.callback(rows.engine.close)
            declare(policy, ledger, may_raise=True)
            refused.pop_all()
        if same_codes and policy == self.policy:
            return self
        return Dataset._of(policy, ledger, rows, self.meter, self)

    @classmethod
    def _of(
        cls,
        policy: Policy,
        ledger: Ledger,
        rows: OpenRows,
        meter: Meter,
        before: Dataset | None = None,
    ) -> Dataset:
        curator = curator_of(policy, ledger, rows.engine, rows.version, rows.closed, meter)
        opened = cls(policy, ledger, curator, rows, meter)
        same_ledger, same_engine = before and before.ledger is ledger, before and before.engine is rows.engine
        opened._of_ledger = before._of_ledger.come() if before and same_ledger else Users(ledger.close)
        opened._of_engine = before._of_engine.come() if before and same_engine else Users(rows.engine.close)
        opened.users = Users(opened._end)
        return opened

    def close(self) -> None:
        self.users.go()

    def _end(self) -> None:
        self._of_engine.go()
        self._of_ledger.go()

    @property
    def state(self) -> DatasetState:
        rows = self.rows
        return DatasetState(self.policy, self.ledger.url, self.ledger.salt, rows.source, rows.version, rows.closed)

    @cached_property
    def packed(self) -> bytes:
        """The pickled state, made once: a policy of a thousand columns takes 20 ms."""
        return pickle.dumps(self.state)

    @property
    def engine(self) -> Engine:
        return self.rows.engine

    @property
    def source(self) -> tuple[FileFacts, ...]:
        return self.rows.source

    @property
    def name(self) -> str:
        return self.policy.name

    def outdated(self) -> str:
        """The change of the source's files since they were encoded, in words; empty for none.

        Only facts of files are read, so the cost is proportional to the number of files.
        """
        try:
            now = source_facts(self.policy)
        except PolicyError as error:
            return str(error)
        if now == self.source:
            return ""
        gone = any(len(facts) == 1 and facts not in self.source for facts in now)
        return "its source is not there any more" if gone else "its source changed after it was encoded"

    def difference(self, later: Dataset) -> str:
        """The policy keys in which a later state differs, and whether its codes or version are new, in words."""
        keys = [key for key in Policy.model_fields if getattr(self.policy, key) != getattr(later.policy, key)]
        encoded = [] if later.engine is self.engine else ["encoded again"]
        if later.rows.version != self.rows.version:
            encoded.append(f"version {later.rows.version} of the rows")
        return f"{self.name} ({', '.join(keys + encoded)})"


def _require_same(policy: Policy, source: tuple[FileFacts, ...]) -> None:
    if source_facts(policy) != source:
        raise PolicyError(f"The source of {policy.dataset!r} changed since it was opened.")


def _codes(policy: Policy) -> tuple[object, ...]:
    return policy.schema_, policy.source, policy.csv, policy.reading, policy.rows_version, policy.cohorts, policy.folder


@dataclass(frozen=True)
class Reloaded:
    """The changes by a reload of the policies: names of datasets, with their differences.

    Attributes:
        failed: The policies that could not be reloaded, with reasons; their old datasets stay.
    """

    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


_Read = tuple[dict[str, Dataset], dict[str, Path], tuple[Path, ...], dict[Path, PinqError]]
"""Datasets and their files by name, drafts, and the faults of files that could not be opened."""


class Datasets:
    """All datasets of a server, by name.

    Attributes:
        served: The datasets by name; a reload replaces the whole mapping, so a reader sees one state.
        files: The policy file of each.
        drafts: Policy files of a folder that are not served, because they are not reviewed yet.
        failed: The policies that could not be opened at the start or the last reload, with reasons.
    """

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.served: Mapping[str, Dataset] = {dataset.name: dataset for dataset in datasets}
        self._paths: Sequence[Path] = ()
        self.files: Mapping[str, Path] = {}
        self._processes, self._lock = 1, threading.Lock()
        self.drafts: tuple[Path, ...] = ()
        self.failed: tuple[str, ...] = ()

    @classmethod
    def open(
        cls, paths: Iterable[str | os.PathLike[str]], *, processes: int = 1, required: Iterable[Path] = ()
    ) -> Datasets:
        """Opens policy files, and every ``*.yaml`` of folders except unreviewed drafts.

        A dataset that cannot be opened is not served (``failed``); the others are.

        Args:
            paths: Files and folders.
            processes: The number of processes that serve them.
            required: The files without which the server does not start.

        Raises:
            PolicyError: None can be opened; a named file is not a policy, or not reviewed; two policies have one name;
                or several processes would pad.
            LedgerError: A ledger cannot be trusted, and there is nothing else to serve.
        """
        datasets, must = cls(()), {*required}
        datasets._paths, datasets._processes = [*map(Path, paths)], processes
        policy_files = datasets._listed()
        _require_together(policy_files, processes)
        *_, faults = opened = datasets._read(policy_files)
        datasets.failed = datasets._swap(*opened).failed
        if not datasets.served or not must.isdisjoint(faults):
            datasets.close()
            kind = type(next(iter(faults.values()), PolicyError()))
            raise kind(" ".join(datasets.failed))
        return datasets

    def reload(self) -> Reloaded:
        """Reads all policies again.

        A policy that cannot be opened leaves its old dataset, and a policy that was removed from a folder is no longer
        served.

        Running queries end under the policy that admitted them.
        """
        try:
            policy_files = self._listed()
        except (PolicyError, OSError) as error:
            return Reloaded(failed=(str(error),))
        return self._swap(*self._read(policy_files))

    def _listed(self) -> list[tuple[Path, Path]]:
        return [(path, file) for path in self._paths for file in _files(path)]

    def _read(self, paths: Sequence[tuple[Path, Path]]) -> _Read:
        """Opens the listed policies beside the served datasets; returns the arguments of ``_swap``."""
        served, places = dict[str, Dataset](), dict[str, Path]()
        drafts, faults, files = list[Path](), dict[Path, PinqError](), [file for _, file in paths]
        for path, file in paths:
            # A served file that is faulty now stays served in its old state, and never becomes a draft.
            before = [name for name, earlier in self.files.items() if earlier == file]
            policy = _tried(file, partial(load_policy, file))
            if isinstance(policy, Policy) and path.is_dir() and not before and policy.unreviewed_fields():
                drafts.append(file)
                continue
            opened, tables = dict[str, Dataset](), () if isinstance(policy, PinqError) else policy.each
            fault = policy if isinstance(policy, PinqError) else None
            for table in tables:
                dataset = _tried(file, partial(self._renewed, table, file, files, served | opened))
                if isinstance(dataset, PinqError):
                    fault = dataset
                    break
                opened[dataset.name] = dataset
            if fault is not None:  # all tables of a policy are served, or none
                faults[file] = fault
                for dataset in {*opened.values()} - {*self.served.values()}:
                    dataset.close()
                opened = {name: self.served[name] for name in before}
            served |= opened
            places |= dict.fromkeys(opened, file)
        return served, places, tuple(drafts), faults

    def _renewed(self, policy: Policy, file: Path, files: Sequence[Path], others: Mapping[str, Dataset]) -> Dataset:
        """Opens the dataset of a policy file while the old one of its name is served."""
        _require_one_clock(policy, self._processes)
        served = self.served.get(policy.name)
        before = file if served is None else self.files[served.name]
        if policy.name in others or (before != file and before in files):
            raise _same_name(policy.name)
        if served is not None:
            return served.renewed(policy)
        beside = (others.get(table.name) for table in policy.each)
        meter = next((dataset.meter for dataset in beside if dataset is not None), None)
        return Dataset.open(policy, processes=self._processes, table=policy.table or None, meter=meter)

    def _swap(
        self,
        served: dict[str, Dataset],
        places: dict[str, Path],
        drafts: tuple[Path, ...],
        faults: Mapping[Path, PinqError],
    ) -> Reloaded:
        failed = tuple(map(str, faults.values()))
        if not served:
            verb = "is" if len(drafts) == 1 else "are"
            why = f": {', '.join(map(str, drafts))} {verb} not reviewed yet." if drafts else "."
            return Reloaded(failed=failed or (f"There is no policy to serve{why}",))
        with self._lock:
            before, self.served = self.served, served  # at once, so each request sees the old or the new state
        self.files, self.drafts = places, drafts
        for name, dataset in before.items():
            if served.get(name) is not dataset:
                dataset.close()
        both = [(before[name], dataset) for name, dataset in served.items() if name in before]
        return Reloaded(
            changed=tuple(old.difference(new) for old, new in both if old is not new),
            added=tuple(name for name in served if name not in before),
            removed=tuple(name for name in before if name not in served),
            failed=failed,
        )

    @contextmanager
    def leased(self, name: str) -> Iterator[Dataset]:
        """Keeps a dataset open; for an unknown name another, so that both take the same time."""
        with self._lock:  # a reload must not close it between the two lines
            dataset = self.served.get(name, next(iter(self.served.values())))
            dataset.users.come()
        try:
            yield dataset
        finally:
            dataset.users.go()

    def know(self, hashed: str) -> bool:
        """Whether the token with this digest opens a dataset, as far as this process has read."""
        return any(dataset.ledger.known_grant_of_token(hashed) is not None for dataset in self.served.values())

    def close(self) -> None:
        for dataset in self.served.values():
            dataset.close()


def _tried(file: Path, act: Callable[[], T]) -> T | PinqError:
    """The result of ``act`` on a policy file, or its error, with the name of the file."""
    try:
        return act()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of a Rust library is not an Exception
        if isinstance(error, (PinqError, OSError, ModuleNotFoundError)):
            text = str(error) if str(file) in str(error) else f"{file}: {error}"
        else:  # its text may quote data
            _log.exception("%s cannot be opened", file)
            text = f"{file}: Something unexpected went wrong; `pinq check {file}` may say more."
        return (LedgerError if isinstance(error, LedgerError) else PolicyError)(text)


def _require_together(paths: Sequence[tuple[Path, Path]], processes: int) -> None:
    """Raises an error, before anything is encoded, if the command line is wrong."""
    names = set[str]()
    for path, file in paths:
        policy = _tried(file, partial(load_policy, file))
        if path.is_dir() and (isinstance(policy, PinqError) or policy.unreviewed_fields()):
            continue  # the other files of a folder are served without faulty files and drafts
        if isinstance(policy, PinqError):
            raise policy
        if (fault := _tried(file, policy.require_reviewed)) is not None:
            raise fault
        _require_one_clock(policy, processes)
        table_names = {table.name for table in policy.each}
        if both := names & table_names:
            raise _same_name(min(both))
        names |= table_names


def _require_one_clock(policy: Policy, processes: int) -> None:
    if processes > 1 and policy.padding is not None:
        raise PolicyError(
            f"{policy.dataset!r} has `padding`, which needs one clock for each token, and {processes} processes have "
            "as many. Serve it with --workers 1."
        )


def _same_name(name: str) -> PolicyError:
    return PolicyError(f"Two policies call their dataset {name!r}; a server needs different names.")


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted([*path.glob("*.yaml"), *path.glob("*.yml")])
    if not files:
        raise PolicyError(f"The folder {path} has no policy (*.yaml).")
    return files
