"""The caller's side of the instance protocol.

`Connection.open` gives a connection to one instance, `Connection.call` a `Call` on it; `InstanceSet` keeps the
connections to all instances of a function and chooses among them. `sless_calls.headers` says which header
fields pass. The protocol's reference is runtimes/contract/README.md.
"""

from sless_calls.call import Call
from sless_calls.connection import Connection
from sless_calls.errors import (
    AnswerCut,
    CallCancelled,
    CallError,
    InstanceCrashed,
    InstanceSilent,
    LoadFailed,
    NotReachable,
    NotSent,
    ProtocolError,
    ProtocolMismatch,
    Refused,
)
from sless_calls.heads import CallHead, InstanceHello, LogLine, ReplyError, ReplyHead
from sless_calls.pool import InstanceAddress, InstanceSet

__all__ = [
    "AnswerCut",
    "Call",
    "CallCancelled",
    "CallError",
    "CallHead",
    "Connection",
    "InstanceAddress",
    "InstanceCrashed",
    "InstanceHello",
    "InstanceSet",
    "InstanceSilent",
    "LoadFailed",
    "LogLine",
    "NotReachable",
    "NotSent",
    "ProtocolError",
    "ProtocolMismatch",
    "Refused",
    "ReplyError",
    "ReplyHead",
]
