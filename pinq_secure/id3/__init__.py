# SPDX-License-Identifier: Apache-2.0
"""ID3 on shares of counts: the protocols SID3, SID3P, SID3T and SID3S of de Hoogh et al. (2014).

It contains the public facts of a computation, the rules of stops and splits, the sources of shared counts, and the
growth of public and secret trees, without parties, files and networks. Read ``task.py`` first, then ``rules.py``;
``tests/support/oracles/id3.py`` is the short reference for all results.
"""
