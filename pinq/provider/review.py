# SPDX-License-Identifier: Apache-2.0
"""What waits for review in a policy file: listed, confirmed or replaced, each with the reason.

The file is edited where it must be and stays as it is elsewhere, comments and all. Reasons stand in
it under ``reviewed``, and go into the log with the policy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import yaml

from pinq.errors import PolicyError
from pinq.provider.policy_file import parse_policy, read_policy_text
from pinq.public.plain_yaml import write_yaml

__all__ = ["Waiting", "change", "confirm", "leave_out", "replace_policy", "waiting"]

Edit = tuple[int, int, str]
"""Where a text is replaced, and by what."""


@dataclass(frozen=True)
class Waiting:
    """A value that nobody reviewed yet.

    Attributes:
        name: Where it stands, ``columns.age.upper``.
        value: As the file writes it; empty where it is not written.
        remark: The comment beside it, and in the lines below it.
    """

    name: str
    value: str
    remark: str


def waiting(path: str | os.PathLike[str]) -> list[Waiting]:
    """Lists what waits for review in a policy file.

    Raises:
        PolicyError: It is no valid policy.
    """
    file = Path(path)
    text = read_policy_text(file)
    names = parse_policy(text, file).unreviewed_fields()
    root, listed = _root(text), []
    for name in names:
        pair = _pair(_holder(root, name), _field(name))
        remark = "" if pair is None else _remark(text[pair[1].end_mark.index :])
        listed.append(Waiting(name, "" if pair is None else _written(text, pair[1]), remark))
    return listed


def confirm(path: str | os.PathLike[str], names: Sequence[str], because: str, value: str | None = None) -> list[str]:
    """Confirms values that wait for review, or replaces one, and keeps the reason.

    Args:
        path: The policy file.
        names: What is confirmed: ``columns.age.upper``, or ``columns.age`` for all of a column.
        because: Where it is publicly known from.
        value: What to put in the place of the one value that is named, as YAML.

    Returns:
        All names that were confirmed.

    Raises:
        PolicyError: Nothing of this name waits, there is no reason, or the file would not be valid.
    """
    file = Path(path)
    text = read_policy_text(file)
    policy = parse_policy(text, file)
    root, known = _root(text), policy.unreviewed_fields()
    # With the points behind them, "columns.age." begins "columns.age.upper." and not
    # "columns.agent.".
    chosen = [name for name in known if any(f"{name}.".startswith(f"{wanted}.") for wanted in names)]
    for wanted in names:
        if not any(f"{name}.".startswith(f"{wanted}.") for name in known):
            raise PolicyError(f"Nothing called {wanted!r} waits for review; {', '.join(known) or 'nothing'} does.")
    if not because.strip():
        raise PolicyError("A reason is needed: where the value is publicly known from, such as a code book.")
    if value is not None and len(chosen) != 1:
        raise PolicyError("A value is put in the place of one that waits; name that one.")
    edits = list(_crossed_out(root, chosen))
    if value is not None and (pair := _pair(_holder(root, chosen[0]), _field(chosen[0]))) is not None:
        edits.append((pair[0].end_mark.index + 1, _span(pair[1])[1], f" {value}"))
    reasons = {**policy.reviewed, **dict.fromkeys(chosen, because.strip())}
    replace_policy(file, _with_reasons(text, root, edits, reasons))
    return chosen


def change(path: str | os.PathLike[str], name: str, value: str) -> None:
    """Puts another value in the place of one that needs no review, such as ``cap``.

    Args:
        path: The policy file.
        name: A key that the file has.
        value: As YAML.

    Raises:
        PolicyError: The file has no such key, or would not be valid.
    """
    file = Path(path)
    text = read_policy_text(file)
    parse_policy(text, file)
    pair = _pair(_root(text), name)
    if pair is None:
        raise PolicyError(f"The policy file {file} has no key {name!r}.")
    replace_policy(file, _edited(text, [(pair[0].end_mark.index + 1, _span(pair[1])[1], f" {value}")]))


def leave_out(path: str | os.PathLike[str], column: str) -> None:
    """Takes a column out of a policy file, so that nobody can ask about it.

    Raises:
        PolicyError: The policy has no such column, or no other one.
    """
    file = Path(path)
    text = read_policy_text(file)
    parse_policy(text, file)
    columns = _pair(_root(text), "columns")
    pair = None if columns is None else _pair(columns[1], column)
    if pair is None:
        raise PolicyError(f"The policy file {file} has no column {column!r}.")
    start = text.rfind("\n", 0, pair[0].start_mark.index) + 1
    replace_policy(file, _edited(text, [(start, text.find("\n", _span(pair[1])[1]) + 1 or len(text), "")]))


def replace_policy(file: Path, text: str) -> None:
    """Writes another text in the place of a policy file's. ``PolicyError`` unless it is a valid one."""
    parse_policy(text, file)
    partial = file.with_name(f".{file.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, file)


def _root(text: str) -> yaml.Node:
    """The file's tree with places in the text; who calls has parsed it already."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert root is not None
    return root


def _field(name: str) -> str:
    return name.rpartition(".")[2]


def _holder(root: yaml.Node, name: str) -> yaml.Node:
    """The mapping in which a field stands: the policy's, or a column's."""
    if not name.startswith("columns."):
        return root
    columns = _pair(root, "columns")
    column = None if columns is None else _pair(columns[1], name.removeprefix("columns.").rpartition(".")[0])
    return root if column is None else column[1]


def _pair(mapping: yaml.Node, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    return next(((own, value) for own, value in mapping.value if own.value == key), None)


def _span(node: yaml.Node) -> tuple[int, int]:
    """Where a value stands; what is written over lines ends with its last part."""
    last = node
    while isinstance(last, yaml.CollectionNode) and last.value and not last.flow_style:
        last = last.value[-1][1] if isinstance(last, yaml.MappingNode) else last.value[-1]
    return node.start_mark.index, last.end_mark.index


def _written(text: str, node: yaml.Node) -> str:
    start, end = _span(node)
    return " ".join(text[start:end].split())


def _remark(rest: str) -> str:
    """The comment behind a value and those directly below it, which begin their lines."""
    first, *lines = rest.split("\n")
    below = takewhile(lambda line: line.startswith("#"), lines)
    return " ".join(text.strip("# ") for text in (first.partition("#")[2], *below)).strip()


def _crossed_out(root: yaml.Node, names: Sequence[str]) -> Iterator[Edit]:
    """Yields the lists under ``unreviewed`` without some names."""
    of_holders: dict[int, tuple[yaml.Node, set[str]]] = {}
    for name in names:
        holder = _holder(root, name)
        of_holders.setdefault(holder.start_mark.index, (holder, set()))[1].add(_field(name))
    for holder, fields in of_holders.values():
        pair = _pair(holder, "unreviewed")
        if pair is not None:
            left = [item.value for item in pair[1].value if item.value not in fields]
            yield pair[0].end_mark.index + 1, _span(pair[1])[1], f" [{', '.join(left)}]"


def _with_reasons(text: str, root: yaml.Node, edits: list[Edit], reasons: dict[str, str]) -> str:
    """Applies edits, and writes all reasons at the end."""
    pair = _pair(root, "reviewed")
    if pair is not None:
        edits = [*edits, (pair[0].start_mark.index, _span(pair[1])[1], "")]
    return _edited(text, edits).rstrip("\n") + "\n\n" + write_yaml({"reviewed": reasons})


def _edited(text: str, edits: list[Edit]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text
