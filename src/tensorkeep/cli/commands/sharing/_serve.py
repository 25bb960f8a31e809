"""`tensorkeep serve`: serve a directory of checkpoints over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import tensorkeep
from tensorkeep.cli.reports import AccessLog, served_line
from tensorkeep.cli.terminal import call_on_signal, show, show_warning, size_text
from tensorkeep.texts import counted

if TYPE_CHECKING:
    from tensorkeep.server import Server


def serve(
    directory: Annotated[
        str, typer.Argument(metavar="DIRECTORY", help="The directory to serve.", show_default=False)
    ],
    *,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="NUMBER", help="The port; 0 takes any free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="TEXT", envvar="TENSORKEEP_TOKEN", help="A secret that clients must send."),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Let everyone who can reach this machine read, without a token.")
    ] = False,
    connections: Annotated[
        int,
        typer.Option("--connections", metavar="NUMBER", help="The maximum number of connections at a time."),
    ] = 512,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print a line for each request.")] = False,
) -> None:
    """Serve a directory over HTTP.

    tensorkeep takes the URL of a served checkpoint wherever it takes a path; browsers and other clients can read it
    too. Names that begin with a dot, and anything outside the directory, are not served.

    Only this machine can connect, unless --host says otherwise; clients then need the token. Ctrl-C stops the server.
    """
    tensorkeep.server.raise_descriptor_limit(connections)
    log = AccessLog()
    with tensorkeep.server.Server(
        directory, host=host, port=port, token=token, public=public, connections=connections, on_served=log.add
    ) as server:
        call_on_signal(log.end)  # the current batch is still printed
        show([[("serving ", ""), (directory, "title"), (" at ", ""), (server.url, "module")]])
        _warn(server, connections, has_token=token is not None)
        for batch in log.batches():
            if not quiet:
                show(map(served_line, batch))
    show([[(f"served {counted(log.n_requests, 'request')}, {size_text(log.nbytes)}", "dim")]])


def _warn(server: Server, connections: int, *, has_token: bool) -> None:
    if not server.is_local and not has_token:
        show_warning("everyone who can reach this machine can read the directory")
    elif not server.is_local:
        show_warning("the token and all data cross the network unencrypted: put an HTTPS proxy in front")
    if server.connections < connections:
        show_warning(f"the system's limit on open files allows only {server.connections:,} connections")
