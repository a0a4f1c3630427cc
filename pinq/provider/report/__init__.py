# SPDX-License-Identifier: Apache-2.0
"""The audit: what the log says about budgets, refusals and exhaustion, as text, JSON, CSV and HTML.

Read ``audit.py`` first.
"""
