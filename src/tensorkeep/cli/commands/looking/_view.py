"""`tensorkeep view`: look at a checkpoint in a browser."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from typing import Annotated, Final

import typer

import tensorkeep
from tensorkeep.cli.inputs import Engine, KeyOptions, Variant
from tensorkeep.cli.terminal import call_on_signal, show, show_warning

_LOOK_EVERY_S: Final = 0.5
"""A signal that comes just before the wait does not end it."""


def view(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH_OR_URL",
            help="A file of tensors, a directory, an index, or the directory of a CheckpointStore.",
            show_default=False,
        ),
    ],
    other: Annotated[
        str | None,
        typer.Argument(metavar="OTHER", help="A second one, to compare with the first.", show_default=False),
    ] = None,
    *,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser, or only print its address.")
    ] = True,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="NUMBER", help="The port; 0 takes any free one.")] = 0,
    variant: Variant = None,
    engine: Engine = None,
    key: KeyOptions,
) -> None:
    """Look at a checkpoint in a browser.

    The page shows the tree of tensors, statistics, histograms and heatmaps of their numbers, what else was saved, and
    how two checkpoints or two steps of a store differ. At first, only headers are read; later, only the parts of
    tensors that the page shows. Nothing is changed, and nothing from a file is run.

    The address holds a secret; nobody can look without it. Ctrl-C stops the viewer.
    """
    with tensorkeep.viewing.Viewer(
        path, other, host=host, port=port, variant=variant, engine=engine, key=key.keys()
    ) as viewer:
        is_over = threading.Event()
        call_on_signal(is_over.set)
        show([[("viewing at ", ""), (viewer.url, "module")]])
        if not viewer.is_local:
            show_warning("everyone who sees the address can look, and it crosses the network unencrypted")
        if browser and _has_browser():
            threading.Thread(target=webbrowser.open, args=(viewer.url,), daemon=True).start()
        while not is_over.wait(_LOOK_EVERY_S):
            pass


def _has_browser() -> bool:
    """Say whether a browser would have a window of its own; one for text would take over the terminal."""
    return sys.platform in {"win32", "darwin"} or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
