"""A platform of small fake services under the real supervisor, for tests of `sless up` and what belongs to it."""
