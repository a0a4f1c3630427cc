# SPDX-License-Identifier: Apache-2.0
"""The scoring of candidates of ``exp_mech``: plain splits and families, behind one protocol.

``selection.py`` is where to start: a list of candidates, the tables that they need, the noisy
choice. Each candidate is scored by one class (``scorer.py``): a plain split, or a family of many
members. They see exact tables and give exact integer scores; noise comes in ``selection.py`` alone.

To add a family: its value (a class and an entry of ``Candidate`` in ``pinq/language/specs.py``), its
class there, and its line in ``selection.SCORERS``. To add a score: its class and its entry of
``AnyScore`` in ``pinq/language/scores.py``; nothing here.
"""
