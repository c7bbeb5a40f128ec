"""The public HTTP edge: REST and function URLs."""
