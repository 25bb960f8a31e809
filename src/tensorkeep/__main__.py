"""The command line, as `tensorkeep` and as `python -m tensorkeep`; without the extra `cli`, how to install it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

try:
    from tensorkeep.cli import main
except ModuleNotFoundError as error:
    _MISSING = (error.name or "").partition(".")[0]
    if _MISSING not in {"typer", "rich"}:
        raise

    def main(arguments: Sequence[str] | None = None) -> int:  # noqa: ARG001
        """Say how to install the command line."""
        sys.stderr.write(
            f"error: the command line needs {_MISSING}, which is not installed. "
            "Install it: pip install 'tensorkeep[cli]'\n"
        )
        return 2


if __name__ == "__main__":
    sys.exit(main())
