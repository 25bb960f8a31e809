"""What a push sent, or would send. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from tensorkeep.cli.terminal import Line, printable, size_text, speed_text
from tensorkeep.texts import counted

if TYPE_CHECKING:
    from tensorkeep.publishing import Push


class Published(msgspec.Struct, frozen=True):
    """A push, with how long it took in seconds."""

    push: Push
    seconds: float

    def lines(self, _width: int | None) -> Iterator[Line]:
        """Write what changed: every file of a dry run, and else numbers."""
        push = self.push
        if push.is_dry_run:
            yield from _file_lines(push)
        elif push.removed:
            yield [("removed ", ""), (", ".join(map(printable, push.removed)), "")]
        same = f", {counted(len(push.unchanged), 'file')} there already" if push.unchanged else ""
        kept = f", {', '.join(push.kept)} left as it is there" if push.kept else ""
        sent = f"{counted(len(push.sent), 'file')}, {size_text(push.nbytes)}" if push.sent else "nothing new"
        speed = f" in {speed_text(push.nbytes, self.seconds)}" if push.sent and not push.is_dry_run else ""
        doing = "would send" if push.is_dry_run else "pushed"
        yield [(f"{doing} ", ""), (push.url, "title"), (f": {sent}{speed}{same}{kept}", "")]
        if push.commit:
            yield [(f"commit {push.commit}", "dim")]

    def members(self) -> dict[str, object]:
        """Return the same for JSON."""
        return {**msgspec.structs.asdict(self.push), "nbytes": self.push.nbytes, "seconds": round(self.seconds, 3)}


def _file_lines(push: Push) -> Iterator[Line]:
    for name, nbytes in push.sent.items():
        yield [("send    ", "title"), (f"{printable(name)}  ", ""), (size_text(nbytes), "dim")]
    for name in push.removed:
        yield [("remove  ", "warning"), (printable(name), "")]
    for name in push.unchanged:
        yield [("there   ", "dim"), (printable(name), "dim")]
