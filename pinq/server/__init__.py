# SPDX-License-Identifier: Apache-2.0
"""The wall for real: datasets behind HTTPS. ``app`` builds the application, ``run`` serves it."""
