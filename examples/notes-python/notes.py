"""Keeps notes: /add, /update and /delete, their fields in the query or in the body."""

import database


def handle(event):
    if not isinstance(event, dict):
        return _failed(400, "send the fields as an object, as a form, or in the query")
    action = _ACTIONS.get(event["_path"].strip("/"))
    if action is None:
        return _failed(404, f"there is no {event['_path']}: use /add, /update or /delete")
    sent = {name: value for name, value in event.items() if not name.startswith("_")}
    try:
        return action({**event["_query"], **sent})
    except ValueError as error:
        return _failed(400, str(error))


def _add(fields):
    title = _text(fields, "title")
    with database.cursor() as cursor:
        cursor.execute(
            "INSERT INTO notes (title, body) VALUES (%s, %s) RETURNING *", (title, str(fields.get("body", "")))
        )
        return _answer(201, cursor.fetchone())


def _update(fields):
    number, title, body = _number(fields), fields.get("title"), fields.get("body")
    if title is None and body is None:
        raise ValueError("nothing to change: send title, body, or both")
    with database.cursor() as cursor:
        cursor.execute(
            "UPDATE notes SET title = coalesce(%s, title), body = coalesce(%s, body), updated_at = now()"
            " WHERE id = %s RETURNING *",
            (_text(fields, "title") if title is not None else None, None if body is None else str(body), number),
        )
        return _found(cursor.fetchone(), number)


def _delete(fields):
    number = _number(fields)
    with database.cursor() as cursor:
        cursor.execute("DELETE FROM notes WHERE id = %s RETURNING *", (number,))
        return _found(cursor.fetchone(), number)


_ACTIONS = {"add": _add, "update": _update, "delete": _delete}


def _text(fields, name):
    value = fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be a text that is not empty")
    return value


def _number(fields):
    value = str(fields.get("id", ""))
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise ValueError(f"id must be the number of a note, not {value!r}")
    return int(value)


def _found(note, number):
    return _answer(200, note) if note else _failed(404, f"there is no note {number}")


def _answer(status, body):
    return {"statusCode": status, "headers": {"Content-Type": "application/json"}, "body": body}


def _failed(status, sentence):
    return _answer(status, {"error": sentence})
