"""The registry's gRPC API."""
