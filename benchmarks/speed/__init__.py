# SPDX-License-Identifier: Apache-2.0
"""Speed: each figure stands beside its bare building block, or a peer, of the same run.

Ratios decide, for machines differ; nothing here can fail a test. Read ``layer.py`` first.
"""
