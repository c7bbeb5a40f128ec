"""What the invoker does: routes, admission, calls."""
