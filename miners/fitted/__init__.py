# SPDX-License-Identifier: Apache-2.0
"""What was learned: trees, of classes or of means, and forests of them; their pictures, arrays and JSON. Nothing here asks for anything."""
