# SPDX-License-Identifier: Apache-2.0
"""The scoring of candidates of ``exp_mech``: plain splits and families, behind one protocol.

Read ``selection.py`` first.

To add a family: its value (a class and an entry of ``Candidate`` in ``pinq/language/specs.py``), its class in
``scorer.py``, and its line in ``selection.SCORERS``. To add a score: its class and its entry of ``AnyScore`` in
``pinq/language/scores.py``; nothing here.
"""
