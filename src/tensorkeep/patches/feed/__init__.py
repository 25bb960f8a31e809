"""A training run as anchors and patches in a directory, which others follow from where it is served.

- `_index`: which steps there are. Pure.
- `_publish`: `Publisher`, which adds steps and removes old ones.
- `_follow`: `follow`, which gives new steps as they come.
"""

from tensorkeep.patches.feed._follow import Follower, Update, follow
from tensorkeep.patches.feed._publish import Publisher

__all__ = ["Follower", "Publisher", "Update", "follow"]
