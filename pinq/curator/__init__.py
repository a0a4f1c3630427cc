# SPDX-License-Identifier: Apache-2.0
"""The reference monitor: the only room where exact numbers and noise meet.

Read ``monitor.py`` first, then ``mechanisms.py``.
"""
