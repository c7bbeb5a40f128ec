"""python -m sless_gateway"""

from sless_gateway.main import main

main()
