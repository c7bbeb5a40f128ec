"""Between messages and the domain."""

from __future__ import annotations

from datetime import datetime

from sless.invoker.v1 import invoker_pb2
from sless.registry.v1 import registry_pb2
from sless_calls.ids import new_invocation_id

from sless_invoker.domain import Call, Kind, Reply, Trigger
from sless_invoker.errors import CallMalformed

_TRIGGERS = {invoker_pb2.TRIGGER_HTTP: Trigger.HTTP, invoker_pb2.TRIGGER_INVOKE: Trigger.INVOKE}
_KINDS = {
    registry_pb2.FUNCTION_KIND_UNSPECIFIED: None,
    registry_pb2.FUNCTION_KIND_FUNCTION: Kind.FUNCTION,
    registry_pb2.FUNCTION_KIND_SERVICE: Kind.SERVICE,
}
MAX_CHUNK_BYTES = 256 * 1024


def call_of(head: invoker_pb2.CallHead, *, owner_authenticated: bool, now: datetime) -> Call:
    """The call that a head describes. Raises CallMalformed."""
    trigger = _TRIGGERS.get(head.trigger)
    if trigger is None:
        raise CallMalformed(f"trigger must be HTTP or INVOKE, not {head.trigger}", field="head.trigger")
    if head.kind not in _KINDS:
        raise CallMalformed(f"kind must be FUNCTION or SERVICE, or unspecified, not {head.kind}", field="head.kind")
    for field in ("namespace", "name", "method"):
        if not getattr(head, field):
            raise CallMalformed(f"{field} must not be empty", field=f"head.{field}")
    return Call(
        namespace=head.namespace,
        name=head.name,
        kind=_KINDS[head.kind],
        trigger=trigger,
        method=head.method,
        path=head.path or "/",
        query=head.query,
        headers=tuple((header.name, header.value) for header in head.headers),
        request_id=head.request_id or head.invocation_id,
        invocation_id=head.invocation_id or new_invocation_id(now),
        owner_authenticated=owner_authenticated,
    )


def reply_head(reply: Reply, call: Call) -> invoker_pb2.ReplyHead:
    """The message of an answer's head."""
    message = invoker_pb2.ReplyHead(
        status=reply.status,
        headers=[invoker_pb2.Header(name=name, value=value) for name, value in reply.headers],
        invocation_id=call.invocation_id,
        cold=reply.cold,
        version=reply.version,
        first_body=reply.first,
        end=reply.complete,
    )
    if reply.handler_duration is not None:
        message.handler_duration.FromTimedelta(reply.handler_duration)
    return message
