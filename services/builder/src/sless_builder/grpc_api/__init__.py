"""The gRPC API: convert, call, convert."""
