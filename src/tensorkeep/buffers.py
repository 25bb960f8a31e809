"""What bytes are called when they are handed from one part to another."""

from __future__ import annotations

from mmap import mmap
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap
"""Contiguous bytes."""
