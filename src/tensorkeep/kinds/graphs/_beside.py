"""`FilesBeside`: the files that a file names, opened only if they are below its own directory."""

from __future__ import annotations

import os
from contextlib import ExitStack

from tensorkeep.errors import SourceMissingError, UnsupportedError
from tensorkeep.kinds.base import Place
from tensorkeep.paths import is_inside
from tensorkeep.transport import ByteSource, is_remote, join, open_source, split


class FilesBeside:
    """The files that one file names, each opened once; `files` closes them if the reading fails.

    A name is a path with `/` between its parts. It leads below the directory of the file that names it, and links do
    not lead out of there, except to where that file is itself linked from, as in the cache of the Hugging Face Hub.
    """

    def __init__(self, place: Place, files: ExitStack) -> None:
        self._place = place
        self._files = files
        self._opened: dict[str, ByteSource] = {}

    @property
    def opened(self) -> dict[str, ByteSource]:
        """Name to file, as a new dict."""
        return dict(self._opened)

    def open(self, name: str) -> ByteSource:
        """Open a file by its name, or return it if it is open already."""
        if name not in self._opened:
            path = self._path(name)
            try:
                source = self._opened[name] = open_source(path, backend=self._place.backend)
            except (SourceMissingError, FileNotFoundError):
                message = f"a file with tensors of {split(self._place.path or '')[1]} is missing"
                raise SourceMissingError(message, path=path, hint="Get it too, and keep both together") from None
            self._files.callback(source.close)
        return self._opened[name]

    def _path(self, name: str) -> str:
        own = self._place.path
        if own is None:
            raise UnsupportedError(
                "tensors are in another file, which bytes and file objects do not lead to",
                found=name,
                hint="Open it by its path or URL",
            )
        if not is_inside(name):
            raise UnsupportedError(
                "tensors are in a file that is not below the directory of the one that names it",
                path=own,
                expected="a relative path without .. and without characters that are special on some system",
                found=name,
            )
        directory = split(own)[0]
        path = join(directory, name)
        if not is_remote(own):
            homes = [
                os.path.join(os.path.realpath(home), "") for home in (directory, split(os.path.realpath(own))[0])
            ]
            if not os.path.realpath(path).startswith(tuple(homes)):
                raise UnsupportedError(
                    "tensors are in a file that is a link out of the directory",
                    path=own,
                    found=f"{name} -> {os.path.realpath(path)}",
                )
        return path
