"""python -m sless_invoker"""

from sless_invoker.main import main

main()
