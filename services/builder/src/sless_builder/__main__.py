"""python -m sless_builder"""

from sless_builder.main import main

main()
