# SPDX-License-Identifier: Apache-2.0
"""What a provider is asked, told and refused before its rows take part; sessions as files; the commands that need no network."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

import pinq
from pinq.cli.main import app
from pinq.errors import NotAllowed, NotAuthorised, PolicyError, QueryError, SessionError
from pinq.language.queries import Request
from pinq.ledger.events import Terms
from pinq.provider.opening import open_ledger
from pinq.provider.policy_file import load_policy
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema
from pinq_secure import SecureID3, Session, load_session
from pinq_secure.booking import LedgerBooking
from pinq_secure.id3.task import Holding, hold
from pinq_secure.provider import join, require_fit
from pinq_secure.session.loss import EXACT, Loss
from pinq_secure.session.network import Identity
from pinq_secure.session.session import Member
from tests.support.processes.secure_parties import COLUMNS, NAMES, Consortium, patients, session_of
from tests.support.processes.servers import publish, token_of

SCHEMA = Schema(columns=COLUMNS, max_rows=1000)


@pytest.fixture
def parties(tmp_path: Path) -> Consortium:
    return Consortium(tmp_path, tls=False, policy={"secure": "exact"})


def changed(session: Session, **fields: Any) -> Session:
    """The session with other fields, and with what it then opens."""
    return Session.drafted(
        {name: getattr(session, name) for name in Session.model_fields if name != "reveals"} | fields
    )


def tried_on_three(parties: Consortium, session: Path) -> str:
    """Runs ``pinq secure try`` on a table of 50 rows for each party; returns what it prints."""
    tables = []
    for number in range(len(NAMES)):
        patients(50, number).to_csv(parties.folder / f"{number}.csv", index=False)
        tables.append(str(parties.folder / f"{number}.csv"))
    tried = CliRunner().invoke(app, ["secure", "try", str(session), *tables])
    assert tried.exit_code == 0, tried.output
    return tried.output


def test_the_hash_must_be_the_one_agreed_to(parties: Consortium) -> None:
    """Another hash, or too little of it, ends before the policy's rows are read."""
    for wrong in ("0" * 64, parties.session.digest[:15], ""):
        with pytest.raises(SessionError, match=f"the session's hash is {parties.session.digest}, and not '{wrong}'"):
            join(parties.session, "0", parties.policies[0], agree=wrong)


def test_an_exact_result_needs_the_policys_word(tmp_path: Path) -> None:
    """By default a policy allows noisy results only; the message names the key."""
    strict = Consortium(tmp_path, tls=False)
    with pytest.raises(
        PolicyError, match=r"opens exact results, which leak; the policy does not permit that \(`secure: exact`\)"
    ):
        join(strict.session, "clinic", strict.policies[0], agree=strict.session.digest)
    require_fit(
        changed(strict.session, noise="discrete-laplace", epsilon="1", depth=1), 0, load_policy(strict.policies[0])
    )


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            {"columns": {name: column for name, column in COLUMNS.items() if name != "ward"}},
            "the policy has no column `ward`",
        ),
        (
            {"columns": COLUMNS | {"ward": {"type": "categorical", "values": ["a", "c", "b"]}}},
            "`ward` has another domain",
        ),
        ({"adjacency": "substitute"}, "adjacency or privacy unit differ"),
        ({"max_rows": 500}, "the policy admits 500 rows, the session only 200 of clinic"),
    ],
)
def test_policy_and_session_must_fit(parties: Consortium, tmp_path: Path, policy: dict[str, Any], message: str) -> None:
    """By public facts alone; all that does not fit is named."""
    declared = {"columns": COLUMNS, "max_rows": 200, "secure": "exact"} | policy
    file = publish(tmp_path / "other", "other", parties.frames[0], **declared)
    with pytest.raises(PolicyError, match=message):
        join(parties.session, "clinic", file, agree=parties.session.digest)


def test_with_noise_somebody_must_pay(tmp_path: Path) -> None:
    """No analyst, and an analyst without a grant, are refused before anything is waited for."""
    noisy = Consortium(tmp_path, tls=False, noise="discrete-laplace", epsilon="1", depth=1)
    with pytest.raises(QueryError, match="an analyst is needed whose grant is charged"):
        join(noisy.session, "0", noisy.policies[0], agree=noisy.session.digest)
    with pytest.raises(NotAuthorised):
        join(noisy.session, "0", noisy.policies[0], agree=noisy.session.digest, analyst="nobody")


def test_terms_count_what_a_column_is_derived_from(tmp_path: Path, parties: Consortium) -> None:
    """As for any question: who may not see `ward` gets no tree that splits by `wing`, which is made of it."""
    columns = {name: column for name, column in COLUMNS.items() if name != "ward"}
    columns["wing"] = {"type": "categorical", "values": ["a", "rest"], "other": "rest", "from": "ward"}
    session = changed(parties.session, columns=columns, noise="discrete-laplace", epsilon="1", depth=1)
    declared = {"columns": COLUMNS | columns, "max_rows": 200}
    file = publish(tmp_path / "own", "own", parties.frames[0], **declared)
    token_of(file, "eve", 5, terms=Terms(columns=tuple(columns)))
    with pytest.raises(NotAllowed, match="ward"):
        join(session, "clinic", file, agree=session.digest, analyst="eve")


def test_no_cheap_question_stands_for_a_round(tmp_path: Path) -> None:
    """Analysts choose the ids of their questions; a round under an id that paid for another one would be free."""
    noisy = Consortium(tmp_path, tls=False, noise="discrete-laplace", epsilon="1", depth=1)
    policy = load_policy(noisy.policies[0])
    token_of(noisy.policies[0], "eve", 2)
    id_ = f"{noisy.session.digest[:32]}-1"
    with pinq.open(noisy.policies[0], analyst="eve") as handle:
        handle._session.ask(Request(id=id_, verb="noisy_count", epsilon="1e-9"))
    with closing(open_ledger(policy)) as ledger:
        booking = LedgerBooking(ledger, noisy.session, 0, "eve", policy.schema_)
        booking.require_affordable()
        assert booking.kept() == []
        booking.pay(0, "place", 10**8, 4)
        booking.keep(0, "{}")
        with pytest.raises(SessionError, match="for another question"):
            booking.pay(1, "next", 10**8, 4)
        with pytest.raises(SessionError, match="for another question"):
            booking.kept()
        assert booking.charged == Epsilon(10**8)


def test_a_charged_round_has_one_noise(tmp_path: Path) -> None:
    """Without the key of its noise a round that others may have seen is not opened again; one that is kept is."""
    noisy = Consortium(tmp_path, tls=False, noise="discrete-laplace", epsilon="1", depth=1)
    policy = load_policy(noisy.policies[0])
    token_of(noisy.policies[0], "eve", 2)
    with closing(open_ledger(policy)) as ledger:

        def booking() -> LedgerBooking:
            return LedgerBooking(ledger, noisy.session, 0, "eve", policy.schema_)

        key = booking().noise_key(0)
        booking().pay(0, "place", 10**8, 4)
        assert booking().noise_key(0) == key
        booking()._key.unlink()
        with pytest.raises(SessionError, match="round 1 was charged"):
            booking().noise_key(0)
        assert booking().noise_key(1) != key  # another party kept the round


def test_a_charge_is_for_one_question(tmp_path: Path) -> None:
    """A version that asks something else in a round that was charged opens nothing for that charge: it would have the same noise."""
    noisy = Consortium(tmp_path, tls=False, noise="discrete-laplace", epsilon="1", depth=1)
    policy = load_policy(noisy.policies[0])
    token_of(noisy.policies[0], "eve", 2)
    with closing(open_ledger(policy)) as ledger:
        for _ in range(2):
            LedgerBooking(ledger, noisy.session, 0, "eve", policy.schema_).pay(0, "place", 10**8, 4)
        with pytest.raises(SessionError, match="round 1 was another question when it was charged"):
            LedgerBooking(ledger, noisy.session, 0, "eve", policy.schema_).pay(0, "elsewhere", 10**8, 4)
        assert ledger.accounts()["eve"].spent == Epsilon(10**8)


def test_a_session_goes_on_with_the_rows_it_began_with(tmp_path: Path) -> None:
    """In any order; other rows are refused once a round was paid, for their round would have a second noise. Before that they begin anew."""
    noisy = Consortium(tmp_path, tls=False, noise="discrete-laplace", epsilon="1", depth=1)
    policy = load_policy(noisy.policies[0])
    token_of(noisy.policies[0], "eve", 2)
    rows, others = (hold(noisy.session.task, patients(30, seed)) for seed in (1, 2))
    with closing(open_ledger(policy)) as ledger:

        def booking(holding: Holding) -> LedgerBooking:
            made = LedgerBooking(ledger, noisy.session, 0, "eve", policy.schema_)
            made.require_same_rows(holding)
            return made

        assert booking(rows).noise_key(0) != booking(others).noise_key(0)
        key = booking(rows).noise_key(0)
        booking(rows).pay(0, "place", 10**8, 4)
        turned = Holding(rows.codes[:, ::-1], rows.counts[::-1])
        assert booking(turned).noise_key(0) == key
        with pytest.raises(SessionError, match="not those with which it began this session"):
            booking(others)


def test_a_round_waits_for_the_grants_pace(tmp_path: Path) -> None:
    """Known before a round is charged, and so before the others hear of it; a budget that went meanwhile refuses."""
    noisy = Consortium(tmp_path, tls=False, noise="discrete-laplace", epsilon="1", depth=1)
    policy = load_policy(noisy.policies[0])
    token_of(noisy.policies[0], "eve", 2, terms=Terms(queries_per_minute=1))
    with closing(open_ledger(policy)) as ledger:
        booking = LedgerBooking(ledger, noisy.session, 0, "eve", policy.schema_)
        assert booking.pace() == 0
        booking.pay(0, "place", 10**8, 4)
        assert 0 < booking.pace() <= 60
        ledger.revoke("eve")
        with pytest.raises(NotAuthorised):
            booking.pace()


def test_the_certificate_must_be_this_partys(tmp_path: Path) -> None:
    """Another party's certificate, or a file that has none, is told at once, not by all others after a while."""
    tls = Consortium(tmp_path, policy={"secure": "exact"})
    for file, message in (
        (tmp_path / "registry.crt", "is not the one that the session names for clinic"),
        (tmp_path / "clinic.key", "cannot be read"),
    ):
        with pytest.raises(SessionError, match=message):
            join(
                tls.session,
                "clinic",
                tls.policies[0],
                agree=tls.session.digest,
                identity=Identity(str(file), str(tmp_path / "clinic.key")),
            )


def test_a_key_is_its_owners_alone(tmp_path: Path) -> None:
    """As a ledger and a token are."""
    tls = Consortium(tmp_path, policy={"secure": "exact"})
    (tmp_path / "clinic.key").chmod(0o644)
    own = Identity(str(tmp_path / "clinic.crt"), str(tmp_path / "clinic.key"))
    with pytest.raises(SessionError, match="readable by others"):
        join(tls.session, "clinic", tls.policies[0], agree=tls.session.digest, identity=own)


def test_a_session_survives_its_file(parties: Consortium) -> None:
    """What is written reads back with the same hash; a comment or another order of keys changes nothing, another value does."""
    content = json.loads(parties.session.text)
    file = parties.folder / "again.yaml"
    file.write_text("# mine\n" + yaml.safe_dump(dict(reversed(content.items())), sort_keys=False), encoding="utf-8")
    assert load_session(file).digest == parties.session.digest
    assert changed(parties.session, alpha=9).digest != parties.session.digest


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"parties": [Member(name=f"p{i}", host="localhost", port=1, rows=5) for i in range(2)]},
            "parties: .*at least 3",
        ),
        (
            {"parties": [Member(name=f"p{i}", host="10.0.0.1", port=1, rows=5) for i in range(3)]},
            "several machines need a `certificate`",
        ),
        ({"parties": [Member(name="p", host="localhost", port=1, rows=5)] * 3}, "two parties are called 'p'"),
        ({"epsilon": "1"}, "go with `noise: discrete-laplace`"),
        ({"noise": "discrete-laplace"}, "needs `epsilon` and `depth`"),
        (
            {"noise": "discrete-laplace", "epsilon": "1", "depth": 1, "protocol": "sid3t"},
            "noise makes a public tree private",
        ),
        (
            {"noise": "discrete-laplace", "epsilon": "1", "depth": 1, "colluding": 3},
            "must be below the number of parties",
        ),
        (
            {
                "protocol": "sid3",
                "parties": [Member(name=f"p{i}", host="localhost", port=1, rows=2 * 10**6) for i in range(3)],
            },
            "records of 6,000,000 rows .* or use SID3P",
        ),
        ({"target": "age"}, "`age` is numeric; a categorical column is needed"),
        ({"target": "ilness"}, "no column 'ilness'"),
        ({"stop_share": "2"}, "stop_share: .*less than or equal to 1"),
    ],
)
def test_what_cannot_be_a_session(parties: Consortium, fields: dict[str, Any], message: str) -> None:
    """Each wrong place is named with what is right."""
    with pytest.raises(QueryError, match=message):
        changed(parties.session, **fields)


def test_a_session_says_what_it_opens(parties: Consortium) -> None:
    """A file that promises less than its protocol opens is refused, with what it must say."""
    content = json.loads(parties.session.text) | {"reveals": []}
    file = parties.folder / "less.yaml"
    file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(SessionError, match=r'must name exactly what is opened: \["to all: the exact tree'):
        load_session(file)


def test_the_commands(parties: Consortium) -> None:
    """draft makes a session from a policy, show prints its hash and what it opens, try runs it on dummy rows."""
    shell, file = CliRunner(), parties.folder / "drafted.yaml"
    named = [word for number, name in enumerate(NAMES) for word in ("--party", f"{name}=localhost:{9000 + number}")]
    made = shell.invoke(
        app,
        [
            "secure",
            "draft",
            str(parties.policies[0]),
            "--target",
            "ill",
            *named,
            "--epsilon",
            "2",
            "--depth",
            "1",
            "-o",
            str(file),
        ],
    )
    assert made.exit_code == 0, made.output
    shown = shell.invoke(app, ["secure", "show", str(file)])
    assert f"hash {load_session(file).digest}" in shown.output
    assert "opens\n  to all: the noisy number of all rows" in shown.output
    assert re.search(
        r"Each node that splits takes at most about \d+ kB and 0\.\d s of processor.*; at most 1 split", shown.output
    )
    assert "Epsilon 2, also to at most 1 of them with the noise they drew" in shown.output
    tried = tried_on_three(parties, file)
    assert "opened: noisy rows" in tried
    assert "clinic: 50 rows\n" in tried
    refused = shell.invoke(
        app, ["secure", "join", str(file), "--party", "9", "--policy", str(parties.policies[0]), "--agree", "0" * 16]
    )
    assert refused.exit_code == 1
    for nowhere in (parties.folder / "none" / "tree.json", parties.folder):
        unwritten = shell.invoke(
            app,
            [
                "secure",
                "join",
                str(file),
                "--party",
                "0",
                "--policy",
                str(parties.policies[0]),
                "--agree",
                "0" * 16,
                "-o",
                str(nowhere),
            ],
        )
        assert (unwritten.exit_code, "name a file in a folder that exists" in unwritten.output) == (1, True)
    assert "there is no party '9'; the parties are 0 (clinic), 1 (hospital), 2 (registry)" in refused.output


def test_the_commands_of_a_scorecard(parties: Consortium) -> None:
    """draft takes its steps and no depth; show prints every question with its share of epsilon; try prints the card."""
    shell, file = CliRunner(), parties.folder / "card.yaml"
    named = [word for number, name in enumerate(NAMES) for word in ("--party", f"{name}=localhost:{9000 + number}")]
    draft = ["secure", "draft", str(parties.policies[0]), "--target", "ill", *named, "--protocol", "scorecard"]
    for options, message in (
        ([], "scorecard opens noisy sums: it needs `noise: discrete-laplace`"),
        (["--epsilon", "2", "--depth", "1"], "`depth` is that of a tree; a scorecard has `steps`"),
        (["--epsilon", "2", "--steps", "201"], "steps: "),
    ):
        refused = shell.invoke(app, [*draft, *options])
        assert (refused.exit_code, message in " ".join(refused.output.split())) == (1, True), refused.output
    made = shell.invoke(app, [*draft, "--epsilon", "2", "--steps", "3", "-o", str(file)])
    assert made.exit_code == 0, made.output
    assert load_session(file).steps == 3
    shown = shell.invoke(app, ["secure", "show", str(file)])
    assert "  to all: in each step noisy sums of derivatives in the cells of one attribute" in shown.output
    assert re.search(r"Each party sends at most \d+ kB, and takes at most about 0\.\d s", shown.output)
    assert "FederatedScorecard for `ill`: 3 owners, strategy 'secure', 3 steps" in shown.output
    assert re.search(r"in all +2$", shown.output, flags=re.MULTILINE)
    assert "Scorecard for `ill` (no, yes): 3 attributes" in tried_on_three(parties, file)


@pytest.mark.parametrize(
    ("protocol", "fields"),
    [
        ("sid3p", {}),
        ("sid3s", {}),
        ("sid3p", {"noise": "discrete-laplace", "epsilon": "2", "depth": 2}),
        ("topdown", {"noise": "discrete-laplace", "epsilon": "2"}),
    ],
)
def test_show_prints_it(protocol: str, fields: dict[str, Any], tmp_path: Path) -> None:
    """As text and as JSON, and what is agreed stays as it was."""
    session, file, shell = session_of(protocol, [50] * 3, **fields), tmp_path / "session.yaml", CliRunner()
    file.write_text(session.text, encoding="utf-8")
    session = load_session(file)
    loss = Loss.of(session)
    text = shell.invoke(app, ["secure", "show", str(file)]).output
    known = json.loads(shell.invoke(app, ["secure", "show", str(file), "--json"]).output)
    assert f"Privacy of a row: {loss}." in text
    assert {name: known[name] for name in loss.to_dict()} == loss.to_dict()
    assert known["experimental"] == (EXACT in text) == (not fields) == (known["delta"] is None)
    assert known["reveals"] == list(session.opened)
    assert known["hash"] == session.digest


def test_the_estimator(tmp_path: Path) -> None:
    """Learns what the parties would, tells what it opened and cost, survives JSON; says what is wrong with its arguments."""
    tables = [patients(60, number) for number in range(3)]
    miner = SecureID3(alpha=4).fit(tables, "ill", schema=SCHEMA)
    assert miner.score(pd.concat(tables)) > 0.6
    assert miner.cost_ == 0
    assert miner.opened_[0].what == "stop"
    assert SecureID3.from_json(miner.to_json()).tree_ == miner.tree_
    secret = SecureID3(protocol="sid3t").fit(tables, "ill", schema=SCHEMA, lookups=[None, tables[0].head(3), None])
    assert [len(one) for one in secret.looked_up_] == [0, 3, 0]
    assert not hasattr(secret, "tree_")
    plan = SecureID3(epsilon="0.5", depth=2).plan(SCHEMA, "ill")
    assert "epsilon 0.5" in repr(plan)
    assert "the noisy tree" in repr(plan)
    for wrong, message in ((tables[:2], "at least three tables"), (tables[0], "at least three tables")):
        with pytest.raises(QueryError, match=message):
            SecureID3().fit(wrong, "ill", schema=SCHEMA)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="the tree of sid3t stays secret; give `fit` the rows to look up"):
        secret.predict(tables[0])
    with pytest.raises(QueryError, match="the table of party 1 is dict"):
        SecureID3().fit([tables[0], {}, tables[2]], "ill", schema=SCHEMA)
    again = miner.set_params(protocol="sid3s").fit(tables, "ill", schema=SCHEMA)
    assert not hasattr(again, "tree_")


def test_trying_a_secret_tree(parties: Consortium) -> None:
    """What is known of it is printed, and how many rows took part: rows that no policy admits do not."""
    shell, file, table = CliRunner(), parties.folder / "secret.yaml", parties.folder / "rows.csv"
    patients(20, 1).assign(ward=["a", "z"] * 10).to_csv(table, index=False)
    for protocol, known in (
        ("sid3t", "The tree is secret; lengths of its paths: 1 "),
        ("sid3s", "The tree is secret."),
    ):
        file.write_text(changed(parties.session, protocol=protocol).text, encoding="utf-8")
        tried = shell.invoke(app, ["secure", "try", str(file), str(table), str(table), str(table)])
        assert known in tried.output
        assert "registry: 10 rows, 10 left out for values that are missing or not declared" in tried.output


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"epsilon": 1}, "`noise: discrete-laplace` needs `epsilon` and `depth`"),
        ({"depth": 3}, "`epsilon`, `depth` and `colluding` go with .*; an exact tree grows until its nodes stop"),
        ({"colluding": 1}, "`epsilon`, `depth` and `colluding` go with"),
        ({"epsilon": 1e-6, "depth": 2}, "Ask for more epsilon, or for less depth"),
        ({"rows": 5}, "the table of party party0 has more rows than `rows` says, 5"),
        ({"rows": 0}, "`rows` is 0; it must be a whole number from 1"),
        ({"stop_share": "few"}, "stop_share: it is 'few'; it must be a number"),
        ({"attributes": "ward"}, "attributes: it is 'ward'; it must be a list"),
        ({"alpha": 0}, "alpha: it is 0; it must be greater than or equal to 1"),
        (
            {"protocol": "id3"},
            "protocol: it is 'id3'; it must be 'sid3', 'sid3s', 'sid3t', 'sid3p', 'topdown' or 'scorecard'",
        ),
        ({"protocol": "scorecard", "epsilon": 1, "depth": 2}, "learns no tree; use FederatedScorecard"),
    ],
)
def test_wrong_parameters(params: dict[str, Any], message: str) -> None:
    """Each is named with what is right, before anything is computed."""
    tables = [patients(20, number) for number in range(3)]
    with pytest.raises(QueryError, match=message):
        SecureID3(**params).fit(tables, "ill", schema=SCHEMA)


def test_rows_to_look_up_must_be_declared() -> None:
    """A value that no row could have had is named, not guessed at."""
    tables = [patients(20, number) for number in range(3)]
    with pytest.raises(QueryError, match="a value of `ward` that is missing or not declared"):
        SecureID3(protocol="sid3t").fit(
            tables, "ill", schema=SCHEMA, lookups=[None, tables[0].head(2).assign(ward="z"), None]
        )
