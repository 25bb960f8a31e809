"""Where the servers are that fetches are tested with."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))  # nginx.py, fault_server.py
