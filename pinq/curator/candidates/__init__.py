# SPDX-License-Identifier: Apache-2.0
"""The scoring of candidates of ``exp_mech``: plain splits and families, behind one protocol.

Each candidate is scored by one class (``scorer.py``); ``selection.py``, where to start, has the noisy choice. Scorers
see exact tables and give exact integer scores.

To add a family: its value (a class and an entry of ``Candidate`` in ``pinq/language/specs.py``), its
class there, and its line in ``selection.SCORERS``. To add a score: its class and its entry of
``AnyScore`` in ``pinq/language/scores.py``; nothing here.
"""
