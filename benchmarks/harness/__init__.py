# SPDX-License-Identifier: Apache-2.0
"""The harness of all benchmarks: data sets, measurements, one store, and the place of results.

It measures, stores, publishes and draws experiments; the folders beside it define them. Read ``command.py`` first.
"""
