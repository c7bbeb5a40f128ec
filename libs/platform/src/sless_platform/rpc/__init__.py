"""gRPC servers and channels that speak typed errors and know who is calling."""

import os

# Read by gRPC's C core when it starts: its own default prints every connection that a peer closes, past our log.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
