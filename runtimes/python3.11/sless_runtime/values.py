"""JSON of whatever a handler returns.

The common case is one pass of the C encoder. Only where that fails is the value rebuilt from plain ones:
non-finite numbers become null, odd keys become text, and a cycle is named.
"""

import binascii
import sys

from . import jsontext

_DEEPEST = 400
_PLAIN = (str, int, bool, type(None))


class InvalidAnswer(Exception):
    """What the handler returned cannot be an answer; `str()` is a sentence."""


def json_bytes(value: object) -> bytes:
    """`value` in JSON as `json.dumps(…, ensure_ascii=False)` writes it, in UTF-8.

    Raises InvalidAnswer where there is no JSON for it.
    """
    try:
        text = jsontext.dumps(value, plain)
    except (ValueError, TypeError, RecursionError):
        text = _dump_rebuilt(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Lone surrogates: in a JSON text every one of them stands in a string, where \udXXX is its escape.
        return text.encode("utf-8", "backslashreplace")


def plain(value: object) -> object:
    """One step from `value` towards what the encoder knows."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return binascii.b2a_base64(value, newline=False).decode()
    if isinstance(value, (set, frozenset)):
        return list(value)
    for convert in (_library_value, _by_own_method, _structure):
        found = convert(value)
        if found is not value:
            return found
    kind = type(value)
    raise InvalidAnswer(f"the answer holds a {kind.__module__}.{kind.__qualname__}, which has no JSON form")


def _library_value(value: object) -> object:
    """Values of modules that are loaded only if the user's code has loaded them."""
    for module, name in (("decimal", "Decimal"), ("uuid", "UUID"), ("pathlib", "PurePath"), ("datetime", "timedelta")):
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(value, kind):
            return str(value)
    enum = getattr(sys.modules.get("enum"), "Enum", None)
    if enum is not None and isinstance(value, enum):
        return getattr(value, "value")  # noqa: B009 - typed as object
    return value


def _by_own_method(value: object) -> object:
    """Dates, pydantic models (2 and 1), arrays and numbers of numpy, each by the method that says so."""
    if isinstance(value, type):
        return value
    for name in ("isoformat", "model_dump", "tolist", "dict", "_asdict"):
        method = getattr(value, name, None)
        if callable(method):
            return method()
    return value


def _structure(value: object) -> object:
    """Dataclasses, attrs classes, mappings and other collections."""
    if isinstance(value, type):
        return value
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is not None:
        return {name: getattr(value, name) for name in fields}
    attributes = getattr(value, "__attrs_attrs__", None)
    if attributes is not None:
        return {field.name: getattr(value, field.name) for field in attributes}
    if hasattr(value, "keys") and hasattr(value, "__getitem__"):
        return {key: value[key] for key in value.keys()}  # noqa: SIM118 - it need not be a dict
    if hasattr(value, "__iter__"):
        return list(value)
    return value


def _dump_rebuilt(value: object) -> str:
    try:
        return jsontext.dumps(_rebuilt(value, []), plain)
    except RecursionError:
        raise InvalidAnswer("the answer is nested too deeply for JSON") from None
    except (ValueError, TypeError) as error:
        raise InvalidAnswer(f"the answer has no JSON form: {error}") from error


def _rebuilt(value: object, above: list[object]) -> object:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, _PLAIN):
        return value
    if any(container is value for container in above):
        raise InvalidAnswer(f"the answer holds a {type(value).__name__} that contains itself")
    if len(above) > _DEEPEST:
        raise InvalidAnswer(f"the answer is nested more than {_DEEPEST} levels deep")
    above.append(value)
    try:
        if isinstance(value, dict):
            return {_key(key): _rebuilt(item, above) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [_rebuilt(item, above) for item in value]
        return _rebuilt(plain(value), above)
    finally:
        above.pop()


def _key(key: object) -> object:
    """A dictionary's key as the encoder takes it."""
    if isinstance(key, float):
        return key if key - key == 0 else None
    if isinstance(key, _PLAIN):
        return key
    try:
        simple = plain(key)
    except InvalidAnswer:
        return str(key)
    return _key(simple) if not isinstance(simple, (list, dict)) else str(key)
