"""gRPC servers and channels that speak typed errors and know who is calling."""
