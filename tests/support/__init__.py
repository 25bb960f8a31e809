"""What tests share: values, files, servers, and programs that they start as other processes."""

from pathlib import Path

SUPPORT = Path(__file__).parent
ROOT = SUPPORT.parents[1]
