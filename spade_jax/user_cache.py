"""Where things that can be made again are kept between runs."""

import os
from pathlib import Path


def user_cache_dir() -> Path:
    """`$XDG_CACHE_HOME/spade_jax`, or `~/.cache/spade_jax`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spade_jax"
