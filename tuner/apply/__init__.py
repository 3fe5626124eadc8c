# SPDX-License-Identifier: MIT
"""From a result to a server: what to run there, what of the configuration it sets, and the undo."""
