"""The repository, branch and folder that a URL of the Hub means. Pure.

hf://org/model                          hf://org/model@branch/folder
hf://datasets/org/name                  hf://org/model@refs/pr/7
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

import msgspec

from tensorkeep.errors import UnsupportedError
from tensorkeep.paths import is_inside

_TYPES: Final = {"models": "model", "datasets": "dataset", "spaces": "space"}

_match = re.compile(
    r"hf://(?:(?P<type>models|datasets|spaces)/)?(?P<id>[\w.-]+/[\w.-]+)"
    r"(?:@(?P<branch>refs/pr/[0-9]+|refs/convert/[\w.-]+|[^/]+))?(?:/(?P<folder>.*))?",
    re.ASCII,
).fullmatch


class HubAddress(msgspec.Struct, frozen=True):
    """Where something is on the Hub.

    Attributes:
        type: `"model"`, `"dataset"` or `"space"`.
        repo_id: Such as `org/model`.
        branch: The branch.
        folder: A folder of the repository, without slashes at its ends; empty for all of it.
    """

    type: str
    repo_id: str
    branch: str
    folder: str

    @classmethod
    def of(cls, url: str) -> HubAddress:
        """Parse a URL."""
        found = _match(url)
        folder = (found["folder"] or "").strip("/") if found else ""
        if found is None or found["id"].startswith("buckets/") or (folder and not is_inside(folder)):
            raise UnsupportedError(
                "not a repository of the Hub",
                path=url,
                expected="one such as hf://org/model or hf://org/model@branch",
            )
        type_ = _TYPES[found["type"] or "models"]
        return cls(type_, found["id"], unquote(found["branch"] or "main"), folder)

    def path_of(self, name: str) -> str:
        """Return the path in the repository of a file in the folder."""
        return f"{self.folder}/{name}" if self.folder else name

    def url_at(self, revision: str) -> str:
        """Return the URL of the folder in a commit."""
        prefix = "" if self.type == "model" else f"{self.type}s/"
        return f"hf://{prefix}{self.repo_id}@{revision}/{self.folder}"
