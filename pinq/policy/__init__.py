# SPDX-License-Identifier: Apache-2.0
"""The provider's declarations: the policy and the YAML in which it is written.

The analyst's side needs none of it. Read ``policy.py`` first.
"""
