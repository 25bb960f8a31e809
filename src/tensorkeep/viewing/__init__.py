"""Shows checkpoints in a browser: a page, and a server on this machine that reads what the page draws.

The files of the page are in `page/`: HTML, styles and scripts, as the browser gets them.

- `_json`: JSON as JavaScript reads it. Pure.
- `answers/`: what is shown of open checkpoints. Knows nothing of HTTP.
- `_query`: what a page asks for, checked. Pure.
- `_shelf`: what was given, and the checkpoints that are open in it.
- `_work`: long work in a thread, which reports progress and can be stopped.
- `_routes`: what each name below `api/` answers.
- `_failures`: errors as the page shows them. Pure.
- `_cache`: answers that took long, in bounded memory.
- `_streaming`: streams of long work.
- `_guard`: who may look. Pure.
- `_page`: reads the files of the page.
- `_replies`: replies to requests.
- `_viewer`: the server itself, over aiohttp, which is imported when a viewer is made.
"""

from tensorkeep.viewing._viewer import Viewer

__all__ = ["Viewer"]
