"""One call's rules, on a wire that only remembers."""

import asyncio
import struct

import pytest
from sless_calls import frames
from sless_calls.call import GUARD_SEC, QUIET_SEC, Call
from sless_calls.errors import AnswerCut, CallCancelled, InstanceCrashed, ProtocolError, Refused
from sless_calls.heads import LogLine


class Wire:
    """A connection that keeps what was written."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, bytes]] = []
        self.ended: list[int] = []
        self.doubts = 0
        self.time = 100.0
        self._parser = frames.FrameParser(lambda *frame: self.sent.append(frame))

    def transmit(self, data: bytes) -> None:
        self._parser.feed(bytes(data))

    async def writable(self) -> None:
        return

    def finished(self, call_id: int) -> None:
        self.ended.append(call_id)

    def doubt(self) -> None:
        self.doubts += 1

    def watch(self, call: Call) -> None:
        assert call.due

    def now(self) -> float:
        return self.time

    def kinds(self) -> list[int]:
        return [kind for kind, _, _ in self.sent]


def new_call(wire: Wire, deadline_ms: int | None = None) -> Call:
    return Call(wire, 1, deadline_ms, None)


def reply(head: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(head)) + head + body


WHOLE = reply(b'{"status": 200, "end": true}', b"all")
BEGUN = reply(b'{"status": 200, "end": false}', b"a")
CUT = reply(b'{"status": 500, "end": true, "error": {"type": "ValueError", "message": "bad"}}')


async def test_a_plain_answer_is_its_first_body() -> None:
    wire = Wire()
    call = new_call(wire)
    call.on_reply(WHOLE)
    assert (await call.reply()).status == 200
    assert (call.first_body, await call.read(), call.over) == (b"all", b"all", True)
    assert wire.ended == [1]


async def test_a_body_comes_in_pieces_and_credit_goes_back_in_steps() -> None:
    wire = Wire()
    call = new_call(wire)
    call.on_reply(BEGUN)
    quarter = b"x" * (frames.WINDOW // 4)
    body = call.body()
    assert await anext(body) == b"a"
    for _ in range(10):
        call.on_body(quarter)
        assert await anext(body) == quarter
    granted = [frames.credit_of(payload) for kind, _, payload in wire.sent if kind == frames.CREDIT]
    assert sum(granted) == 1 + 9 * len(quarter), "what the reader holds is not granted again yet"
    assert min(granted) >= len(quarter)
    call.on_end()
    assert [piece async for piece in body] == []


async def test_an_instance_may_not_send_more_than_its_credit() -> None:
    call = new_call(Wire())
    call.on_reply(BEGUN)
    for _ in range(3):
        call.on_body(b"x" * frames.MAX_BODY)
    call.on_body(b"x" * (frames.MAX_BODY - 1))
    with pytest.raises(ProtocolError, match="credit"):
        call.on_body(b"x")


async def test_leaving_a_body_early_cancels_the_call() -> None:
    wire = Wire()
    call = new_call(wire)
    call.on_reply(BEGUN)
    body = call.body()
    assert await anext(body) == b"a"
    await body.aclose()  # type: ignore[attr-defined]
    assert wire.kinds() == [frames.CANCEL]
    assert not call.over, "it counts until its last frame"
    call.on_end()
    assert call.over


async def test_an_error_after_the_head_cuts_the_body() -> None:
    call = new_call(Wire())
    call.on_reply(BEGUN)
    call.on_body(b"b")
    call.on_reply(CUT)
    body = call.body()
    assert [await anext(body), await anext(body)] == [b"a", b"b"]
    with pytest.raises(AnswerCut, match="bad") as caught:
        await anext(body)
    assert caught.value.type == "ValueError"


async def test_a_refusal_is_told_as_one() -> None:
    call = new_call(Wire())
    call.on_reply(reply(b'{"status": 503, "end": true, "retry": true}'))
    with pytest.raises(Refused):
        await call.reply()


async def test_a_crash_wakes_who_waits() -> None:
    call = new_call(Wire())
    waiting = asyncio.create_task(call.reply())
    await asyncio.sleep(0)
    call.finish(InstanceCrashed("gone"))
    with pytest.raises(InstanceCrashed):
        await waiting


async def test_a_cancelled_waiter_cancels_the_call() -> None:
    wire = Wire()
    call = new_call(wire)
    waiting = asyncio.create_task(call.reply())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert wire.kinds() == [frames.CANCEL]
    with pytest.raises(CallCancelled):
        await call.reply()
    call.cancel()
    assert wire.kinds() == [frames.CANCEL], "once is enough"


async def test_a_context_that_is_left_cancels_an_open_call_and_no_other() -> None:
    wire = Wire()
    with new_call(wire):
        pass
    assert wire.kinds() == [frames.CANCEL]
    with new_call(wire) as call:
        call.on_reply(WHOLE)
    assert wire.kinds() == [frames.CANCEL]


async def test_a_call_is_due_five_seconds_after_its_deadline() -> None:
    wire = Wire()
    assert new_call(wire, 2_000).due == wire.time + 2 + GUARD_SEC


async def test_a_call_without_a_deadline_is_due_after_an_hour_of_silence() -> None:
    wire = Wire()
    call = new_call(wire)
    assert call.due == wire.time + QUIET_SEC
    wire.time += 3000
    call.on_reply(BEGUN)
    assert call.due == wire.time + QUIET_SEC
    call.cancel()
    assert call.due == wire.time + GUARD_SEC


async def test_lines_are_kept_or_given_to_a_callback() -> None:
    line = b'[{"ts": 5, "stream": "stdout", "level": "info", "text": "hi"}]'
    kept = new_call(Wire())
    kept.on_log(line)
    assert kept.logs == [LogLine(5, "stdout", "info", "hi")]
    taken: list[LogLine] = []
    given = Call(Wire(), 1, None, taken.extend)
    given.on_log(line)
    assert (given.logs, taken) == ([], [LogLine(5, "stdout", "info", "hi")])


def begin_upload(wire: Wire, rest: bytes, *, sent: int, end: bool) -> Call:
    call = new_call(wire)
    call.begin_upload(memoryview(rest), sent=sent, end=end)
    return call


def uploaded(wire: Wire) -> int:
    return sum(len(payload) for kind, _, payload in wire.sent if kind == frames.BODY)


async def test_a_large_body_follows_by_itself_as_credit_comes() -> None:
    wire = Wire()
    call = begin_upload(wire, b"x" * (2 * frames.WINDOW), sent=frames.MAX_BODY, end=True)
    assert uploaded(wire) == frames.WINDOW - frames.MAX_BODY
    call.on_credit(frames.WINDOW)
    assert uploaded(wire) == 2 * frames.WINDOW - frames.MAX_BODY
    assert frames.END not in wire.kinds()
    call.on_credit(frames.MAX_BODY)
    assert uploaded(wire) == 2 * frames.WINDOW
    assert wire.kinds()[-1] == frames.END
    assert max(len(payload) for _, _, payload in wire.sent) <= frames.MAX_BODY


async def test_send_waits_for_credit_and_goes_on_with_it() -> None:
    wire = Wire()
    call = begin_upload(wire, b"", sent=0, end=False)
    sending = asyncio.create_task(call.send(b"x" * (frames.WINDOW + 10)))
    await asyncio.sleep(0)
    assert not sending.done()
    assert uploaded(wire) == frames.WINDOW
    call.on_credit(100)
    await sending
    call.end()
    assert uploaded(wire) == frames.WINDOW + 10
    assert wire.kinds()[-1] == frames.END


async def test_send_returns_when_the_answer_is_complete_already() -> None:
    wire = Wire()
    call = begin_upload(wire, b"", sent=0, end=False)
    sending = asyncio.create_task(call.send(b"x" * (2 * frames.WINDOW)))
    await asyncio.sleep(0)
    call.on_reply(WHOLE)
    await sending
    call.end()
    assert frames.END not in wire.kinds()


async def test_nothing_is_sent_after_the_end_or_without_a_beginning() -> None:
    call = begin_upload(Wire(), b"", sent=0, end=False)
    call.end()
    with pytest.raises(RuntimeError, match="ended"):
        await call.send(b"x")
    with pytest.raises(RuntimeError, match="whole body"):
        await new_call(Wire()).send(b"x")


async def test_a_cancelled_sender_cancels_the_call() -> None:
    wire = Wire()
    call = begin_upload(wire, b"", sent=frames.WINDOW, end=False)
    sending = asyncio.create_task(call.send(b"x"))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert wire.kinds() == [frames.CANCEL]


@pytest.mark.parametrize(("kind", "doubts"), [("FUNCTION_TIMEOUT", 1), ("ValueError", 0)])
async def test_an_instance_that_ended_a_call_at_its_deadline_is_doubted(kind: str, doubts: int) -> None:
    wire = Wire()
    call = new_call(wire)

    call.on_reply(reply(b'{"status": 504, "end": true, "error": {"type": "%s", "message": ""}}' % kind.encode()))

    assert wire.doubts == doubts
    assert call.over
