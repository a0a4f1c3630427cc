# SPDX-License-Identifier: Apache-2.0
"""The commands that make, show, change and end grants."""

import json
import os
import pty
from pathlib import Path
from typing import Any

from tests.support.processes.commands import HOSTILE, failed, run
from tests.support.processes.forked_processes import run_pinq


class TestGrants:
    def test_json(self, policy: Path) -> None:
        granted = json.loads(run("grant", policy, HOSTILE[1], "--epsilon", "4500", "--json").stdout)
        assert granted["analyst"] == HOSTILE[1]
        assert granted["limit"] == 4500.0
        assert granted["warnings"][0].startswith("All grants together come to epsilon 5500, above the cap of 5000")
        extended = json.loads(
            run("extend", policy, HOSTILE[1], "--epsilon", "0.5", "--expires", "2999-01-31", "--json").stdout
        )
        assert (extended["limit"], extended["expires"]) == (4500.5, "2999-01-31T23:59:59.999999+00:00")
        revoked = json.loads(run("revoke", policy, HOSTILE[1], "--yes", "--json").stdout)
        assert (revoked["state"], revoked["remaining"]) == ("revoked", 0.0)
        shown = json.loads(run("show", policy, "--json").stdout)
        assert [one["analyst"] for one in shown["analysts"]] == ["ana", HOSTILE[1]]

    def test_hostile_names_show_as_they_are(self, policy: Path) -> None:
        for name in HOSTILE:
            assert run("grant", policy, name, "--epsilon", 1).stdout.startswith(f"{name}: granted.")
        for command in ("show", "audit"):
            assert all(name in run(command, policy).stdout for name in HOSTILE)

    def test_errors(self, policy: Path) -> None:
        for epsilon in ("nan", "inf", "-1", "0", "much"):
            failed(
                run("grant", policy, "bea", f"--epsilon={epsilon}"),
                f"--epsilon is '{epsilon}'; it must be a finite number greater than 0",
            )
        failed(
            run("grant", policy, "ana", "--epsilon", 1),
            "'ana' already has a grant of epsilon 1000. Use `pinq extend` to raise it.",
        )
        failed(
            run("grant", policy, "bea", "--epsilon", 1, "--expires", "soon"), "--expires is 'soon'; write 2030-01-31"
        )
        failed(run("grant", policy, "b\x1b[31m", "--epsilon", 1), "it must be 1 to 128 printable characters")
        failed(run("extend", policy, "bea", "--epsilon", 1), "'bea' has no grant; ana has")
        failed(run("extend", policy, "ana"), "say how much more (--epsilon), until when (--expires), or both", 2)
        failed(run("revoke", policy, "bea"), "'bea' has no grant; ana has")
        failed(run("grant", policy, "bea"), "Missing option '--epsilon'", 2)
        assert [one["analyst"] for one in json.loads(run("show", policy, "--json").stdout)["analysts"]] == ["ana"]


def test_every_act_says_by_whom_and_why(policy: Path) -> None:
    """The log has who ran the command, and --because; the audit shows both."""
    acts = [("extend", "--epsilon", "1"), ("terms", "--per-minute", "5"), ("token",), ("revoke", "--yes")]
    for command, *words in acts:
        assert run(command, policy, "ana", *words, "--because", f"why {command}").exit_code == 0
    assert run("grant", policy, "ana", "--epsilon", 1, "--because", "why grant").exit_code == 0
    changes = json.loads(run("audit", policy, "--json").stdout)["changes"]
    assert [one["because"] for one in changes if one["because"]] == [f"why {command}" for command, *_ in acts] + [
        "why grant"
    ]
    assert all(one["by"].count("@") == 1 for one in changes[1:])
    assert "why revoke" in run("audit", policy).stdout
    failed(
        run("revoke", policy, "ana", "--yes", "--because", "x" * 501),
        "--because must be at most 500 printable characters on one line.",
    )


def test_a_grant_is_never_rounded(policy: Path) -> None:
    """Also not in what is added, or in what one query may ask."""
    for words in (
        ("grant", policy, "bea", "--epsilon", "1e-12"),
        ("extend", policy, "ana", "--epsilon", "1e-12"),
        ("terms", policy, "ana", "--max-epsilon", "1e-12"),
    ):
        failed(run(*words), "the smallest step of a loss is 0.000000001, so write at most nine decimals.")


def test_verbs_have_two_names(policy: Path) -> None:
    """Those of the command line and those of Python and the log mean the same; what is shown is the second."""
    for verbs in ("count,choose", "noisy_count,exp_mech"):
        assert "verbs noisy_count, exp_mech" in run("terms", policy, "ana", "--verbs", verbs).stdout
    failed(
        run("terms", policy, "ana", "--verbs", "mean"),
        "the verbs are count, sum, avg, choose, or noisy_count, noisy_sum, noisy_avg, exp_mech, which are the same.",
    )


def test_terms_change_only_what_is_said(policy: Path) -> None:
    """Without options the terms are shown; an option changes one limit; only `all` and --no-limits lift any."""

    def terms(*words: object) -> Any:
        assert run("terms", policy, "ana", *words).exit_code == 0
        return json.loads(run("show", policy, "--json").stdout)["analysts"][0]["terms"]

    limited = {"columns": ["age", "sex"], "max_epsilon_per_query": 0.5}
    assert terms("--columns", "age,sex", "--max-epsilon", "0.5") == limited
    shown = run("terms", policy, "ana")
    assert "Terms: epsilon at most 0.5 a query; columns age, sex\n" in shown.stdout
    assert json.loads(run("terms", policy, "ana", "--json").stdout)["terms"] == limited
    assert terms() == limited
    changed = run("terms", policy, "ana", "--per-minute", "10")
    assert (
        "Terms: epsilon at most 0.5 a query; columns age, sex -> epsilon at most 0.5 a query; columns age, sex; 10 queries a minute\n"
        in changed.stdout
    )
    assert terms("--columns", "all", "--verbs", "count") == {
        "max_epsilon_per_query": 0.5,
        "queries_per_minute": 10,
        "verbs": ["noisy_count"],
    }
    assert terms("--verbs", "all") == {"max_epsilon_per_query": 0.5, "queries_per_minute": 10}
    assert terms("--no-limits", "--columns", "sex") == {"columns": ["sex"]}
    assert terms("--no-limits") == {}
    assert run("revoke", policy, "ana", "--yes").exit_code == 0
    for name in ("ana", "nobody"):
        assert "has no grant; nobody has" in run("terms", policy, name).stderr


def test_a_notebook_is_not_asked(policy: Path, tmp_path: Path) -> None:
    """Its commands see a terminal, at which nobody can answer: a grant ends without a question, a review says what to write."""
    ours, theirs = pty.openpty()
    try:
        for words, status, text in (
            (["revoke", policy, "ana"], 0, "ana: revoked."),
            (["review", policy], 1, "nobody can answer here; name what is confirmed: --accept"),
        ):
            environment = {**os.environ, "JPY_PARENT_PID": "1"}
            done = run_pinq([*map(str, words)], environment, typed=Path(os.ttyname(theirs)))
            assert (done.returncode, text in done.stdout + done.stderr) == (status, True), done
    finally:
        os.close(ours)
        os.close(theirs)
