"""The command line, and the embedded platform it can run."""
