# SPDX-License-Identifier: MIT
"""Where promotion helps and where it hurts: maps of policies over first-touch, and a rule."""
