# SPDX-License-Identifier: Apache-2.0
"""Renders the Helm chart: by ``helm`` if it is installed, else by the few rules that the chart uses.

Any other rule is an error, so the chart has no untested rule.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.house.checkout import ROOT

CHART = ROOT / "deploy" / "helm" / "pinq"
HELM = shutil.which("helm")
TAG = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\(|\)|\||[^\s()|]+')


class ChartError(Exception):
    """The chart refuses its values."""


@dataclass
class Node:
    """Text, an action, or a block with its arms."""

    text: str
    arms: list[tuple[str, list[Node]]] = field(default_factory=list)


def render(values: Mapping[str, Any], replaced: str = "demo") -> list[dict[str, Any]]:
    """The chart's objects under some values; ``ChartError`` where it refuses them."""
    return list(filter(None, yaml.safe_load_all(_by_helm(values, replaced) if HELM else by_rules(values, replaced))))


def _by_helm(values: Mapping[str, Any], release: str) -> str:
    words = [str(HELM), "template", release, str(CHART), "--namespace", "default", "--values", "-"]
    done = subprocess.run(words, input=yaml.safe_dump(dict(values)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ChartError(done.stderr)
    return done.stdout


def by_rules(values: Mapping[str, Any], release: str) -> str:
    """The chart's objects as YAML, without Helm."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    merged = _merged(yaml.safe_load((CHART / "values.yaml").read_text()), values)
    root = {
        "Values": merged,
        "Release": {"Name": release, "Service": "Helm", "Namespace": "default"},
        "Chart": {"AppVersion": chart["appVersion"]},
    }
    rules = Rules(root)
    for file in sorted((CHART / "templates").glob("*.tpl")):
        rules.run(parse(file.read_text()), root, {})
    parts = [rules.run(parse(file.read_text()), root, {}) for file in sorted((CHART / "templates").glob("*.*"))]
    files = sorted((CHART / "templates").glob("*.*"))
    return "\n---\n".join(part for part, file in zip(parts, files, strict=True) if file.suffix == ".yaml")


def _merged(usual: Any, given: Any) -> Any:
    if not isinstance(usual, dict) or not isinstance(given, Mapping):
        return given
    return usual | {key: _merged(usual.get(key), value) for key, value in given.items()}


def parse(text: str) -> list[Node]:
    """A template as nodes."""
    tokens: list[tuple[bool, str]] = []
    position, trim = 0, False
    for tag in TAG.finditer(text):
        before = text[position : tag.start()]
        before = before.lstrip() if trim else before
        tokens += [(False, before.rstrip() if tag[1] else before), (True, tag[2])]
        position, trim = tag.end(), bool(tag[3])
    tokens.append((False, text[position:].lstrip() if trim else text[position:]))
    nodes, rest = _nodes(iter(tokens))
    assert rest == "", f"a stray {rest}"
    return nodes


def _nodes(tokens: Iterator[tuple[bool, str]]) -> tuple[list[Node], str]:
    """Nodes up to an ``else`` or ``end``, and which of them came."""
    nodes: list[Node] = []
    for is_action, text in tokens:
        word = text.split(" ")[0] if is_action else ""
        if word in ("else", "end"):
            return nodes, word
        if word in ("if", "range", "with", "define"):
            node = Node(word)
            inside, rest = _nodes(tokens)
            node.arms.append((text.removeprefix(word).strip(), inside))
            if rest == "else":
                inside, rest = _nodes(tokens)
                node.arms.append(("", inside))
            assert rest == "end"
            nodes.append(node)
        elif not text.startswith("/*") or not is_action:
            nodes.append(Node("action", [(text, [])]) if is_action else Node(text))
    return nodes, ""


class Rules:
    """Helm's rules, as far as the chart uses them."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root, self._defined = root, dict[str, list[Node]]()
        self._functions: dict[str, Callable[..., Any]] = {
            "toYaml": lambda value: (
                yaml.safe_dump(value, sort_keys=True, width=10**6).removesuffix("\n...\n").rstrip("\n")
            ),
            "nindent": lambda by, text: "\n" + "\n".join(" " * by + line if line else "" for line in text.split("\n")),
            "quote": lambda text: f'"{text}"',
            "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
            "fromYaml": yaml.safe_load,
            "get": lambda values, key: values.get(key, ""),
            "hasPrefix": lambda start, text: text.startswith(start),
            "gt": lambda a, b: a > b,
            "and": lambda *all_: next((value for value in all_ if not value), all_[-1]),
            "or": lambda *all_: next((value for value in all_ if value), all_[-1]),
            "not": lambda value: not value,
            "int": int,
            "len": len,
            "printf": lambda form, *all_: form % all_,
            "required": self._required,
            "fail": self._fail,
            "include": lambda name, dot: self.run(self._defined[name], dot, {}),
        }

    @staticmethod
    def _fail(text: str) -> str:
        raise ChartError(text)

    def _required(self, text: str, value: Any) -> Any:
        return value or self._fail(text)

    def run(self, nodes: list[Node], dot: Any, names: dict[str, Any]) -> str:
        """The text of some nodes."""
        return "".join(self._node(node, dot, names) for node in nodes)

    def _node(self, node: Node, dot: Any, names: dict[str, Any]) -> str:
        if not node.arms:
            return node.text
        head, inside = node.arms[0]
        if node.text == "action":
            return str(self.value(head, dot, names))
        if node.text == "define":
            self._defined[head.strip('"')] = inside
            return ""
        if node.text == "range":
            return self._range(head, inside, dot, names)
        value = self.value(head, dot, names)
        if value:
            return self.run(inside, value if node.text == "with" else dot, names)
        return self.run(node.arms[1][1], dot, names) if len(node.arms) > 1 else ""

    def _range(self, head: str, inside: list[Node], dot: Any, names: dict[str, Any]) -> str:
        if ":=" not in head:
            return "".join(self.run(inside, item, names) for item in self.value(head, dot, names))
        (key, name), pipeline = (word.strip() for word in head.split(":=")[0].split(",")), head.split(":=")[1]
        items = sorted(self.value(pipeline, dot, names).items())
        return "".join(self.run(inside, value, names | {key: k, name: value}) for k, value in items)

    def value(self, pipeline: str, dot: Any, names: dict[str, Any]) -> Any:
        """The value of a pipeline."""
        words = WORD.findall(pipeline)
        value, position = self._pipeline(words, 0, dot, names)
        assert position == len(words), pipeline
        return value

    def _pipeline(self, words: list[str], at: int, dot: Any, names: dict[str, Any]) -> tuple[Any, int]:
        value, at = self._command(words, at, dot, names, [])
        while at < len(words) and words[at] == "|":
            value, at = self._command(words, at + 1, dot, names, [value])
        return value, at

    def _command(self, words: list[str], at: int, dot: Any, names: dict[str, Any], piped: list[Any]) -> tuple[Any, int]:
        operands: list[Any] = []
        function = self._functions.get(words[at])
        at += function is not None
        while at < len(words) and words[at] not in ("|", ")"):
            if words[at] == "(":
                value, at = self._pipeline(words, at + 1, dot, names)
                assert words[at] == ")"
            else:
                value = self._operand(words[at], dot, names)
            operands.append(value)
            at += 1
        if function is not None:
            return function(*operands, *piped), at
        (value,) = operands
        return value, at

    def _operand(self, word: str, dot: Any, names: dict[str, Any]) -> Any:
        if word.startswith('"'):
            return word[1:-1]
        if word.lstrip("-").isdigit():
            return int(word)
        head, *path = word.split(".")
        assert head in ("", "$") or head in names, f"an unknown word: {word}"
        value = dot if head == "" else self._root if head == "$" else names[head]
        for name in filter(None, path):
            value = value[name]
        return value


def lint() -> str:
    """The faults that ``helm lint`` reports; empty without Helm, or without a fault."""
    if HELM is None:
        return ""
    done = subprocess.run([HELM, "lint", str(CHART)], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode else ""


def chart_files() -> list[Path]:
    """All files of the chart."""
    return [file for file in CHART.rglob("*") if file.is_file()]
