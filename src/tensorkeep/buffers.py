"""The type of bytes that modules pass to each other."""

from __future__ import annotations

from mmap import mmap
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap
"""Contiguous bytes."""
