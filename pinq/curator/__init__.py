# SPDX-License-Identifier: Apache-2.0
"""The reference monitor: the only room where exact numbers and noise meet.

It checks a request, has it charged and counted, adds the noise and keeps the answer.

Read ``monitor.py`` first, then ``mechanisms.py``.
"""
