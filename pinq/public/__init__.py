# SPDX-License-Identifier: Apache-2.0
"""The common code of both sides: schema, partition specs, scores, parts, requests and answers.

Nothing here reads a row, draws noise or does I/O; everything follows from the policy and from
requests. Read ``schema.py`` first, then ``specs.py``.
"""
