"""sless.runtime_manager.v1 over gRPC."""
