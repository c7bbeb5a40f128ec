"""Greets whoever is named, in JSON or in the query: curl URL?name=you"""


def handle(event):
    name = event.get("name") or event["_query"].get("name") or "world"
    return {"message": f"Hello, {name}!"}
