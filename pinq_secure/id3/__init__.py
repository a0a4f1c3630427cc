# SPDX-License-Identifier: Apache-2.0
"""ID3 on shares of counts: the protocols SID3, SID3P, SID3T and SID3S of de Hoogh et al. (2014).

Read ``task.py`` first, then ``public_tree.py``; ``tests/support/oracles/id3.py`` is the short reference for all
results.
"""
