# SPDX-License-Identifier: Apache-2.0
"""Texts that PyYAML fails on in other ways than by its own error, or reads for ever, are refused as what they are: no YAML."""

from __future__ import annotations

import pytest
import yaml

from pinq.policy import plain_yaml
from pinq.policy.plain_yaml import read_yaml
from tests.support.house.checkout import ROOT

NINES = "".join(f"- &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 10))
REFUSED = {
    **{kind: f"a: !!{kind} x" for kind in ("timestamp", "bool", "int", "float", "binary", "omap")},
    "a set of no pairs": "a: !!set [x]",
    "a list as a key": "? [a]\n: 1",
    "a list that holds itself": "&a [*a]",
    "a mapping that merges itself": "&a {<<: *a}",
    "five thousand digits": "a: " + "9" * 5_000,
    "five thousand brackets": "[" * 5_000,
    "half a character": "a: \ud800",
    "a control character": "a: \x07",
    "nine times nine, nine times over": f"- &l0 x\n{NINES}",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_it_is_no_yaml(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        read_yaml(text)


def test_references_are_read() -> None:
    """What stands once may be referred to, and values are not counted where they stand."""
    assert read_yaml("- &a {x: 1}\n- *a") == [{"x": 1}, {"x": 1}]
    assert len(read_yaml("[" + "1, " * 200 + "1]")) == 201
    assert read_yaml("") is None


def test_the_readers_in_c_and_in_python_read_alike() -> None:
    """A build of PyYAML without libyaml reads a policy as the others do."""
    policy = (ROOT / "policies" / "adult.yaml").read_text(encoding="utf-8")
    assert issubclass(plain_yaml._Loader, yaml.CSafeLoader)
    rules = {"yaml_implicit_resolvers": plain_yaml._Loader.yaml_implicit_resolvers}
    in_python = type("InPython", (yaml.SafeLoader,), rules)
    for text in (policy, 'a: [01070, no, 12:30, 2024-01-31, 1_000, 1e3, "x\\u2028y"]\nb: {c: 1.50, d: ~}\n'):
        assert repr(in_python(text).get_single_data()) == repr(read_yaml(text))
