"""aiohttp's server, without its own texts in answers to malformed requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from tensorkeep.errors import MissingDependencyError

if TYPE_CHECKING:
    from aiohttp import web

    Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def check_aiohttp(action: str) -> None:
    """Raise an error if aiohttp is missing; the extra that installs it has the name of the action."""
    try:
        import aiohttp  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f"aiohttp is needed to {action}", found=str(error), hint=f"pip install 'tensorkeep[{action}]'"
        ) from error


def terse_server(handler: Handler, headers: Mapping[str, str], **options: Any) -> web.Server:
    """Return a server for requests; its own refusals, of what is not HTTP, have these headers and no body.

    aiohttp's text would repeat the request, with the secret in its path.
    """
    from aiohttp import web

    class Protocol(web.RequestHandler):
        __slots__ = ()

        def handle_error(self, *arguments: Any, **named: Any) -> web.StreamResponse:
            refusal = super().handle_error(*arguments, **named)
            answer = web.Response(status=refusal.status, headers=headers)
            answer.force_close()
            return answer

    class Server(web.Server):
        def __call__(self) -> web.RequestHandler:
            protocol = super().__call__()
            protocol.__class__ = Protocol
            return protocol

    return Server(handler, access_log=None, **options)
