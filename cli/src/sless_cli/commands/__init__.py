"""The commands of `sless`, one module a noun; each has a click command named `command`."""
