"""The other services, over gRPC."""
