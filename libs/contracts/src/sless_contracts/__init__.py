"""Contracts of sless: generated gRPC stubs, limits and the catalogue of runtimes."""
