"""What the registry does: one module a group of RPCs, one method an RPC."""
