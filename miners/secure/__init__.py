# SPDX-License-Identifier: Apache-2.0
"""ID3 among parties that trust no one."""
