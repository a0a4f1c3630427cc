# SPDX-License-Identifier: Apache-2.0
"""The harness of all benchmarks: data sets, measurements, one store, and where results go.

It knows how experiments are measured, kept, published and drawn; what is measured is said in the
rooms beside it. Read ``command.py`` first.
"""
