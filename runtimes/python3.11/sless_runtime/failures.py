"""What a failed call looks like: the error's text, the platform's error body, the traceback."""

from __future__ import annotations

from . import TYPE_CHECKING, jsontext

if TYPE_CHECKING:
    from types import TracebackType

_MESSAGE_CHARACTERS = 2000
_OWN = __file__.rpartition("/")[0] + "/"


def error_body(message: str, code: str, request_id: str, kind: str | None = None) -> bytes:
    """The platform's error body; `kind` is the exception's type of a HANDLER_ERROR."""
    body = {"error": message, "code": code}
    if kind is not None:
        body["type"] = kind
    return jsontext.encoded({**body, "request_id": request_id})


def message_of(error: BaseException) -> str:
    """The error's own text, of bounded length; also for errors that cannot be printed."""
    try:
        text = str(error)
    except BaseException as second:  # noqa: BLE001 - the user's __str__ may do anything
        text = f"its text cannot be made: {type(second).__name__}"
    return text if len(text) <= _MESSAGE_CHARACTERS else text[: _MESSAGE_CHARACTERS - 3] + "..."


def sentence_of(error: BaseException) -> str:
    """`ValueError: bad`, or the type alone where there is no text."""
    message = message_of(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def traceback_text(error: BaseException) -> str:
    """The traceback as Python prints it, without the frames of this package that stand above the user's."""
    return _text(error, _users(error.__traceback__))


def full_traceback(error: BaseException) -> str:
    """The traceback with all its frames, for faults of this package."""
    return _text(error, error.__traceback__)


def _text(error: BaseException, trace: TracebackType | None) -> str:
    try:
        import traceback

        return "".join(traceback.format_exception(type(error), error, trace))
    except Exception:  # noqa: BLE001 - a module of the user's may stand in for one that `traceback` imports
        return _plain_traceback(error, trace)


def _users(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without its leading frames of this package and of the import machinery."""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith((_OWN, "<frozen importlib")):
            break
        trace = trace.tb_next
    return trace


def _plain_traceback(error: BaseException, trace: TracebackType | None) -> str:
    lines = ["Traceback (most recent call last):"]
    while trace is not None:
        code = trace.tb_frame.f_code
        lines.append(f'  File "{code.co_filename}", line {trace.tb_lineno}, in {code.co_name}')
        trace = trace.tb_next
    return "\n".join((*lines, sentence_of(error), ""))
