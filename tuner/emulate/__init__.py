# SPDX-License-Identifier: MIT
"""The emulated machine: a whole computer with two memory tiers and a real kernel, in QEMU's virtual
time (docs/emulated.md)."""
