"""A training run as anchors and patches in a directory or a bucket, which others follow from where it is served.

- `_index`: which steps there are. Pure.
- `_place`: a directory, or a bucket.
- `_publish`: `Publisher`, which adds steps and removes old ones.
- `_follow`: `follow`, which gives new steps as they come.
"""

from tensorkeep.patches.feed._follow import Follower, NoFeedWarning, Update, follow
from tensorkeep.patches.feed._publish import Publisher

__all__ = ["Follower", "NoFeedWarning", "Publisher", "Update", "follow"]
