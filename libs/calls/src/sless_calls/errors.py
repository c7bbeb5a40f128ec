"""What can go wrong between a caller and an instance."""


class CallError(Exception):
    """Base of all errors of this library; `str(error)` is a sentence."""


class NotReachable(CallError):
    """No connection: nothing listens there, it closed before its HELLO, or it is about to go."""


class LoadFailed(CallError):
    """The instance runs but could not load the user's code, and says why.

    Attributes:
        reason: `LOAD_FAILED`, or another reason in upper snake case.
        message: one sentence.
        detail: the end of the traceback; may be empty.
    """

    def __init__(self, reason: str, message: str, detail: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.detail = detail


class ProtocolMismatch(CallError):
    """Caller and instance have no version of the protocol in common."""


class NotSent(CallError):
    """Nothing of the call has left this process: it may safely go elsewhere."""


class Refused(CallError):
    """The instance is full or draining and did not begin the call: it may safely go elsewhere."""


class InstanceCrashed(CallError):
    """The socket closed after the call had been sent: whether it took effect is unknown."""


class InstanceSilent(CallError):
    """The deadline and five seconds more have passed (or an hour without a byte) and no last frame came."""


class ProtocolError(CallError):
    """The other side broke the protocol; the connection is closed and all its calls fail with this."""


class AnswerCut(CallError):
    """The answer's body ended with an error after its head had been sent, so it is not whole.

    Attributes:
        type: the error's type as the instance names it, such as `FUNCTION_TIMEOUT` or `ValueError`.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.type = kind


class CallCancelled(CallError):
    """This side cancelled the call and then asked for its answer."""
