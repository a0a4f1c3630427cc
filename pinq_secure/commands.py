# SPDX-License-Identifier: Apache-2.0
"""The commands ``pinq secure draft``, ``show``, ``join`` and ``try``, for several parties."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pinq.cli.base import AsJson, PolicyFile, argument, can_ask, fail, guarded, option, print_json, print_or_write
from pinq.errors import QueryError, printable

if TYPE_CHECKING:
    import pandas as pd

    from pinq_secure.id3.task import Holding
    from pinq_secure.session.party import Outcome
    from pinq_secure.session.session import Session


ABOUT = """\
Secure multi-party computation: one tree or scorecard from the rows of several parties.

At least three parties agree on one session file and its hash; each runs [cyan]pinq secure join[/cyan] on its own \
machine with its own policy. A machine sends shares only. Fewer than half of the shares \
of a number are random numbers. The session names every number that is opened.
"""

secure = typer.Typer(name="secure", help=ABOUT, no_args_is_help=True, rich_markup_mode="rich")

SessionFile = Annotated[Path, argument("SESSION", "The session file.")]
Target = Annotated[str, option("--target", metavar="COLUMN", help="The column to predict.")]
Parties = Annotated[
    list[str],
    option("--party", metavar="NAME=HOST:PORT", help="A party; three or more times, in the same order for all."),
]
Protocol = Annotated[
    str,
    option("--protocol", metavar="NAME", help="sid3p, sid3, sid3t, sid3s or, with --epsilon, topdown or scorecard."),
]
Epsilon = Annotated[
    str | None,
    option(
        "--epsilon",
        metavar="EPSILON",
        help="Make the result differentially private with this epsilon; without it the result is exact.",
    ),
]
Depth = Annotated[
    int | None,
    typer.Option(
        "--depth", help="With --epsilon: levels of splits; by default 3, for topdown as many as should be useful."
    ),
]
Steps = Annotated[
    int | None,
    typer.Option("--steps", help="For a scorecard: the number of steps; by default as many as should be useful."),
]
Name = Annotated[str, option("--name", metavar="NAME", help="The name of the session.")]
Draft = Annotated[
    Path | None,
    option("-o", "--output", metavar="FILE", help="The file to write; by default it is printed."),
]

Member = dict[str, str | int]
"""A party as a session file has it: name, host, port, rows."""

Own = Annotated[str, option("--party", metavar="PARTY", help="The number or name of your party.")]
OwnPolicy = Annotated[Path, option("--policy", metavar="POLICY", help="The policy of your rows.")]
Agree = Annotated[
    str | None,
    option(
        "--agree",
        metavar="HASH",
        help="The session's hash, which you compared with the others; without it a terminal asks.",
    ),
]
Payer = Annotated[
    str | None, option("--analyst", metavar="ANALYST", help="With noise: the analyst whose grant is charged.")
]
Certificate = Annotated[Path | None, option("--cert", metavar="FILE", help="Your certificate, PEM.")]
Key = Annotated[Path | None, option("--key", metavar="FILE", help="Its private key, PEM.")]
Lookups = Annotated[
    Path | None,
    option("--lookup", metavar="FILE", help="sid3t, sid3s: rows to classify, Parquet or CSV."),
]
Output = Annotated[
    Path | None,
    option("-o", "--output", metavar="FILE", help="The file of the result, JSON; by default it is printed."),
]
Wait = Annotated[float, typer.Option("--wait", metavar="SECONDS", min=1, help="The time to wait for the others.")]
Listen = Annotated[
    str | None,
    option(
        "--listen",
        metavar="ADDRESS",
        help="The address to listen on; by default all, without certificates this machine only.",
    ),
]
Tables = Annotated[
    list[Path],
    argument("TABLE...", "Dummy or public rows, one Parquet or CSV file for each party."),
]


@secure.command()
@guarded
def draft(
    policy: PolicyFile,
    target: Target,
    party: Parties,
    protocol: Protocol = "sid3p",
    epsilon: Epsilon = None,
    depth: Depth = None,
    steps: Steps = None,
    name: Name = "session",
    output: Draft = None,
) -> None:
    """Propose a session with a policy's columns, to be agreed by all parties.

    It looks for certificates beside it as NAME.crt; a party's rows are the policy's `max_rows`.
    Every party edits and checks the same file.
    """
    from pinq.policy.plain_yaml import read_yaml, write_yaml
    from pinq.provider.policy_file import load_policy
    from pinq.public.epsilon import Epsilon

    loaded = load_policy(policy).at()
    loaded.require_reviewed()
    if epsilon is not None:
        Epsilon.of(epsilon)
    content = read_yaml(loaded.to_yaml())
    members = [_member(text, loaded.max_rows) for text in party]
    fields: dict[str, object] = {"version": 1, "session": name, "protocol": protocol, "target": target}
    fields |= {**_noise(protocol, epsilon, depth), "parties": members}
    if steps is not None:
        fields["steps"] = steps
    fields |= {key: content[key] for key in ("adjacency", "privacy_unit") if key in content}
    text = write_yaml(_drafted(fields, members, content["columns"]))
    print_or_write(text, output, f"Next, at every party, with the same file: pinq secure show {output}")


@secure.command()
@guarded
def show(session: SessionFile, as_json: AsJson = False) -> None:
    """Show a session's hash, parties, opened values, epsilon and delta, and the cost for each party.

    All parties compare the hash, for example by telephone.
    """
    from pinq.public.checks import many
    from pinq_secure.mpc.arithmetic import field_bits, threshold_of
    from pinq_secure.session.loss import Loss, estimate, plan_text
    from pinq_secure.session.session import load_session

    loaded = load_session(session)
    parties, loss = len(loaded.parties), Loss.of(loaded)
    threshold = threshold_of(parties)
    if as_json:
        about = {"hash": loaded.digest, "bits": loaded.bits, "estimate": estimate(loaded)}
        print_json(json.loads(loaded.text) | about | loss.to_dict())
        return
    lines = [
        f"{loaded.session}: {loaded.protocol}, to predict `{loaded.target}` "
        f"from {many(len(loaded.task.splits), 'attribute')}",
        f"hash {loaded.digest}",
        "opens",
        *(f"  {opening}" for opening in loaded.opened),
        "parties",
        *(
            f"  {number}  {member.name}  {member.host}:{member.port}, at most {member.rows:,} rows"
            for number, member in enumerate(loaded.parties)
        ),
        f"Up to {threshold} of them together learn nothing else; "
        f"{threshold + 1} who pool their shares could. "
        f"Numbers of {loaded.bits} bits in a field of {field_bits(loaded.bits, parties)}.",
        f"Privacy of a row: {loss}.",
        estimate(loaded),
    ]
    if loaded.noise != "none":
        lines += [
            f"Epsilon {loaded.epsilon}, also to at most {loaded.colluding_parties} of them with the noise they drew.",
            "It is paid a round at a time. A person with rows at several parties loses it once at each.",
        ]
    plan = plan_text(loaded)
    if plan:
        lines += ["", *plan.splitlines()]
    typer.echo("\n".join(printable(line) for line in lines))


@secure.command()
@guarded
def join(
    session: SessionFile,
    party: Own,
    policy: OwnPolicy,
    agree: Agree = None,
    analyst: Payer = None,
    cert: Certificate = None,
    key: Key = None,
    lookups: Lookups = None,
    output: Output = None,
    wait: Wait = 600,
    listen: Listen = None,
) -> None:
    """Take part in a session.

    The exit status is 0 with the result, or 1 with a reason and what it has cost. A session that
    broke off continues if all parties run the same command again.
    """
    from pinq_secure.provider import join as take_part
    from pinq_secure.session.network import Identity
    from pinq_secure.session.session import load_session

    if (cert is None) != (key is None):
        raise typer.BadParameter("--cert and --key go together")
    if output is not None and (output.is_dir() or not os.access(output if output.exists() else output.parent, os.W_OK)):
        raise QueryError(
            f"the result could not be written to {output}; name a file in a folder that exists. "
            "Nothing left this party."
        )
    loaded = load_session(session)
    result = take_part(
        loaded,
        party,
        policy,
        agree=agree if agree is not None else _agreed(loaded),
        analyst=analyst,
        wait=wait,
        listen=listen,
        identity=None if cert is None else Identity(str(cert), str(key)),
        lookups=None if lookups is None else _table(lookups),
        progress=lambda text: typer.echo(printable(text), err=True),
    )
    text = json.dumps(result.to_dict(), ensure_ascii=False, indent=2)
    if output is None:
        typer.echo(text)
    else:
        with open(output, "w", encoding="utf-8", opener=lambda file, flags: os.open(file, flags, 0o600)) as file:
            file.write(text + "\n")  # a model may be exact: its owner's alone, as the ledger is
        typer.echo(printable(f"Wrote {output}."), err=True)


@secure.command("try")
@guarded
def try_(session: SessionFile, tables: Tables) -> None:
    """Try a session in this process on public or dummy rows.

    The steps are the same; there is no network, no protection and no charge.
    """
    from pinq_secure.session.party import run_simulation
    from pinq_secure.session.session import load_session

    loaded = load_session(session)
    if len(tables) != len(loaded.parties):
        raise typer.BadParameter(f"{len(tables)} tables were given for {len(loaded.parties)} parties")
    _print_learned(run_simulation(loaded, _held(loaded, [_table(file) for file in tables]))[0])


def _noise(protocol: str, epsilon: str | None, depth: int | None) -> dict[str, str | int]:
    """The fields of a differentially private session; none for an exact one."""
    if epsilon is None:
        return {}
    fields: dict[str, str | int] = {"noise": "discrete-laplace", "epsilon": epsilon}
    if protocol not in ("topdown", "scorecard") or depth is not None:
        fields["depth"] = 3 if depth is None else depth
    return fields


def _drafted(fields: dict[str, object], members: list[Member], columns: object) -> dict[str, object]:
    """A session file's content; raises ``QueryError`` if the fields cannot be a session."""
    from pinq_secure.session.session import Session

    # Certificates may not be there yet, so the check is made as if all were on one machine.
    nearby = [member | {"host": "localhost"} for member in members]
    opened = Session.drafted(fields | {"parties": nearby, "columns": columns}).opened
    local = all(member["host"] in ("localhost", "127.0.0.1") for member in members)
    parties = [member if local else member | {"certificate": f"{member['name']}.crt"} for member in members]
    return fields | {"parties": parties, "reveals": list(opened), "columns": columns}


def _held(session: Session, frames: list[pd.DataFrame]) -> list[Holding]:
    """Encodes each party's table; raises ``QueryError`` if one has too many rows."""
    from pinq.public.checks import many
    from pinq_secure.id3.task import hold

    holdings = [hold(session.task, frame) for frame in frames]
    for member, frame, holding in zip(session.parties, frames, holdings, strict=True):
        missing = len(frame) - holding.rows
        left_out = f", {missing:,} left out for values that are missing or not declared" if missing else ""
        typer.echo(printable(f"{member.name}: {many(holding.rows, 'row')}{left_out}"), err=True)
    return holdings


def _print_learned(learned: Outcome) -> None:
    for opened in learned.opened:
        typer.echo(printable(f"opened: {opened.what} {' '.join(map(str, opened.values))}"), err=True)
    model = learned.tree if learned.scorecard is None else learned.scorecard
    if model is not None:
        typer.echo(model.export_text())
    elif learned.depths is not None:
        typer.echo(f"The tree is secret; lengths of its paths: {' '.join(map(str, learned.depths))}")
    else:
        typer.echo("The tree is secret.")


def _member(text: str, rows: int) -> Member:
    """Reads NAME=HOST:PORT."""
    name, _, address = text.partition("=")
    host, _, port = address.rpartition(":")
    if not name or not host or not port.isdecimal():
        raise typer.BadParameter(f"{text!r} is no party; write NAME=HOST:PORT, for example clinic=10.0.0.2:8801")
    return {"name": name, "host": host, "port": int(port), "rows": rows}


def _agreed(session: Session) -> str:
    """The session's hash, after a person at a terminal agreed."""
    if not can_ask():
        fail(
            "--agree HASH is needed: `pinq secure show` prints it; compare it with the other parties first. "
            f"It starts with {session.digest[:8]}."
        )
    typer.echo(printable(f"Session {session.session}, hash {session.digest}. It opens:"), err=True)
    for opening in session.opened:
        typer.echo(printable(f"  {opening}"), err=True)
    typer.confirm("Do all parties have this hash, and do you agree?", abort=True, err=True)
    return session.digest


def _table(file: Path) -> pd.DataFrame:
    """Reads a Parquet or CSV file."""
    import pandas as pd

    if file.suffix == ".parquet":
        return pd.read_parquet(file)
    return pd.read_csv(file, keep_default_na=False, na_values=[""])  # NA may be a category
