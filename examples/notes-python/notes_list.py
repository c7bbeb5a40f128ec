"""Lists notes, newest first: ?limit= says how many (20, at most 100), ?before= an id to go on from."""

import database

_DEFAULT, _MOST = 20, 100


def handle(event):
    query = event["_query"] if isinstance(event, dict) else {}
    try:
        limit = min(_number(query, "limit", _DEFAULT), _MOST)
        before = _number(query, "before", 10**18 - 1)
    except ValueError as error:
        return {"statusCode": 400, "headers": {"Content-Type": "application/json"}, "body": {"error": str(error)}}
    with database.cursor() as cursor:
        cursor.execute("SELECT * FROM notes WHERE id < %s ORDER BY id DESC LIMIT %s", (before, limit))
        return {"notes": cursor.fetchall()}


def _number(query, name, default):
    value = query.get(name, str(default))
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise ValueError(f"{name} must be a number, not {value!r}")
    return int(value)
