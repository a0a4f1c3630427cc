# SPDX-License-Identifier: Apache-2.0
"""The commands for computing among several parties: ``pinq secure draft``, ``show``, ``join`` and ``try``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pinq.cli.base import AsJson, PolicyFile, argument, fail, guarded, option, print_json
from pinq.errors import QueryError
from pinq.provider.report.html import printable

if TYPE_CHECKING:
    from miners.secure.session import Session

__all__ = ["secure"]

ABOUT = """\
Learn a tree together with others who may not see your rows, nor you theirs.

At least three parties agree on one session file and its hash; each runs [cyan]pinq secure join[/cyan] on its own machine with its own policy. What leaves a \
machine are shares, random numbers to everybody who sees fewer than half of them; all that is opened stands in the session.
"""

secure = typer.Typer(name="secure", help=ABOUT, no_args_is_help=True, rich_markup_mode="rich")

SessionFile = Annotated[Path, argument("SESSION", "The session file.")]


@secure.command()
@guarded
def draft(
    policy: PolicyFile,
    target: Annotated[str, option("--target", metavar="COLUMN", help="The column to predict.")],
    party: Annotated[
        list[str],
        option("--party", metavar="NAME=HOST:PORT", help="A party; three or more times, in the same order for all."),
    ],
    protocol: Annotated[
        str, option("--protocol", metavar="NAME", help="sid3p, sid3, sid3t, sid3s or, with --epsilon, topdown.")
    ] = "sid3p",
    epsilon: Annotated[
        str | None,
        option(
            "--epsilon",
            metavar="EPSILON",
            help="Differentially private: what a row may lose. Without it the result is exact.",
        ),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(
            "--depth", help="With --epsilon: levels of splits; by default 3, for topdown as many as may be of use."
        ),
    ] = None,
    name: Annotated[str, option("--name", metavar="NAME", help="What the session is called.")] = "session",
    output: Annotated[
        Path | None, option("-o", "--output", metavar="FILE", help="Write it here; by default it is printed.")
    ] = None,
) -> None:
    """Propose a session with a policy's columns, to be agreed by all parties.

    Certificates are looked for beside it as NAME.crt; rows are the policy's `max_rows` for each
    party. Every party edits and checks the same file.
    """
    import yaml

    from miners.secure.session import Session
    from pinq.public.epsilon import to_nano
    from pinq.public.policy import load_policy

    loaded = load_policy(policy)
    loaded.require_reviewed()
    if epsilon is not None:
        to_nano(epsilon)
    levels = {"depth": 3 if depth is None else depth} if protocol != "topdown" or depth is not None else {}
    noise: dict[str, Any] = {} if epsilon is None else {"noise": "discrete-laplace", "epsilon": epsilon, **levels}
    content = yaml.safe_load(loaded.to_yaml())
    members = [_member(text, loaded.max_rows) for text in party]
    fields: dict[str, Any] = {
        "session": name,
        "protocol": protocol,
        "target": target,
        **noise,
        "parties": members,
        "columns": content["columns"],
    }
    fields |= {key: content[key] for key in ("adjacency", "privacy_unit") if key in content}
    # Certificates are files that may not be there yet; everything else is checked now.
    checked = Session.drafted(fields | {"parties": [member | {"host": "localhost"} for member in members]})
    local = all(member["host"] in ("localhost", "127.0.0.1") for member in members)
    fields["parties"] = [member if local else member | {"certificate": f"{member['name']}.crt"} for member in members]
    fields = {
        "version": 1,
        **{key: value for key, value in fields.items() if key != "columns"},
        "reveals": list(checked.opened),
        "columns": fields["columns"],
    }
    text = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=110)
    if output is None:
        typer.echo(text, nl=False)
        return
    output.write_text(text, encoding="utf-8")
    typer.echo(
        printable(f"Wrote {output}. Next, at every party, with the same file: pinq secure show {output}"), err=True
    )


@secure.command()
@guarded
def show(session: SessionFile, as_json: AsJson = False) -> None:
    """Show a session's hash, its parties and all that it will open. Every party compares the hash with the others, by telephone say."""
    from miners.secure.mpyc_runtime import field_bits, threshold_of
    from miners.secure.session import load_session

    found = load_session(session)
    bits = found.rule().bits
    if as_json:
        print_json(json.loads(found.text) | {"hash": found.digest, "bits": bits})
        return
    lines = [
        f"{found.session}: {found.protocol}, to predict `{found.target}` from {len(found.task.splits)} attributes",
        f"hash {found.digest}",
        "opens",
    ]
    lines += [f"  {one}" for one in found.opened]
    lines += ["parties"] + [
        f"  {number}  {one.name}  {one.host}:{one.port}, at most {one.rows:,} rows"
        for number, one in enumerate(found.parties)
    ]
    pooled, size = threshold_of(len(found.parties)), field_bits(bits, len(found.parties))
    lines += [
        f"Any {pooled} of them together learn nothing else; {pooled + 1} who pool their shares could. Numbers of {bits} bits in a field of {size}."
    ]
    if found.noise != "none":
        lines += [f"Epsilon {found.epsilon}, also to any {found.trusted_noise} who pool the noise that they drew."]
    typer.echo("\n".join(printable(line) for line in lines))


@secure.command()
@guarded
def join(
    session: SessionFile,
    party: Annotated[str, option("--party", metavar="PARTY", help="Which party you are: its number or name.")],
    policy: Annotated[Path, option("--policy", metavar="POLICY", help="The policy of your rows.")],
    agree: Annotated[
        str | None,
        option(
            "--agree",
            metavar="HASH",
            help="The session's hash, that you compared with the others; asked for in a terminal.",
        ),
    ] = None,
    analyst: Annotated[
        str | None, option("--analyst", metavar="ANALYST", help="With noise: whose grant is charged.")
    ] = None,
    cert: Annotated[Path | None, option("--cert", metavar="FILE", help="Your certificate, PEM.")] = None,
    key: Annotated[Path | None, option("--key", metavar="FILE", help="Its private key, PEM.")] = None,
    lookups: Annotated[
        Path | None, option("--lookup", metavar="FILE", help="sid3t, sid3s: rows to classify, Parquet or CSV.")
    ] = None,
    output: Annotated[
        Path | None,
        option("-o", "--output", metavar="FILE", help="Where the result goes, JSON; by default it is printed."),
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=1, help="How long to wait for the others.")
    ] = 600,
    listen: Annotated[
        str | None,
        option(
            "--listen",
            metavar="ADDRESS",
            help="Where to listen; by default everywhere, without certificates on this machine only.",
        ),
    ] = None,
) -> None:
    """Take part in a session: exit status 0 with the result, or 1 with a reason and nothing opened that the progress did not show."""
    from miners.secure.network import Identity
    from miners.secure.session import load_session
    from pinq.provider.secure import join as take_part

    if (cert is None) != (key is None):
        raise typer.BadParameter("--cert and --key go together")
    if output is not None and (output.is_dir() or not os.access(output if output.exists() else output.parent, os.W_OK)):
        raise QueryError(
            f"the result could not be written to {output}; name a file in a folder that exists. Nothing left this party."
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
        output.write_text(text + "\n", encoding="utf-8")
        typer.echo(printable(f"Wrote {output}."), err=True)


@secure.command("try")
@guarded
def try_(
    session: SessionFile,
    tables: Annotated[
        list[Path], argument("TABLE...", "Made-up or public rows, one Parquet or CSV file for each party.")
    ],
) -> None:
    """Run a session in this process on rows that anybody may see: the same steps, no network, no protection, no charge."""
    from miners.secure.local import run_simulation
    from miners.secure.session import load_session
    from miners.secure.task import hold

    loaded = load_session(session)
    if len(tables) != len(loaded.parties):
        raise typer.BadParameter(f"{len(tables)} tables were given for {len(loaded.parties)} parties")
    frames = [_table(file) for file in tables]
    holdings = [hold(loaded.task, frame) for frame in frames]
    for member, frame, holding in zip(loaded.parties, frames, holdings, strict=True):
        left_out = (
            f", {len(frame) - holding.rows:,} left out for values that are missing or not declared"
            if holding.rows < len(frame)
            else ""
        )
        typer.echo(printable(f"{member.name}: {holding.rows:,} rows{left_out}"), err=True)
        if holding.rows > member.rows:
            raise QueryError(
                f"the table of {member.name} has {holding.rows:,} rows; the session says at most {member.rows:,}."
            )
    outcome = run_simulation(loaded, holdings)[0]
    for one in outcome.opened:
        typer.echo(printable(f"opened: {one.what} {' '.join(map(str, one.values))}"), err=True)
    if outcome.tree is not None:
        typer.echo(outcome.tree.export_text())
    else:
        typer.echo(
            "The tree is secret"
            + (f"; lengths of its paths: {' '.join(map(str, outcome.depths))}" if outcome.depths is not None else ".")
        )


def _member(text: str, rows: int) -> dict[str, Any]:
    name, _, where = text.partition("=")
    host, _, port = where.rpartition(":")
    if not name or not host or not port.isdecimal():
        raise typer.BadParameter(f"{text!r} is no party; write NAME=HOST:PORT, for example clinic=10.0.0.2:8801")
    return {"name": name, "host": host, "port": int(port), "rows": rows}


def _agreed(session: Session) -> str:
    """The hash, after a person at a terminal said yes."""
    import sys

    if not sys.stdin.isatty():
        fail(
            f"--agree HASH is needed: `pinq secure show` prints it; compare it with the other parties first. It starts with {session.digest[:8]}."
        )
    typer.echo(printable(f"Session {session.session}, hash {session.digest}. It opens:"), err=True)
    for one in session.opened:
        typer.echo(printable(f"  {one}"), err=True)
    typer.confirm("Do all parties have this hash, and do you agree?", abort=True, err=True)
    return session.digest


def _table(file: Path) -> Any:
    import pandas as pd

    if file.suffix == ".parquet":
        return pd.read_parquet(file)
    return pd.read_csv(file, keep_default_na=False, na_values=[""])  # NA may be a category
