"""`make bench`: figures of the whole platform, each beside its peer in the same run."""
