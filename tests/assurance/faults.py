# SPDX-License-Identifier: Apache-2.0
"""The mistakes that ``tests/assurance/planted_faults.py`` plants, each with the tests that should notice it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A mistake that would break a promise.

    Attributes:
        what: The mistake, for people.
        file: The path below the root.
        right, wrong: The text that the file has once, and its replacement.
        tests: The test files that should fail.
    """

    what: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


MECHANISMS = "tests/contract/test_every_mechanism.py"
LAWS = "tests/privacy/test_mechanisms.py"
NOISE = "tests/privacy/test_noise_by_digits.py"
SELECTIONS = "tests/privacy/test_selections.py"
HANDLES = "tests/privacy/test_through_a_handle.py"
SCORES = "tests/contract/test_every_score.py"
LOSSES = "tests/contract/test_every_loss.py"
CURATOR = "tests/unit/curator/test_curator.py"
COMPOSITION = "tests/property/test_composition.py"
PARTS = "tests/unit/public/test_parts.py"
LEDGER = "tests/integration/test_ledger.py"
DAMAGE = "tests/integration/test_ledger_damage.py"
ENGINES = "tests/contract/test_every_engine.py"
ENGINES_ROWS = "tests/contract/test_every_engines_rows.py"
GUARDS = "tests/integration/test_guards.py"
PRODUCTS = "tests/privacy/test_products.py"
SAMPLERS = "tests/privacy/test_samplers_see_neighbours.py"
OUTCOMES = "tests/privacy/test_outcomes.py"
KNOWN = "tests/privacy/test_known_counterexamples.py"
INTERVALS = "tests/unit/tables/test_intervals.py"
TOPDOWN = "tests/unit/federated/test_topdown.py"
ROUNDS = "tests/unit/secure/test_secure_rounds.py"
SUMS = "tests/unit/secure/test_secure_sums.py"
BITS = "tests/unit/test_bits.py"
UNITS = "tests/unit/secure/test_secure_scorecard.py"
SHARED_NOISE = "tests/privacy/test_secure_noise.py"
JOINING = "tests/integration/test_secure_provider.py"
PARTIES = "tests/integration/test_secure_network.py"
PEOPLE = "tests/integration/test_people.py"
WORKBENCH = "tests/integration/test_workbench_guard.py"
COHORTS = "tests/privacy/test_cohorts.py"
CHANGES = "tests/privacy/test_changing_tables.py"
VERSIONS = "tests/integration/provider/test_versions.py"
REGISTRY = "tests/integration/provider/test_year_of_a_registry.py"
JOINED = "tests/integration/provider/test_joined_tables.py"
CLINIC = "tests/integration/provider/test_tables_of_a_policy.py"
ALONE = "tests/property/test_rows_alone.py"
ATTEMPTS = "tests/contract/test_every_attempt.py"

FAULTS = (
    Fault(
        "noise of half the scale",
        "pinq/curator/mechanisms.py",
        "exact = Fraction(sensitivity) / epsilon",
        "exact = Fraction(sensitivity) / (2 * epsilon)",
        (MECHANISMS, LAWS),
    ),
    Fault(
        "noise for a narrower range, of values that are not clamped to it",
        "pinq/engine/tables.py",
        "np.clip(value, self.moments.first, self._last) - value.dtype.type(self.moments.first)",
        "value - value.dtype.type(self.moments.first)",
        (SAMPLERS,),
    ),
    Fault(
        "noise 15 % too small",
        "pinq/curator/mechanisms.py",
        "exact = Fraction(sensitivity) / epsilon",
        "exact = Fraction(85, 100) * sensitivity / epsilon",
        (MECHANISMS, LAWS),
    ),
    Fault(
        "scales rounded to the nearest float, not up",
        "pinq/curator/mechanisms.py",
        "return scale if Fraction(scale) >= exact else math.nextafter(scale, math.inf)",
        "return scale",
        (LAWS,),
    ),
    Fault(
        "all numbers of an array get the same noise",
        "pinq/curator/mechanisms.py",
        "noisy[drawn] = law.added(noisy[drawn], source)",
        "noisy[drawn] = noisy[drawn] + law.added(noisy[:1] * 0)",
        (LAWS,),
    ),
    Fault(
        "no more bits are drawn where 64 leave a digit of the noise open",
        "pinq/public/noise.py",
        "for place in (self._table[digits] == words).nonzero()[0]:",
        "for place in ():",
        (NOISE,),
    ),
    Fault(
        "random bits are not tested before a charge",
        "pinq/curator/monitor.py",
        "            WATCHED.require()\n",
        "",
        (BITS,),
    ),
    Fault(
        "bits that failed their test are used when the next ones pass",
        "pinq/public/noise.py",
        "        if self.failed:\n",
        "        if fault:\n",
        (BITS,),
    ),
    Fault(
        "a digit's shares are rounded up",
        "pinq/public/noise.py",
        "yield low >> spare",
        "yield (low >> spare) + 1",
        (NOISE,),
    ),
    Fault(
        "digits of the noise are those of unbounded numbers",
        "pinq/public/noise.py",
        "exponential(BASE * self._step, bits) if self._bounded else (0, 0)",
        "(0, 0)",
        (NOISE,),
    ),
    Fault(
        "noise beyond 64 bits wraps around",
        "pinq/public/noise.py",
        "return np.clip(exact + self.draw(len(exact), source), -LARGEST, LARGEST).astype(np.int64)",
        "return ((exact + self.draw(len(exact), source) + 2**63) % 2**64 - 2**63).astype(np.int64)",
        (NOISE,),
    ),
    Fault(
        "a part without rows gets no noise",
        "pinq/curator/mechanisms.py",
        "return noisy.reshape(values.shape)",
        "return np.where(values == 0, 0, noisy.reshape(values.shape))",
        (LAWS,),
    ),
    Fault(
        "lists of one call are compared with the best of all of them",
        "pinq/curator/mechanisms.py",
        "behind = np.maximum.reduceat(scores, starts).repeat(lengths) - scores",
        "behind = np.maximum.reduceat(scores, starts).max() - scores",
        (LAWS,),
    ),
    Fault(
        "of the candidates that permute-and-flip accepts the first one is chosen",
        "pinq/curator/mechanisms.py",
        "drawn = [first + source.below(int(end - first)) for",
        "drawn = [first for",
        (MECHANISMS, LAWS),
    ),
    Fault(
        "the weighted choice forgets the mass of candidates",
        "pinq/curator/mechanisms.py",
        "weights /= candidates.mass",
        "weights /= 1",
        (LAWS,),
    ),
    Fault(
        "the wrong side of the error bound decides a weighted choice",
        "pinq/curator/mechanisms.py",
        "below + slack < uniform and uniform + slack < above",
        "below - slack < uniform and uniform - slack < above",
        (LAWS,),
    ),
    Fault(
        "the sensitivity of a sum is .85 of its largest value",
        "pinq/curator/verbs.py",
        "counted.noisy(exact, units.largest, epsilon)",
        "counted.noisy(exact, units.largest * 85 // 100, epsilon)",
        (SAMPLERS,),
    ),
    Fault(
        "the sensitivity of a sum is that of its upper bound",
        "pinq/curator/verbs.py",
        "max(abs(offset), abs(factor * (column.cells - 1) + offset))",
        "abs(factor * (column.cells - 1) + offset)",
        (SAMPLERS,),
    ),
    Fault(
        "an average's two bins share the noise of one",
        "pinq/curator/verbs.py",
        "np.stack([upper, last * rows - upper]), last, epsilon",
        "np.stack([upper, last * rows - upper]), last // 2, epsilon",
        (HANDLES,),
    ),
    Fault(
        "a replaced row, and a person's many rows, count as one row that comes",
        "pinq/curator/monitor.py",
        "per_row = epsilon.per_row(self.schema.distance)",
        "per_row = epsilon.per_row(1)",
        (HANDLES,),
    ),
    Fault(
        "derivatives in the cells of several specs are charged as of one",
        "pinq/curator/verbs.py",
        "vectors.bound * max(1, len(splits))",
        "vectors.bound",
        ("tests/privacy/test_derivative_sums.py",),
    ),
    Fault(
        "vectors are not clipped to their bound",
        "pinq/language/derivatives.py",
        "self.packing.packed(clipped(vectors, self.bound))",
        "self.packing.packed(vectors)",
        (SAMPLERS, LOSSES),
    ),
    Fault(
        "products are shortened by the norm of the off-diagonal alone",
        "pinq/language/products.py",
        "((whole + sizes) ** 2 + whole * whole + squares) // 2",
        "((whole + sizes) ** 2 - whole * whole - squares) // 2",
        (PRODUCTS, SAMPLERS),
    ),
    Fault(
        "shortened entries are rounded to the nearest",
        "pinq/language/products.py",
        "np.trunc(entries, out=entries)",
        "np.rint(entries, out=entries)",
        (PRODUCTS,),
    ),
    Fault(
        "a fixed column counts with its own size",
        "pinq/language/products.py",
        "        if self.fixed:\n",
        "        if False:\n",
        (PRODUCTS,),
    ),
    Fault(
        "Gini's sensitivity is one row",
        "pinq/language/scores.py",
        "return 2 * GINI_UNIT",
        "return GINI_UNIT",
        (SCORES,),
    ),
    Fault(
        "InfoGain's sensitivity is that of a small table",
        "pinq/language/scores.py",
        "monotone_step_table(schema.max_rows)[1][-1]",
        "monotone_step_table(schema.max_rows)[1][0]",
        (SCORES,),
    ),
    Fault(
        "MaxClass lets a cell count twice",
        "pinq/language/scores.py",
        "return table.max(axis=-1).sum(axis=-1)",
        "return 2 * table.max(axis=-1).sum(axis=-1)",
        (SCORES,),
    ),
    Fault(
        "several choices for a part cost as much as one",
        "pinq/curator/candidates/selection.py",
        "for offer in lists], epsilon / self.choices)",
        "for offer in lists], epsilon)",
        (SELECTIONS,),
    ),
    Fault(
        "the tests on a path down a tree are charged as one",
        "pinq/language/scores.py",
        "PATH_LOSS = Fraction(2607, 1000)",
        "PATH_LOSS = Fraction(1)",
        ("tests/privacy/test_stopping.py",),
    ),
    Fault(
        "a part's cost is the largest of its questions, not their sum",
        "pinq/ledger/composition.py",
        "part[keys[position]] = cost = self.part.get(keys[position], 0) + grown[position]",
        "part[keys[position]] = cost = max(self.part.get(keys[position], 0), grown[position])",
        (COMPOSITION,),
    ),
    Fault(
        "what other parts cost before is forgotten",
        "pinq/ledger/composition.py",
        "before = largest.get(partition, self.largest.get(partition, 0))",
        "before = max(largest.get(partition, 0), self.part.get(key, 0))",
        (COMPOSITION,),
    ),
    Fault(
        "parts may overlap",
        "pinq/language/queries.py",
        "collection.check_disjoint()",
        "pass",
        (COMPOSITION,),
    ),
    Fault(
        "a budget may be passed by one nano-epsilon",
        "pinq/ledger/state.py",
        "if cost > rest:",
        "if cost.nano > rest.nano + 1:",
        (COMPOSITION, LEDGER),
    ),
    Fault(
        "rows are read before the charge",
        "pinq/curator/monitor.py",
        "earlier, stored = self.ledger.charge(",
        "list(work.prepared.count(self._engine, deadline))\n        earlier, stored = self.ledger.charge(",
        (CURATOR, GUARDS, "tests/e2e/test_faults.py"),
    ),
    Fault(
        "a failure after the charge says why",
        "pinq/curator/monitor.py",
        '_log.exception("request %s (%s) failed after its charge", request.id, prepared.about)\n            raise EngineError() from None',
        '_log.exception("request %s (%s) failed after its charge", request.id, prepared.about)\n            raise',
        (GUARDS, "tests/e2e/test_faults.py"),
    ),
    Fault(
        "an answer that another process stored first is drawn again",
        "pinq/ledger/log.py",
        "return payload if earlier is None else earlier",
        "return payload",
        (LEDGER, "tests/integration/test_ledger_together.py", CURATOR),
    ),
    Fault(
        "one id may ask two questions",
        "pinq/curator/monitor.py",
        "if earlier is not None and earlier.query.identity != query.identity:",
        "if False:",
        (GUARDS,),
    ),
    Fault(
        "terms forget the columns of the parts",
        "pinq/language/queries.py",
        "return self.query.columns().union(*(spec.columns() for spec in self.parts.specs))",
        "return self.query.columns()",
        ("tests/e2e/test_column_terms.py",),
    ),
    Fault(
        "an expired grant still counts",
        "pinq/ledger/state.py",
        "return self.granted and not self.revoked and (self.expires is None or now() < self.expires)",
        "return self.granted and not self.revoked",
        (LEDGER, "tests/integration/test_grants.py"),
    ),
    Fault(
        "an edited event is believed",
        "pinq/ledger/log.py",
        "if row.seq != number or row.hash != _chain(",
        "if row.seq != number and row.hash != _chain(",
        ("tests/e2e/test_ledger_edited.py",),
    ),
    Fault(
        "values beyond a column's bounds are kept as they are",
        "pinq/engine/encoding.py",
        "WHEN {cell} >= {column.cells} THEN {column.cells - 1} ELSE",
        "ELSE",
        (ENGINES, "tests/integration/test_engine.py"),
    ),
    Fault(
        "a row's shard depends on where it stands in the table",
        "pinq/engine/shards.py",
        "1 + np.arange(codes.rows) - np.repeat(starts, np.diff(starts, append=codes.rows))",
        "order",
        (ENGINES_ROWS,),
    ),
    Fault(
        "a person's rows are bounded in each group of a column that is redefined",
        "pinq/engine/encoding.py",
        "PARTITION BY unit ORDER BY",
        "PARTITION BY unit, c0 ORDER BY",
        (KNOWN, ENGINES_ROWS),
    ),
    Fault(
        "numbers beyond a bound wrap round",
        "pinq/engine/encoding.py",
        'cell = f"floor(({value} - ({lower!r})::DOUBLE) / ({width!r})::DOUBLE + {column.tolerance!r})"',
        'cell = f"floor(({value} - ({lower!r})::DOUBLE) / ({width!r})::DOUBLE + {column.tolerance!r}) % {column.cells}"',
        (KNOWN, ENGINES),
    ),
    Fault(
        "sums of cells are added up in 32 bits",
        "pinq/curator/verbs.py",
        "return np.clip(exact, -MAX_SUM, MAX_SUM).astype(np.int64)",
        "return (exact % 2**32).astype(np.int64)",
        (KNOWN, "tests/integration/test_whole_numbers.py"),
    ),
    Fault(
        "a residual is clipped in a copy, and used as it was",
        "pinq/language/derivatives.py",
        "residual = np.clip(residual, -self._limit, self._limit)",
        "np.clip(residual, -self._limit, self._limit)",
        (KNOWN, LOSSES),
    ),
    Fault(
        "a calendar of a single period has no table",
        "pinq/engine/rows.py",
        "last, kind = int(edges[-1]) if len(edges) else 0, ",
        "last, kind = int(edges[-1]), ",
        (OUTCOMES,),
    ),
    Fault(
        "a row beyond the last cut is an error",
        "pinq/engine/rows.py",
        'return self.table.take(codes, mode="clip")',
        "return self.table.take(codes)",
        (OUTCOMES,),
    ),
    Fault(
        "a person may have any number of rows",
        "pinq/engine/encoding.py",
        "QUALIFY {nth} <= {policy.bounded_unit.max_rows}",
        "QUALIFY {nth} <= 1000000",
        (ENGINES_ROWS, "tests/integration/test_engine.py"),
    ),
    Fault(
        "persons are known by doubles",
        "pinq/engine/sources.py",
        "if kind in INEXACT:  # two persons",
        "if False:  # two persons",
        (ENGINES_ROWS,),
    ),
    Fault(
        "a part of weekdays is cut as if it were its first days",
        "pinq/language/specs.py",
        "first, end = self._spans[:, part].tolist()",
        "first, end = int(self._spans[0, part]), int(self._spans[0, part]) + 7",
        (CURATOR,),
    ),
    Fault(
        "gradients alone pay for second derivatives",
        "pinq/language/derivatives.py",
        "largest = self.limit if self.hessian else min(self.limit, 2.0)",
        "largest = self.limit",
        ("tests/unit/public/test_derivatives.py",),
    ),
    Fault(
        "a crossing takes scores that count empty cells",
        "pinq/curator/candidates/scorer.py",
        "if frame.scores(np.zeros((1, frame.classes[0].size), dtype=np.int64)).any():",
        "if False:",
        (SCORES,),
    ),
    Fault(
        "an interval of a quantile has half its level",
        "miners/tables/quantile_search.py",
        "np.append(True, within_noise(surplus, weights, _scales(counted), level, times))",
        "np.append(True, within_noise(surplus, weights, _scales(counted), level / 2, times))",
        (INTERVALS,),
    ),
    Fault(
        "lower levels of a federated tree get more than upper ones",
        "miners/federated/best_first.py",
        "weights = [2 ** (self.depth - 1 - level) if self.decay else 1",
        "weights = [2**level if self.decay else 1",
        (TOPDOWN,),
    ),
    Fault(
        "a session's shares leave before their round is charged",
        "pinq_secure/mpc/rounds.py",
        "            self._company.pay(number, place, nano, noise.size)\n            answer = await work(noise, source)\n",
        "            answer = await work(noise, source)\n            self._company.pay(number, place, nano, noise.size)\n",
        (ROUNDS,),
    ),
    Fault(
        "a session draws one party's noise too little",
        "pinq_secure/mpc/noise.py",
        "* plays, epsilon, honest, source)",
        "* plays, epsilon, honest + 1, source)",
        (SHARED_NOISE,),
    ),
    Fault(
        "a session takes a wrong share of a sum",
        "pinq_secure/mpc/arithmetic.py",
        "        if self._fits(points):\n            return\n",
        "        if self._fits(points) or True:\n            return\n",
        (SUMS,),
    ),
    Fault(
        "a session's rounded sums have the sensitivity of exact ones",
        "pinq_secure/sums.py",
        "rounding = vectors.width if step > 1 else 0",
        "rounding = 0",
        (UNITS,),
    ),
    Fault(
        "a session goes on with other rows than it began with",
        "pinq_secure/booking.py",
        "        if self._paid():\n",
        "        if self._paid() and False:\n",
        (JOINING,),
    ),
    Fault(
        "a session believes who tells of more rounds than can have been opened",
        "pinq_secure/session/network.py",
        "if len(rounds) > len(own_rounds) + 1:",
        "if len(rounds) > len(own_rounds) + 9:",
        (PARTIES,),
    ),
    Fault(
        "the workbench's link works again and again",
        "pinq_workbench/guard.py",
        '            self.key = ""\n',
        "",
        (WORKBENCH,),
    ),
    Fault(
        "a page of another site may use the workbench",
        "pinq_workbench/guard.py",
        'return origin in (proxy_origins or [f"http://{host}"])',
        "return True",
        (WORKBENCH,),
    ),
    Fault(
        "the workbench answers under any host's name",
        "pinq_workbench/guard.py",
        "if not proxy_origins and not LOOPBACK.fullmatch(host):",
        "if not host:",
        (WORKBENCH,),
    ),
    Fault(
        "an answer under padding is one sleep of the event loop away from its work",
        "pinq/server/gate.py",
        "asyncio.sleep(max(0, remaining - 0.002))",
        "asyncio.sleep(remaining)",
        ("tests/unit/server/test_gate.py",),
    ),
    Fault(
        "an interval that is read off a column's table has the code behind it",
        "pinq/engine/arrays.py",
        "np.clip(edges, starts[:, None], ends[:, None]))]",
        "np.clip(edges, starts[:, None], ends[:, None]), 'right')]",
        ("tests/unit/engine/test_kept_tables.py",),
    ),
    Fault(
        "cuts stand together that a median may well be",
        "pinq/curator/candidates/selection.py",
        "FAR = 100",
        "FAR = 1",
        ("tests/unit/curator/test_near_cuts.py",),
    ),
    Fault(
        "a loss is rounded down",
        "pinq/public/epsilon.py",
        "up = math.ceil(nano)",
        "up = math.floor(nano)",
        (COMPOSITION,),
    ),
    Fault(
        "each of several choices for a part gets the whole epsilon",
        "pinq/curator/candidates/selection.py",
        "[offer[slot] for offer in lists], epsilon / self.choices) for slot",
        "[offer[slot] for offer in lists], epsilon) for slot",
        (SELECTIONS,),
    ),
    Fault(
        "a test of a tree's parts is charged to its leaves",
        "pinq/curator/verbs.py",
        "        charged=beginnings(parts, score.above),\n",
        "",
        ("tests/unit/curator/test_enough_rows.py",),
    ),
    Fault(
        "products are shortened by one step too few",
        "pinq/language/products.py",
        "steps -= steps**2 * norms > limit",
        "steps -= (steps - 1)**2 * norms > limit",
        (PRODUCTS,),
    ),
    Fault(
        "a person keeps one row more than the policy allows",
        "pinq/engine/encoding.py",
        "QUALIFY {nth} <= {policy.bounded_unit.max_rows}",
        "QUALIFY {nth} <= {policy.bounded_unit.max_rows} + 1",
        (ENGINES_ROWS,),
    ),
    Fault(
        "equal rows get one coin",
        "pinq/engine/shards.py",
        "nth[order] = 1 + np.arange(codes.rows) - np.repeat(starts, np.diff(starts, append=codes.rows))",
        "nth[order] = 1",
        (ENGINES_ROWS,),
    ),
    Fault(
        "an open dataset may raise the cap",
        "pinq/ledger/state.py",
        "min(policy.cap, before.cap)",
        "policy.cap",
        (LEDGER,),
    ),
    Fault(
        "a head is compared by its number alone",
        "pinq/ledger/log.py",
        "if row is not None and (row.seq, row.hash) == named:",
        "if row is not None and row.seq == named[0]:",
        (DAMAGE,),
    ),
    Fault(
        "a writer that appended nothing is answered before the commit",
        "pinq/ledger/log.py",
        "job.done = not job.write",
        "job.done = not job.write or self.appended == before",
        ("tests/integration/test_ledger_together.py",),
    ),
    Fault(
        "a deadline may be prolonged",
        "pinq/curator/deadline.py",
        "self.end = min(self.end, moment)",
        "self.end = moment",
        ("tests/unit/curator/test_deadline.py",),
    ),
    Fault(
        "a worker is never told that its request ended",
        "pinq/server/worker.py",
        "self.deadline.stop(end)",
        "pass",
        ("tests/integration/test_workers.py",),
    ),
    Fault(
        "an unknown token does not queue alone",
        "pinq/server/gate.py",
        "return opened is None or opened.policy.padding is not None",
        "return opened is not None and opened.policy.padding is not None",
        ("tests/unit/server/test_gate.py",),
    ),
    Fault(
        "after a lost attempt a refusal says that nothing was spent",
        "pinq/analyst/client.py",
        "                if lost:\n                    error.charged = None\n",
        "",
        ("tests/integration/test_client.py",),
    ),
    Fault(
        "an early leaf forgets what its node was asked",
        "miners/budget/plan.py",
        "for step in above) - _cost(paid)",
        "for step in above)",
        ("tests/unit/trees/test_forests.py",),
    ),
    Fault(
        "the synthesizer's stated error counts the noise of its own check",
        "miners/synthesizer/fitting.py",
        ".sum()) - cells * variance\n",
        ".sum())\n",
        ("tests/unit/synthesizer/test_synthesizer.py",),
    ),
    Fault(
        "a column that noise hides is not told",
        "miners/linear/moments.py",
        "np.minimum(noise / variances, 1).tolist()",
        "np.minimum(noise / variances, 0.9).tolist()",
        ("tests/unit/linear/test_components.py",),
    ),
    Fault(
        "variances of several owners are averaged",
        "miners/federated/federation.py",
        "math.fsum(tally.variance for tally in tallies)\n",
        "math.fsum(tally.variance for tally in tallies) / len(tallies)\n",
        ("tests/unit/federated/test_federation.py",),
    ),
    Fault(
        "web sockets of other pages reach the workbench",
        "pinq_workbench/guard.py",
        'return scope["type"] == "http" and scope["method"] in ("GET", "HEAD")',
        "return True",
        (WORKBENCH,),
    ),
    Fault(
        "a quantile's interval ends one cell too early",
        "miners/tables/quantile_search.py",
        "return int(ends[np.flatnonzero(possible)[0]]), high - 1",
        "return int(ends[np.flatnonzero(possible)[0]]), high - 2",
        ("tests/unit/tables/test_crossings.py",),
    ),
    Fault(
        "the count of a group has another level",
        "miners/tables/statistics.py",
        "TableEstimate:\n        low, high = answer.interval(self.level)",
        "TableEstimate:\n        low, high = answer.interval(0.5)",
        (INTERVALS,),
    ),
    Fault(
        "the count of a value has another level",
        "miners/tables/statistics.py",
        "reuse=self.reuse)\n        low, high = answer.interval(self.level)",
        "reuse=self.reuse)\n        low, high = answer.interval(0.5)",
        (INTERVALS,),
    ),
    Fault(
        "each of several processes allows a grant's whole quota of work",
        "pinq/curator/deadline.py",
        "        limit //= self._processes\n",
        "",
        ("tests/unit/curator/test_meter.py",),
    ),
    Fault(
        "a reload keeps codes whose engine reports a problem",
        "pinq/server/datasets.py",
        "same_rows = ledger is self.ledger and source == self.source and not self.engine.problem()",
        "same_rows = ledger is self.ledger and source == self.source",
        ("tests/integration/test_reload.py",),
    ),
    Fault(
        "a group grants a name anew whose grant was revoked",
        "pinq/ledger/ledger.py",
        "if not again and analyst in log.state.accounts:",
        "if False:",
        (PEOPLE,),
    ),
    Fault(
        "an ID token for several clients need not be made for this one",
        "pinq/server/sign_in.py",
        'if others and (claims.get("azp") != self._client or {*map(type, others)} != {str}):',
        "if False:",
        (PEOPLE,),
    ),
    Fault(
        "an ID token may expire whenever it says",
        "pinq/server/sign_in.py",
        "not 0 <= claims.get(moment, 0) <= latest",
        "not 0 <= claims.get(moment, 0)",
        (PEOPLE,),
    ),
    Fault(
        "an answer is made outside of the guard after the charge",
        "pinq/curator/monitor.py",
        "        except Stopped:\n            _log.warning(",
        "        except (TypeError, ValueError):\n            raise\n        except Stopped:\n            _log.warning(",
        (GUARDS,),
    ),
    Fault(
        "a version of a table is left out of its parts' keys",
        "pinq/ledger/composition.py",
        "keys = [root, *(root + key for _, _, key in demand.nodes)]",
        "keys = [root, *(key for _, _, key in demand.nodes)]",
        (COHORTS,),
    ),
    Fault(
        "all versions of the rows are one",
        "pinq/ledger/composition.py",
        'return ROOT if version == 1 else version.to_bytes(8, "big")',
        "return ROOT",
        (COHORTS, CHANGES),
    ),
    Fault(
        "a cohort's versions cost the largest of them, not their sum",
        "pinq/ledger/composition.py",
        "costs[other] = costs.get(other, 0) + self.spent_on(version).nano",
        "costs[other] = max(costs.get(other, 0), self.spent_on(version).nano)",
        (COHORTS,),
    ),
    Fault(
        "partitions into cohorts share one maximum",
        "pinq/ledger/composition.py",
        'if other.split(" ")[:2] == place.split(" ")[:2]:',
        'if " " in other:',
        (COHORTS,),
    ),
    Fault(
        "what a cohort costs is compared with itself alone",
        "pinq/ledger/composition.py",
        "return max(0, costs[place] + grown - max(costs.values()))",
        "return max(0, grown - max(costs.values()))",
        (COHORTS,),
    ),
    Fault(
        "a closed cohort is not compared with its rows of before",
        "pinq/ledger/events.py",
        "            if now.contents != before.contents:\n",
        "            if now.contents != before.contents and not self.cohort:\n",
        (COHORTS, REGISTRY),
    ),
    Fault(
        "rows that differ are those of their declared version",
        "pinq/ledger/events.py",
        "            if now.contents != before.contents:\n",
        "            if now.contents != before.contents and self.cohort:\n",
        (VERSIONS,),
    ),
    Fault(
        "cohorts are closed before they are",
        "pinq/language/parts.py",
        "enumerate(names[: 1 + names.index(cohorts.closed)])}",
        "enumerate(names)}",
        (COHORTS, REGISTRY),
    ),
    Fault(
        "what is asked of a cohort and of other parts counts as the cohort's",
        "pinq/ledger/composition.py",
        "return ROOT if others else first",
        "return max(first, *others, ROOT)",
        (COHORTS,),
    ),
    Fault(
        "a file that was written again has its old version",
        "pinq/ledger/events.py",
        'alike = self.source == before.source != "" and',
        'alike = self.source != "" != before.source and',
        (VERSIONS, CHANGES),
    ),
    Fault(
        "rows that are read otherwise have their old version",
        "pinq/ledger/events.py",
        "same = self.reading == before.reading and (alike or named)",
        "same = alike or named",
        (VERSIONS, CHANGES),
    ),
    Fault(
        "the first versions of all tables and cohorts are one",
        "pinq/ledger/events.py",
        "number = last + 1 if self.place or last > 1 else 1",
        "number = 1",
        (CLINIC,),
    ),
    Fault(
        "equal questions of two tables are one",
        "pinq/curator/monitor.py",
        'return f"{schema} {table}" if table else schema',
        "return schema",
        (CLINIC,),
    ),
    Fault(
        "a frame's objects are read by the type of them all",
        "pinq/engine/frames.py",
        "    kinds = {kind for kind in set(map(type, values)) if kind.__name__ not in _MISSING}\n",
        "    kinds = {kind for kind in set(map(type, values)) if kind.__name__ not in _MISSING}\n"
        "    if kinds <= {int, float, Decimal}:\n        return pa.array(values, from_pandas=True).cast(pa.string())\n",
        (ALONE,),
    ),
    Fault(
        "an attempt beyond the budget is refused and not logged",
        "pinq/ledger/ledger.py",
        "                if logs:\n                    log.refuse(error, analyst, request, query)\n",
        "",
        (ATTEMPTS,),
    ),
    Fault(
        "tables are joined by any columns",
        "pinq/engine/joins.py",
        "persons = all(column in scope[name].persons for name, column in columns)",
        "persons = True",
        (JOINED,),
    ),
    Fault(
        "rows of several people are a group",
        "pinq/engine/joins.py",
        "not groups or any(column in scope[name].persons for name, column in groups)",
        "True",
        (JOINED,),
    ),
    Fault(
        "persons of joined tables are compared by the collation of a database",
        "pinq/engine/sources.py",
        '        fields[unit] = _APART["VARCHAR"].format(f"CAST({quoted(unit)} AS VARCHAR)")\n',
        "        fields[unit] = quoted(unit)\n",
        (JOINED,),
    ),
    Fault(
        "another reading of a joined table begins no version",
        "pinq/policy/policy.py",
        "return [READING, self._reads, row_digest, *joined]",
        "return [READING, self._reads, row_digest]",
        (JOINED,),
    ),
)
