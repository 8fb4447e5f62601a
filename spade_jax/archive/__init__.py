"""Every episode of a run with its tokens, kept as zarr: to look at, to measure, to train from again."""
