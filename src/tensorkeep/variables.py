"""Environment variables that say whom to trust and which keys to use, for functions and commands alike."""

from __future__ import annotations

from typing import Final

TRUST: Final = "TENSORKEEP_TRUST"
"""Names the policy of whatever is opened without one."""

KEY: Final = "TENSORKEEP_KEY"
"""Is the key of what is encrypted, as text."""

KEY_FILE: Final = "TENSORKEEP_KEY_FILE"
"""Names the file with the key of what is encrypted."""

KEY_PASSWORD: Final = "TENSORKEEP_KEY_PASSWORD"  # noqa: S105 - the name of a variable
"""Is the password of the key to sign with."""
