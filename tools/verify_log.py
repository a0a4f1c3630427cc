# SPDX-License-Identifier: Apache-2.0
"""Checks a ledger of pinq without pinq: written from docs/log-format.md alone, with Python's standard library.

Usage: python verify_log.py LEDGER [SEQ:HASH]. LEDGER is an SQLite file, which is only read, or JSON lines. SEQ:HASH is
a head that was kept elsewhere: without one, a log that was written anew cannot be told. A fault ends with status 1.
"""

import hashlib
import json
import sqlite3
import sys
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

COLUMNS = "seq, at, kind, analyst, request, body, hash"
TERMS = "max_epsilon_per_query columns verbs queries_per_minute work_per_minute stored_bytes tables"
QUESTION = "verb session about question classes act run stored notes"
FIELDS = {  # by kind: fields that it has / fields that it may have
    "created": "version dataset salt / coins", "policy": "digest cap schema / cap_rule by because",
    "version": "number why reading / source declared columns contents table cohort partition by because",
    "grant": f"limit expires / token {TERMS} by because", "retire": "means spent / by because",
    "extend": "more expires / by because", "terms": f"/ {TERMS} by because", "token": "token / by because",
    "charge": f"epsilon demand / version {QUESTION}", "refusal": f"reason / asked remaining scope {QUESTION}",
    "secure": f"opens / {QUESTION}", "answer": "payload /", "snapshot": "digest /", "revoke": "/ by because",
}


def need(holds: object, rule: str) -> None:
    if not holds:
        raise ValueError(rule)


def charge(versions: dict[int, list[Any]], body: dict[str, Any], places: dict[int, Any]) -> int:
    """Adds a charge to the tree of its version; returns the costs of all: their sum, and of cohorts the maximum."""
    keys, nodes, asked = body["demand"]  # a part is [its own queries, its cost, its partitions], each [largest, parts]
    parts, above = [versions.setdefault(body.get("version", 1), [0, 0, {}])], list[Any]([[0]])
    for parent, partition, key in nodes:
        need(0 <= parent < len(parts) and partition >= 0, "a part stands before the part above it")
        above.append(parts[parent][2].setdefault(keys[partition], [0, {}]))
        parts.append(above[-1][1].setdefault(key, [0, 0, {}]))
    for node, partition in asked:
        need(0 <= node < len(parts) and -1 <= partition < len(keys), "what is asked is not listed")
        parts[node][0] += body["epsilon"]
    for part, partition in reversed(list(zip(parts, above, strict=True))):
        part[1] = part[0] + sum(largest for largest, _ in part[2].values())
        partition[0] = max(partition[0], part[1])
    own = {version: places[version] if places[version][2] else (version, "") for version in versions}
    costs = {place: sum(versions[version][1] for version in own if own[version] == place) for place in own.values()}
    return sum(max(cost for p, cost in costs.items() if p[:-1] == one) for one in {p[:-1] for p in costs})


class Log:  # the meaning of the events so far
    def __init__(self) -> None:
        self.dataset, self.cap, self.rule, self.snapshot, self.costs = "", 0, "union", (0, ""), {"sum": 0, "union": 0}
        self.meaning, self.heads, self.charged, self.answered = list[str](), list[str](), set[Any](), set[Any]()
        self.grants, self.trees, self.union, self.spent = (dict[Any, Any]() for _ in range(4))
        self.places: dict[int, Any] = {1: ("", "", "")}  # of each version: the table; the partition and the cohort

    def apply(self, seq: int, at: str, kind: str, who: str, request: str, body: dict[str, Any], answer: str) -> None:
        must, may = (set(names.split()) for names in FIELDS.get(kind, "?/").split("/"))
        need(must <= set(body) <= must | may, f"{kind!r} with these fields is of another format")
        need((seq == 1) == (kind == "created"), "`created` is the first event, and no other")
        grant, self.dataset = self.grants.get(who, {}), body.get("dataset", self.dataset)
        if kind == "policy":
            meaning = [body["schema"].get("adjacency", "add-remove"), body["schema"].get("privacy_unit", "row")]
            need(not self.grants or meaning == self.meaning, "epsilon changed its meaning after budgets were granted")
            self.cap, self.rule, self.meaning = body["cap"], body.get("cap_rule", "union"), meaning
        elif kind == "retire":  # budgets count anew
            need(body["spent"] == self.costs["sum"], "another sum was spent before it was closed")
            self.costs, self.grants, self.trees, self.spent, self.union = {"sum": 0, "union": 0}, {}, {}, {}, {}
        elif kind == "version":
            place = tuple(body.get(name, "") for name in ("table", "partition", "cohort"))
            last = [version for version, known in self.places.items() if known == place][-1:]
            need(body["number"] in (*last, max(self.places) + 1), "versions are counted one by one")
            self.places[body["number"]] = place
        elif kind == "grant":
            need(not grant or grant["revoked"], "a grant in the place of a valid one")
            self.grants[who] = body | {"revoked": False}
        elif kind in ("extend", "terms", "token", "revoke", "charge"):
            need(grant and not grant["revoked"], f"{kind!r} without a grant, or after its end")
            if kind == "extend":
                grant |= {"limit": grant["limit"] + body["more"], "expires": body["expires"] or grant["expires"]}
            elif kind == "terms":
                self.grants[who] = {name: grant[name] for name in ("limit", "expires", "revoked")} | body
            elif kind == "charge":
                self.charge(datetime.fromisoformat(at) - timedelta(seconds=1), who, request, body, grant)
            grant["revoked"] = kind == "revoke"
        elif kind == "snapshot" and seq == self.snapshot[0]:
            need(hashlib.sha256(self.snapshot[1].encode()).hexdigest() == body["digest"], "another snapshot was logged")
            kept = {name: account["total"] for name, account in json.loads(self.snapshot[1])["accounts"]}
            need(kept == dict.fromkeys(kept, 0) | self.spent, "the snapshot has other costs than the log gives")
        elif kind == "answer":
            need((who, request) in self.charged and (who, request) not in self.answered, "an answer to no open charge")
            need(hashlib.sha256(answer.encode()).hexdigest() == body["payload"], "another answer than was given")
            self.answered.add((who, request))

    def charge(self, moment: datetime, who: str, request: str, body: dict[str, Any], grant: Any) -> None:
        verb, version, epsilon = body.get("verb", ""), body.get("version", 1), body["epsilon"]
        need(not grant["expires"] or moment < datetime.fromisoformat(grant["expires"]), "a charge after the grant")
        need(verb in ("", *grant.get("verbs", [verb])), "a verb that the grant forbids")
        need(type(epsilon) is int and 0 <= epsilon <= grant.get("max_epsilon_per_query", epsilon), "no such epsilon")
        need(version in self.places and (who, request) not in self.charged, "an id charged twice, or no such version")
        self.charged.add((who, request))
        trees = self.trees.setdefault(who, {}), self.union
        own, self.costs["union"] = (charge(tree, body, self.places) for tree in trees)
        self.costs["sum"], self.spent[who] = self.costs["sum"] + own - self.spent.get(who, 0), own
        need(own <= grant["limit"], f"{who!r} spent {own} of {grant['limit']} nano-epsilons")
        need(self.costs[self.rule] <= self.cap, f"all spent {self.costs[self.rule]} of {self.cap} nano-epsilons")


def rows_of(path: Path) -> tuple[Any, Any]:
    """The events with the texts of answers, oldest first; and the snapshot's event and text, (0, "") without one."""
    if path.read_bytes()[:16] != b"SQLite format 3\0":
        lines = map(json.loads, filter(None, path.read_text(encoding="utf-8").split("\n")))
        return [(*(line[name] for name in COLUMNS.split(", ")), line.get("answer")) for line in lines], (0, "")
    mode = "ro" if Path(f"{path}-wal").exists() else "ro&immutable=1"  # with no newer events beside it, not even a lock
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True)) as db:
        rows = db.execute(f"SELECT {COLUMNS}, payload FROM events LEFT JOIN answers USING (seq) ORDER BY 1").fetchall()
        kept = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'snapshot'").fetchall()
        return rows, (kept and db.execute("SELECT seq, payload FROM snapshot").fetchone()) or (0, "")


def verify(path: str | Path, head: str = "") -> tuple[str, Log]:
    """Returns the first fault, or an empty text, and the log."""
    log, before = Log(), ""
    try:
        rows, log.snapshot = rows_of(Path(path))
        for seq, at, kind, who, request, body, chained, answer in rows:
            line = json.dumps([before, seq, at, kind, who, request, body], separators=(",", ":"), ensure_ascii=False)
            before = hashlib.sha256(line.encode()).hexdigest()
            log.heads.append(f"{seq}:{before}")
            need((seq, chained) == (len(log.heads), before), "the chain is broken: the log was edited or cut")
            log.apply(seq, at, kind, who, request, json.loads(body), answer)
        need(log.heads and head in ("", *log.heads), "the log never had this head: it was cut or written anew")
    except (LookupError, TypeError, ValueError, AttributeError, OSError, sqlite3.Error) as error:
        return f"event {len(log.heads)}: {error or type(error).__name__}", log
    return "", log


if __name__ == "__main__":
    fault, log = verify(*sys.argv[1:3])
    if fault:
        sys.exit(f"Refused. {fault}.")
    for who, grant in log.grants.items():
        print(f"{who!r} spent {log.spent.get(who, 0) / 1e9:.9g} of {grant['limit'] / 1e9:.9g}.")
    print(f"All of {log.dataset!r} spent {log.costs['sum'] / 1e9:.9g} of {log.cap / 1e9:.9g}.")
    print(f"The log holds up to {log.heads[-1]}.")
