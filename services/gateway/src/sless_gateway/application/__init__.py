"""What the gateway does, without HTTP: who is calling, functions, uploads, calls."""
