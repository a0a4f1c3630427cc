# SPDX-License-Identifier: Apache-2.0
"""What both sides of the wall know: schema, partition specs, scores, parts, requests and answers.

Nothing here reads a row, draws noise or does I/O; everything follows from the policy and from what
was asked. Read ``schema.py`` first, then ``specs.py``.
"""
