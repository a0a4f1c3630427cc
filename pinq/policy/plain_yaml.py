# SPDX-License-Identifier: Apache-2.0
"""YAML in which values mean what they look like.

PyYAML follows YAML 1.1, in which ``01070`` is the octal number 568, ``no`` is false, ``12:30`` is 750 and a date is not
a text. So here a whole number has no leading zero, only ``true`` and ``false`` are truth values, and any other value
without quotes is a text, a decimal number or null.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

import yaml
from pydantic import JsonValue

try:  # libyaml reads a list of 65,000 values about ten times as fast; some builds of PyYAML lack it
    from yaml import CSafeLoader as SafeLoader
except ImportError:
    from yaml import SafeLoader  # type: ignore[assignment]

_MEANINGS = {  # types of scalars without quotes, with a pattern and possible first characters
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    "float": (
        r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)\.[0-9]*)([eE][-+][0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "merge": (r"<<", "<"),
}


class _Loader(SafeLoader):
    """Also refuses a repeated key; PyYAML would silently take the second value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        keys = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key is a list or a mapping", key_node.start_mark)
            if key in keys:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", key_node.start_mark
                )
            keys.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {}  # without the rules of YAML 1.1 in the base class
for _tag, (_form, _starts) in _MEANINGS.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_form})$"), list(_starts))


class _Dumper(yaml.SafeDumper):
    """Quotes every text that begins like a number, so that a list of codes looks uniform.

    PyYAML quotes each text that YAML 1.1 would read as another type, which is more than ``_Loader``
    needs. Unicode's line breaks are escaped, because they would be read back as blanks.
    """


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style='"' if set(text) & set("\x85\u2028\u2029\ufeff") else None
    )


_Dumper.add_representer(str, _text)
# This rule applies after all others: a text that begins like a number resolves to this tag, so it gets quotes.
_Dumper.add_implicit_resolver("!number-like", re.compile(r"^[-+]?[0-9]"), list("-+0123456789"))


def read_yaml(text: str) -> Any:
    """Reads the content of a text. Raises ``yaml.YAMLError`` if it is not YAML, or much too large."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_expansions(node)
        return loader.construct_document(node)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None
    except yaml.YAMLError:
        raise
    # A number of thousands of digits, or `!!timestamp x`: PyYAML does not check the value of a tag.
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise yaml.YAMLError(f"it has a value that cannot be read: {error}") from None


def _refuse_expansions(root: yaml.Node) -> None:
    """Raises ``ComposerError`` if references expand a text too much.

    Nine references to nine references, nine levels deep, are four hundred million values in two
    lines; a list that contains itself has no end.
    """
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        if sizes.get(id(node)) == 0:
            raise yaml.composer.ComposerError(None, None, "it refers to itself", node.start_mark)
        if id(node) not in sizes:
            sizes[id(node)] = 0  # in progress
            sizes[id(node)] = 1 + sum(map(size, _inside(node)))
        return sizes[id(node)]

    # References may add 100,000 values to those in the text.
    if size(root) > len(sizes) + 100_000:
        raise yaml.composer.ComposerError(None, None, "its references say too much", root.start_mark)


def _inside(node: yaml.Node) -> Iterable[yaml.Node]:
    match node:
        case yaml.MappingNode():
            return itertools.chain.from_iterable(node.value)
        case yaml.SequenceNode():
            return node.value
    return ()


def write_yaml(content: object, flow: bool | None = False) -> str:
    """Writes a text that ``read_yaml`` reads back equal.

    With ``flow`` None, innermost lists are in brackets.
    """
    return str(
        yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=flow)
    )


def plain_number(value: object) -> JsonValue:
    """Turns a decimal number's text, or a list of them, into YAML numbers if that is exact.

    Another text, such as a date's, stays a text.
    """
    if isinstance(value, list):
        return [plain_number(item) for item in value]
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return str(value)
    if number == number.to_integral_value() and abs(number) < 10**15:
        return int(number)
    return float(number) if Decimal(repr(float(number))) == number else str(value)
