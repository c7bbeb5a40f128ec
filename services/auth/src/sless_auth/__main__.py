"""python -m sless_auth"""

from sless_auth.main import main

main()
