"""What every service stands on: settings, errors, rpc, health, telemetry, postgres, object store."""

import os

# Read when `grpc` is imported, after this as a rule: by its own default the C core prints connections that a peer closes,
# past our log.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
