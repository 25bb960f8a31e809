"""`tensorkeep serve`: a directory of checkpoints, over HTTP, from one box to all others."""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

import tensorkeep
from tensorkeep.cli.reports import AccessLog, served_line
from tensorkeep.cli.terminal import show, show_warning, size_text

if TYPE_CHECKING:
    from tensorkeep.server import Server


def serve(
    directory: Annotated[str, typer.Argument(metavar="DIRECTORY", help="What is served.", show_default=False)],
    *,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="NUMBER", help="0 takes any free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="TEXT", envvar="TENSORKEEP_TOKEN", help="What clients have to know."),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Let all read who can reach this machine, without a token.")
    ] = False,
    connections: Annotated[
        int,
        typer.Option("--connections", metavar="NUMBER", help="How many at a time."),
    ] = 512,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No line for each request.")] = False,
) -> None:
    """Serve a directory over HTTP.

    Wherever tensorkeep takes a path, it takes the URL of what is served; so do browsers and all other clients. What
    begins with a dot is not served, and nothing outside of the directory.

    Only this machine can connect, unless --host says otherwise; clients then have to know the token. Ctrl-C ends it.
    """
    tensorkeep.server.raise_descriptor_limit(connections)
    log = AccessLog()
    with tensorkeep.server.Server(
        directory, host=host, port=port, token=token, public=public, connections=connections, on_served=log.add
    ) as server:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, partial(_end, log))
        show([[("serving ", ""), (directory, "title"), (" at ", ""), (server.url, "module")]])
        _warn(server, connections, has_token=token is not None)
        for batch in log.batches():
            if not quiet:
                show(map(served_line, batch))
    requests = "1 request" if log.n_requests == 1 else f"{log.n_requests:,} requests"
    show([[(f"served {requests}, {size_text(log.nbytes)}", "dim")]])


def _end(log: AccessLog, number: int, _frame: object) -> None:
    """End when what is being printed is printed, or at once if somebody insists."""
    signal.signal(number, signal.default_int_handler)
    log.end()


def _warn(server: Server, connections: int, *, has_token: bool) -> None:
    if not server.is_local and not has_token:
        show_warning("all who can reach this machine can read the directory")
    elif not server.is_local:
        show_warning("the token and all bytes pass the network as they are: put a proxy that speaks https in front")
    if server.connections < connections:
        show_warning(f"the system gives descriptors for {server.connections:,} connections only")
