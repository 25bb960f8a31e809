"""What messages and help are made of: phrases, values from files made harmless, URLs without secrets. Pure.

- `_phrases`: "3 tensors", "a, b and 3 more", and whether a message has a path.
- `_values`: sizes, shares and shapes as people read them, and text from files made harmless.
- `_secrets`: removes users, passwords and queries from URLs.
- `_same_arguments`: arguments that two functions share, explained once.
"""

from tensorkeep.texts._phrases import counted, has_path, listed
from tensorkeep.texts._same_arguments import same_arguments_as
from tensorkeep.texts._secrets import redacted, shown_url
from tensorkeep.texts._values import printable, shape_text, share_text, shortened, size_text, speed_text

__all__ = [
    "counted",
    "has_path",
    "listed",
    "printable",
    "redacted",
    "same_arguments_as",
    "shape_text",
    "share_text",
    "shortened",
    "shown_url",
    "size_text",
    "speed_text",
]
