"""python -m sless_runtime_manager"""

from sless_runtime_manager.main import main

main()
