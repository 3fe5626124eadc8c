# SPDX-License-Identifier: MIT
"""One trial: what it is, where it runs, and the access stream that it replays."""
