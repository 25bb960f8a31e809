"""Runs a script as one rank of many, and ends before the interpreter would: `as_rank.py SCRIPT ARGUMENTS...`.

A thread of gloo lives on when its process group is destroyed. If it lets go of the last tensor it had while the
interpreter ends, it asks for the interpreter's lock, and the process is aborted, with "terminate called without an
active exception", when all is done (torch 2.13, `ProcessGroupGloo::runLoop`). That is rare, and no fault of the
script.
"""

import os
import runpy
import sys
from pathlib import Path

sys.argv = sys.argv[1:]
sys.path[0] = str(Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
