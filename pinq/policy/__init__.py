# SPDX-License-Identifier: Apache-2.0
"""The provider's declarations: the policy and its YAML.

The analyst's side does not need them. Read ``policy.py`` first.
"""
