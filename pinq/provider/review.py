# SPDX-License-Identifier: Apache-2.0
"""The values of a policy file that wait for review: listed, confirmed or replaced, each with the reason.

Only the edited places of the file change; comments stay. Reasons are kept in the file under ``reviewed``,
and are logged with the policy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import yaml

from pinq.errors import PolicyError
from pinq.policy.plain_yaml import write_yaml
from pinq.policy.policy import Policy
from pinq.provider.policy_file import parse_policy, read_policy_text
from pinq.public.checks import first_of

ACCEPTED = "persons."
"""The prefix of a column's key in ``reviewed`` for the reason to accept a finding of ``check``."""
Edit = tuple[int, int, str]
"""The start and the end of a replaced text, and the new text."""


@dataclass(frozen=True)
class Waiting:
    """A value without a review.

    Attributes:
        name: The place of the value, ``columns.age.upper``.
        value: The value as written in the file; empty if it is not written.
        remark: The comment beside it, and in the lines below it.
    """

    name: str
    value: str
    remark: str


def waiting(path: str | os.PathLike[str]) -> list[Waiting]:
    """Lists the values that wait for review in a policy file.

    Raises:
        PolicyError: The file is not a valid policy.
    """
    _, text, policy, root = _opened(path)
    values = []
    for name in policy.unreviewed_fields():
        pair = _pair(_mapping_of(root, name), _field(name))
        remark = "" if pair is None else _remark(text[pair[1].end_mark.index :])
        values.append(Waiting(name, "" if pair is None else _written(text, pair[1]), remark))
    return values


def confirm(
    path: str | os.PathLike[str], names: Sequence[str], because: str, value: str | Mapping[str, str] | None = None
) -> list[str]:
    """Confirms values that wait for review, or replaces one, and keeps the reason.

    Args:
        path: The policy file.
        names: The names to confirm: ``columns.age.upper``, or ``columns.age`` for a whole column; or
            ``persons.age`` for a finding of ``check`` about a column.
        because: The public source of the values.
        value: The new value of the only name, as YAML; or of several, by name.

    Returns:
        All confirmed names.

    Raises:
        PolicyError: A name does not wait, there is no reason, or the file would not be valid.
    """
    file, text, policy, root = _opened(path)
    unreviewed = policy.unreviewed_fields()
    # The added points make "columns.age." a prefix of "columns.age.upper." and not of "columns.agent.".
    chosen = [name for name in unreviewed if any(f"{name}.".startswith(f"{wanted}.") for wanted in names)]
    chosen += [name for name in names if name.startswith(ACCEPTED)]
    for wanted in names:
        if wanted not in chosen and not any(f"{name}.".startswith(f"{wanted}.") for name in unreviewed):
            raise PolicyError(
                f"Nothing called {wanted!r} waits for review; waiting: {first_of(unreviewed, 8) or 'nothing'}."
            )
    if isinstance(value, str) and (len(chosen) != 1 or chosen[0] not in unreviewed):
        raise PolicyError("A value is put in the place of one that waits; name that one.")
    values = {chosen[0]: value} if isinstance(value, str) else value or {}
    pairs = [(_pair(_mapping_of(root, name), _field(name)), new) for name, new in values.items()]
    edits = [
        *_crossed_out(root, [name for name in chosen if name in unreviewed]),
        *(_put(pair, new) for pair, new in pairs if pair is not None),
    ]
    replace_policy(file, _with_reasons(text, root, edits, policy, chosen, because))
    return chosen


def change(path: str | os.PathLike[str], name: str, value: str, because: str) -> None:
    """Replaces a value that needs no review, such as ``cap``, by another in YAML, and logs the reason.

    Raises:
        PolicyError: The file has no such key, there is no reason, or the file would not be valid.
    """
    file, text, policy, root = _opened(path)
    pair = _pair(root, name)
    if pair is None:
        raise PolicyError(f"The policy file {file} has no key {name!r}.")
    replace_policy(file, _with_reasons(text, root, [_put(pair, value)], policy, [name], because))


def leave_out(path: str | os.PathLike[str], column: str) -> None:
    """Removes a column from a policy file, so that nobody can query it.

    Raises:
        PolicyError: The policy does not have the column, or has no other column.
    """
    file, text, _, root = _opened(path)
    columns = _pair(root, "columns")
    pair = None if columns is None else _pair(columns[1], column)
    if pair is None:
        raise PolicyError(f"The policy file {file} has no column {column!r}.")
    start = text.rfind("\n", 0, pair[0].start_mark.index) + 1
    replace_policy(file, _edited(text, [(start, text.find("\n", _span(pair[1])[1]) + 1 or len(text), "")]))


def replace_policy(file: Path, text: str) -> None:
    """Replaces the text of a policy file. Raises ``PolicyError`` unless it is a valid policy."""
    parse_policy(text, file)
    partial = file.with_name(f".{file.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, file)


def _opened(path: str | os.PathLike[str]) -> tuple[Path, str, Policy, yaml.Node]:
    """A policy file, its text, the policy, and its YAML tree with places in the text."""
    file = Path(path)
    text = read_policy_text(file)
    policy, root = parse_policy(text, file), yaml.compose(text, Loader=yaml.SafeLoader)
    assert root is not None
    return file, text, policy, root


def _field(name: str) -> str:
    return name.rpartition(".")[2]


def _mapping_of(root: yaml.Node, name: str) -> yaml.Node:
    """The mapping with a field: of ``tables.visits.columns.age.upper``, what the table declares of its column."""
    path = re.fullmatch(r"(?:(tables)\.([^.]+)\.)?(?:(columns)\.(.+)\.)?[^.]+", name, re.DOTALL)
    for key in filter(None, path.groups() if path else ()):
        pair = _pair(root, key)
        root = root if pair is None else pair[1]
    return root


def _pair(mapping: yaml.Node, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    return next(((node, value) for node, value in mapping.value if node.value == key), None)


def _span(node: yaml.Node) -> tuple[int, int]:
    last = node
    while isinstance(last, yaml.CollectionNode) and last.value and not last.flow_style:
        last = last.value[-1][1] if isinstance(last, yaml.MappingNode) else last.value[-1]
    return node.start_mark.index, last.end_mark.index


def _written(text: str, node: yaml.Node) -> str:
    start, end = _span(node)
    return " ".join(text[start:end].split())


def _remark(following: str) -> str:
    """The comment behind a value, and comment lines directly below it."""
    first, *lines = following.split("\n")
    below = takewhile(lambda line: line.startswith("#"), lines)
    return " ".join(text.strip("# ") for text in (first.partition("#")[2], *below)).strip()


def _crossed_out(root: yaml.Node, names: Sequence[str]) -> Iterator[Edit]:
    """Yields edits that remove some names from the lists under ``unreviewed``."""
    of_mappings: dict[int, tuple[yaml.Node, set[str]]] = {}
    for name in names:
        mapping = _mapping_of(root, name)
        of_mappings.setdefault(mapping.start_mark.index, (mapping, set()))[1].add(_field(name))
    for mapping, fields in of_mappings.values():
        pair = _pair(mapping, "unreviewed")
        if pair is not None:
            remaining = [item.value for item in pair[1].value if item.value not in fields]
            yield _put(pair, f"[{', '.join(remaining)}]")


def _put(pair: tuple[yaml.Node, yaml.Node], value: str) -> Edit:
    return pair[0].end_mark.index + 1, _span(pair[1])[1], f" {value}"


def _with_reasons(
    text: str, root: yaml.Node, edits: list[Edit], policy: Policy, names: Sequence[str], because: str
) -> str:
    """Applies edits, and writes all reasons at the end. Raises ``PolicyError`` if this one is empty."""
    if not because.strip():
        raise PolicyError("A reason is needed: where the value is publicly known from, such as a code book.")
    pair = _pair(root, "reviewed")
    if pair is not None:
        edits = [*edits, (pair[0].start_mark.index, _span(pair[1])[1], "")]
    reasons = {**policy.reviewed, **dict.fromkeys(names, because.strip())}
    return _edited(text, edits).rstrip("\n") + "\n\n" + write_yaml({"reviewed": reasons})


def _edited(text: str, edits: list[Edit]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text
