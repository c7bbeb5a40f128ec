"""What runs inside a function's instance: it loads the user's code and answers calls by the instance protocol.

Standard library only, and as little of it as can be at start: `json`, `re`, `typing`, `traceback`, `logging`
and `asyncio` cost more to import than the rest of a start takes. README.md beside this package says what was
measured.
"""

RUNTIME = "python3.11"
PROTOCOL = 1
TYPE_CHECKING = False
