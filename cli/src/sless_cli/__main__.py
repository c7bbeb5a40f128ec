"""`python -m sless_cli` is `sless`."""

from sless_cli.main import main

main()
