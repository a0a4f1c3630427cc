# SPDX-License-Identifier: Apache-2.0
"""One tree from several holders: the federation of their handles, and DP-TopDown."""
