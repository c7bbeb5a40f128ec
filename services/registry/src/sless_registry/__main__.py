"""``python -m sless_registry``: runs the registry from the environment."""

from sless_registry.main import main

main()
