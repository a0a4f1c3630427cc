# SPDX-License-Identifier: Apache-2.0
"""ID3 on shares of counts: the protocols SID3, SID3P, SID3T and SID3S of de Hoogh et al. (2014).

It knows the public facts of a computation, when a node stops and how it splits, where shared counts
come from, and how the tree grows, public or secret. Parties, files and networks are not its
matter. Read ``task.py`` first, then ``rules.py``; ``tests/support/oracles/id3.py`` says in
few lines what all must equal.
"""
