"""What every service stands on: settings, errors, rpc, health, telemetry, postgres, object store."""
