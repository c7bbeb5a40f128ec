"""How calls are made and served: deadlines, more tries, cancellation, streams, restarts."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from sless_platform import tracing
from sless_platform.backoff import Backoff
from sless_platform.errors import (
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PlatformError,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
)
from sless_platform.identity import Principal
from sless_platform.logging import bind, bound
from sless_platform.rpc.client import NO_DEADLINE, RpcChannel, map_stream, mapped_errors
from sless_platform.rpc.server import RpcServer
from sless_platform.tracing import Trace

from tests.support.rpc import (
    ANYONE,
    METHODS,
    SERVICE,
    Echo,
    EchoStub,
    add_echo,
    drained,
    everywhere,
    outcome,
    running_echo,
    verifier,
)

QUICK = Backoff(timedelta(milliseconds=1), timedelta(milliseconds=1))


async def _never(_request: Any, _context: Any) -> bytes:
    await asyncio.Event().wait()
    raise AssertionError


async def _never_answers(_request: Any, _context: Any) -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


NEVER = Echo(Unary=_never, Requests=_never, Answers=_never_answers, Duplex=_never_answers)


@pytest.mark.parametrize("method", METHODS)
async def test_a_call_ends_at_the_deadline_it_was_given(method: str, tmp_path: Path) -> None:
    async with running_echo(NEVER, tmp_path) as running, running.channel() as channel:
        with pytest.raises(DeadlineExceeded, match="did not answer in time"):
            await outcome(EchoStub(channel.channel), method, timeout=0.05)


@pytest.mark.parametrize("method", METHODS)
async def test_a_call_without_a_deadline_has_the_channels(method: str, tmp_path: Path) -> None:
    default = timedelta(milliseconds=50)
    async with (
        running_echo(NEVER, tmp_path) as running,
        running.channel(timeout=default, stream_timeout=default) as channel,
    ):
        with pytest.raises(DeadlineExceeded):
            await outcome(EchoStub(channel.channel), method)


async def test_a_call_may_be_made_without_a_deadline(tmp_path: Path) -> None:
    left: list[float | None] = []

    async def unary(_request: bytes, context: Any) -> bytes:
        left.append(context.time_remaining())
        return b""

    async with running_echo(Echo(Unary=unary), tmp_path) as running, running.channel() as channel:
        await EchoStub(channel.channel).Unary(b"", timeout=NO_DEADLINE)
        await EchoStub(channel.channel).Unary(b"")
    assert left[0] is None or left[0] > 86_400
    assert left[1] is not None
    assert 5 < left[1] < 11


async def test_streams_of_answers_have_no_deadline_by_default(tmp_path: Path) -> None:
    left: list[float | None] = []

    async def answers(_request: Any, context: Any) -> AsyncIterator[bytes]:
        left.append(context.time_remaining())
        yield b""

    servicer = Echo(Answers=answers, Duplex=answers)
    async with running_echo(servicer, tmp_path) as running, running.channel() as channel:
        for method in ("Answers", "Duplex"):
            await outcome(EchoStub(channel.channel), method)
    assert all(seconds is None or seconds > 86_400 for seconds in left)
    assert len(left) == 2


class Flaky:
    """Fails the first times."""

    def __init__(self, error: PlatformError, failures: int) -> None:
        self.calls = 0
        self._error = error
        self._failures = failures

    def __call__(self) -> bytes:
        self.calls += 1
        if self.calls <= self._failures:
            raise self._error
        return b"done"


@pytest.mark.parametrize("method", ["Unary", "Answers"])
async def test_unavailable_is_tried_three_times(method: str, tmp_path: Path) -> None:
    passing, failing = Flaky(Unavailable("busy"), 2), Flaky(Unavailable("busy"), 3)
    for flaky in (passing, failing):
        async with (
            running_echo(everywhere(flaky), tmp_path) as running,
            running.channel(backoff=QUICK) as channel,
        ):
            if flaky is passing:
                assert await outcome(EchoStub(channel.channel), method) == b"done"
            else:
                with pytest.raises(Unavailable, match="busy"):
                    await outcome(EchoStub(channel.channel), method)
        assert flaky.calls == 3


@pytest.mark.parametrize("method", ["Requests", "Duplex"])
async def test_a_stream_of_requests_is_sent_once(method: str, tmp_path: Path) -> None:
    flaky = Flaky(Unavailable("busy"), 1)
    async with running_echo(everywhere(flaky), tmp_path) as running, running.channel(backoff=QUICK) as channel:
        with pytest.raises(Unavailable):
            await outcome(EchoStub(channel.channel), method)
    assert flaky.calls == 1


async def test_a_stream_that_has_answered_is_not_begun_again(tmp_path: Path) -> None:
    begun = 0

    async def answers(_request: Any, _context: Any) -> AsyncIterator[bytes]:
        nonlocal begun
        begun += 1
        yield b"1"
        raise Unavailable("gone")

    seen: list[bytes] = []
    async with (
        running_echo(Echo(Answers=answers), tmp_path) as running,
        running.channel(backoff=QUICK) as channel,
    ):
        with pytest.raises(Unavailable):
            await drained(EchoStub(channel.channel).Answers(b""), seen)
    assert (begun, seen) == (1, [b"1"])


@pytest.mark.parametrize(
    "error",
    [
        NotFound("no"),
        ResourceExhausted("full"),
        Unavailable("come back later", retry_after=timedelta(seconds=5)),
    ],
    ids=["not found", "exhausted", "unavailable for long"],
)
async def test_what_trying_again_at_once_cannot_mend_is_not_tried_again(error: PlatformError, tmp_path: Path) -> None:
    flaky = Flaky(error, 1)
    async with running_echo(everywhere(flaky), tmp_path) as running, running.channel(backoff=QUICK) as channel:
        with pytest.raises(type(error)):
            await EchoStub(channel.channel).Unary(b"")
    assert flaky.calls == 1


async def test_no_try_begins_after_the_deadline(tmp_path: Path) -> None:
    flaky = Flaky(Unavailable("busy"), 1)
    slow = Backoff(timedelta(seconds=30), timedelta(seconds=30))
    async with running_echo(everywhere(flaky), tmp_path) as running, running.channel(backoff=slow) as channel:
        with pytest.raises(Unavailable):
            await EchoStub(channel.channel).Unary(b"", timeout=5)
    assert flaky.calls == 1


async def test_a_service_that_is_not_there_is_unavailable_in_a_sentence(tmp_path: Path) -> None:
    async with RpcChannel(f"unix:{tmp_path}/nobody.sock", backoff=QUICK) as channel:
        with pytest.raises(Unavailable) as raised:
            await EchoStub(channel.channel).Unary(b"")
    assert raised.value.message == f"{SERVICE} cannot be reached now; try again"


@pytest.mark.parametrize("method", METHODS)
async def test_a_caller_that_goes_away_cancels_the_servicer(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def single(_request: Any, _context: Any) -> bytes:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
            raise
        raise AssertionError

    async def stream(_request: Any, _context: Any) -> AsyncIterator[bytes]:
        yield await single(_request, _context)

    caplog.set_level(logging.INFO)
    servicer = Echo(Unary=single, Requests=single, Answers=stream, Duplex=stream)
    async with running_echo(servicer, tmp_path) as running, running.channel() as channel:
        call = asyncio.create_task(outcome(EchoStub(channel.channel), method))
        async with asyncio.timeout(10):
            await begun.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await ended.wait()
    assert [record for record in caplog.records if record.levelno >= logging.INFO] == []


async def test_a_stream_that_is_left_closes_the_servicers_generator(tmp_path: Path) -> None:
    closed = asyncio.Event()

    async def answers(_request: Any, _context: Any) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"more"
                await asyncio.sleep(0)
        finally:
            closed.set()

    async with running_echo(Echo(Answers=answers), tmp_path) as running, running.channel() as channel:
        stream = EchoStub(channel.channel).Answers(b"")
        assert await stream.read() == b"more"
        assert stream.cancel()
        async with asyncio.timeout(10):
            await closed.wait()


async def test_a_duplex_call_writes_and_reads_in_turns(tmp_path: Path) -> None:
    async def duplex(requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request.upper()

    async with running_echo(Echo(Duplex=duplex), tmp_path) as running, running.channel() as channel:
        call = EchoStub(channel.channel).Duplex()
        for word in (b"a", b"b"):
            await call.write(word)
            assert await call.read() == word.upper()
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_a_servicer_may_read_and_write_by_its_context(tmp_path: Path) -> None:
    async def duplex(_requests: Any, context: Any) -> None:
        while (request := await context.read()) is not grpc.aio.EOF:
            await context.write(request * 2)

    async with running_echo(Echo(Duplex=duplex), tmp_path) as running, running.channel() as channel:
        assert await outcome(EchoStub(channel.channel), "Duplex") == b"xx"


async def test_a_write_to_a_call_that_is_over_raises_why(tmp_path: Path) -> None:
    async def requests(_requests: Any, _context: Any) -> bytes:
        raise FailedPrecondition("the upload is closed")

    async with running_echo(Echo(Requests=requests), tmp_path) as running, running.channel() as channel:
        call = EchoStub(channel.channel).Requests()
        async with asyncio.timeout(10):
            with pytest.raises(FailedPrecondition, match="the upload is closed"):
                await _write_for_ever(call)
        with pytest.raises(FailedPrecondition, match="the upload is closed"):
            await call


async def _write_for_ever(call: Any) -> None:
    while True:
        await call.write(b"chunk")


async def test_a_write_to_a_call_that_ended_well_says_so(tmp_path: Path) -> None:
    async def duplex(_requests: Any, _context: Any) -> AsyncIterator[bytes]:
        yield b"that is all"

    async with running_echo(Echo(Duplex=duplex), tmp_path) as running, running.channel() as channel:
        call = EchoStub(channel.channel).Duplex()
        assert await drained(call) == [b"that is all"]
        with pytest.raises(Cancelled, match="the other side has ended"):
            await call.write(b"more")


@pytest.mark.parametrize("method", ["Requests", "Duplex"])
@pytest.mark.parametrize("asynchronous", [True, False])
async def test_an_error_of_the_callers_own_iterator_is_raised_as_it_is(
    method: str, asynchronous: bool, tmp_path: Path
) -> None:
    async def source() -> AsyncIterator[bytes]:
        yield b"1"
        raise OSError("the disk is gone")

    def plain_source() -> Iterator[bytes]:
        yield b"1"
        raise OSError("the disk is gone")

    async def drain(requests: AsyncIterator[bytes], _context: Any) -> bytes:
        return b"".join([request async for request in requests])

    async def drain_stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        yield await drain(requests, context)

    servicer = Echo(Requests=drain, Duplex=drain_stream)
    async with running_echo(servicer, tmp_path) as running, running.channel() as channel:
        call = getattr(EchoStub(channel.channel), method)(source() if asynchronous else plain_source())
        with pytest.raises(OSError, match="the disk is gone"):
            await (call if method == "Requests" else call.read())


@pytest.mark.parametrize("method", METHODS)
async def test_the_trace_travels_on(tmp_path: Path, method: str) -> None:
    trace = Trace(f"00-{'a' * 32}-{'b' * 16}-00", "vendor=1,other=2")
    servicer = everywhere(lambda: repr(tracing.current()).encode())
    async with running_echo(servicer, tmp_path) as running, running.channel() as channel:
        with tracing.within(trace):
            assert await outcome(EchoStub(channel.channel), method) == repr(trace).encode()
        assert await outcome(EchoStub(channel.channel), method) == b"None"


@pytest.mark.parametrize("sent", ["nonsense", f"00-{'0' * 32}-{'b' * 16}-01"])
async def test_what_is_no_trace_is_not_gone_on_with(tmp_path: Path, sent: str) -> None:
    servicer = everywhere(lambda: repr(tracing.current()).encode())
    async with running_echo(servicer, tmp_path) as running, running.channel() as channel:
        metadata = (("traceparent", sent), ("tracestate", "a=1"))
        answer = await EchoStub(channel.channel).Unary(b"x", metadata=metadata)

    assert answer.startswith(b"Trace(traceparent='00-")
    assert answer.endswith(b"-01', tracestate='')")
    assert b"b" * 16 not in answer


async def test_a_trace_begins_with_a_caller_from_outside(tmp_path: Path) -> None:
    async def bearer(_token: str) -> Principal:
        return Principal("sub", "namespace", frozenset())

    servicer = everywhere(lambda: tracing.traceparent().encode())
    async with running_echo(servicer, tmp_path, bearer=bearer) as running, running.channel(identity=None) as channel:
        stub = EchoStub(channel.channel)
        metadata = (("authorization", "Bearer x"),)
        first, second = await stub.Unary(b"x", metadata=metadata), await stub.Unary(b"x", metadata=metadata)

    assert tracing.parse([first.decode()]) is not None
    assert first != second


async def test_a_request_id_travels_on(tmp_path: Path) -> None:
    async def unary(_request: bytes, _context: Any) -> bytes:
        return str(bound("request_id")).encode()

    async def call(stub: EchoStub) -> bytes:
        bind(request_id="r-42")
        answer: bytes = await stub.Unary(b"")
        return answer

    async with running_echo(Echo(Unary=unary), tmp_path) as running, running.channel() as channel:
        stub = EchoStub(channel.channel)
        assert await asyncio.create_task(call(stub)) == b"r-42"
        strange = (("x-request-id", "a b;c"),)
        assert len(await stub.Unary(b"", metadata=strange)) == 32


async def test_metadata_that_cannot_be_sent_is_the_callers_mistake(tmp_path: Path) -> None:
    async with running_echo(Echo(), tmp_path) as running, running.channel() as channel:
        for value in ("Bearer a\nb", "Bearer ключ"):
            with pytest.raises(InvalidArgument, match="authorization"):
                await EchoStub(channel.channel).Unary(b"", metadata=(("authorization", value),))


async def test_raw_calls_can_be_mapped(tmp_path: Path) -> None:
    def act() -> Any:
        raise NotFound("no widget")

    async with running_echo(everywhere(act), tmp_path) as running, grpc.aio.insecure_channel(running.target) as raw:
        stub: Any = EchoStub(raw)
        with pytest.raises(NotFound, match="no widget"):
            async with mapped_errors():
                await stub.Unary(b"")
        with pytest.raises(NotFound, match="no widget"):
            await drained(map_stream(stub.Answers(b"")))


async def test_an_unknown_method_is_unimplemented(tmp_path: Path) -> None:
    async with running_echo(Echo(), tmp_path) as running, running.channel() as channel:
        missing: Any = channel.channel.unary_unary(f"/{SERVICE}/Missing")
        with pytest.raises(Unimplemented):
            await missing(b"")


@pytest.mark.fault(31)
async def test_a_burst_of_calls_is_answered_whole(tmp_path: Path) -> None:
    """More than the core's own bound of 1,000 calls that wait for the server."""

    async def unary(request: bytes, _context: Any) -> bytes:
        return request

    patient = {"tries": 1, "timeout": timedelta(seconds=60)}
    async with running_echo(Echo(Unary=unary), tmp_path) as running, running.channel(**patient) as channel:
        stub = EchoStub(channel.channel)
        answers = await asyncio.gather(*(stub.Unary(b"%d" % number) for number in range(2_000)))
    assert answers == [b"%d" % number for number in range(2_000)]


async def test_a_message_that_is_too_large_is_resource_exhausted(tmp_path: Path) -> None:
    async def unary(request: bytes, _context: Any) -> bytes:
        return request

    async with running_echo(Echo(Unary=unary), tmp_path) as running, running.channel() as channel:
        with pytest.raises(ResourceExhausted):
            await EchoStub(channel.channel).Unary(bytes(5 * 1024 * 1024))


async def test_health_says_what_the_service_says(tmp_path: Path) -> None:
    async with running_echo(Echo(), tmp_path) as running, running.channel(identity=None) as channel:
        stub: Any = HealthStub(channel.channel)
        watch = stub.Watch(HealthCheckRequest())
        async with asyncio.timeout(10):
            assert (await watch.read()).status == HealthCheckResponse.NOT_SERVING
            running.server.health.set("", True)
            assert (await watch.read()).status == HealthCheckResponse.SERVING
        assert (await stub.Check(HealthCheckRequest())).status == HealthCheckResponse.SERVING
        running.server.health.set("database", False)
        check = await stub.Check(HealthCheckRequest(service="database"))
        assert check.status == HealthCheckResponse.NOT_SERVING
        with pytest.raises(NotFound):
            await stub.Check(HealthCheckRequest(service="unheard-of"))
        watch.cancel()


@pytest.mark.parametrize("reflection", [True, False])
async def test_reflection_is_a_setting(reflection: bool, tmp_path: Path) -> None:
    async def ask() -> AsyncIterator[ServerReflectionRequest]:
        yield ServerReflectionRequest(list_services="")

    async with (
        running_echo(Echo(), tmp_path, reflection=reflection) as running,
        running.channel(identity=None) as channel,
    ):
        stub: Any = ServerReflectionStub(channel.channel)
        call = stub.ServerReflectionInfo(ask())
        if reflection:
            answer = await call.read()
            assert SERVICE in [service.name for service in answer.list_services_response.service]
        else:
            with pytest.raises(Unimplemented):
                await call.read()


def _server(address: str, servicer: Echo) -> RpcServer:
    server = RpcServer(address, verifier=verifier())
    server.add(servicer, add_echo, SERVICE, ANYONE)
    return server


def _saying(text: bytes) -> Echo:
    async def unary(_request: bytes, _context: Any) -> bytes:
        return text

    return Echo(Unary=unary)


async def test_a_server_on_tcp_takes_a_free_port() -> None:
    server = _server("127.0.0.1:0", _saying(b"tcp"))
    await server.start()
    try:
        assert server.port > 0
        async with RpcChannel(f"127.0.0.1:{server.port}") as channel:
            assert await EchoStub(channel.channel).Unary(b"") == b"tcp"
        second = _server(f"127.0.0.1:{server.port}", Echo())
        with pytest.raises(FailedPrecondition, match="another process uses it"):
            await second.start()
    finally:
        await server.stop(timedelta())


async def test_a_channel_finds_a_server_that_was_restarted_on_its_path(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s.sock"
    async with RpcChannel(address) as channel:
        stub = EchoStub(channel.channel)
        slowest = 0.0
        for life in (b"1", b"2", b"3"):
            server = _server(address, _saying(life))
            await server.start()
            begun = time.monotonic()
            assert await stub.Unary(b"") == life
            slowest = max(slowest, time.monotonic() - begun)
            await server.stop(timedelta())
            assert not (tmp_path / "s.sock").exists()
            with suppress(Unavailable):
                await stub.Unary(b"", timeout=0.3)
    assert slowest < 5


async def test_a_call_survives_a_restart_that_is_quick(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s.sock"
    first, second = _server(address, _saying(b"1")), _server(address, _saying(b"2"))
    await first.start()
    async with RpcChannel(address) as channel:
        stub = EchoStub(channel.channel)
        assert await stub.Unary(b"") == b"1"
        await first.stop(timedelta())
        call = asyncio.create_task(stub.Unary(b""))
        await asyncio.sleep(0)
        await second.start()
        assert await call == b"2"
        await second.stop(timedelta())


async def test_a_socket_that_was_left_behind_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    server = _server(f"unix:{path}", _saying(b"new"))
    await server.start()
    async with RpcChannel(f"unix:{path}") as channel:
        assert await EchoStub(channel.channel).Unary(b"") == b"new"
    await server.stop(timedelta())
    assert not path.exists()


async def test_a_successor_waits_until_its_predecessor_is_gone(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s.sock"
    first, second = _server(address, _saying(b"1")), _server(address, _saying(b"2"))
    await first.start()
    starting = asyncio.create_task(second.start())
    async with RpcChannel(address) as channel:
        assert await EchoStub(channel.channel).Unary(b"") == b"1"
        assert not starting.done()
        await first.stop(timedelta())
        await starting
        assert await EchoStub(channel.channel).Unary(b"") == b"2"
    await second.stop(timedelta())


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    path.write_text("precious")
    with pytest.raises(FailedPrecondition, match="no socket"):
        await _server(f"unix:{path}", Echo()).start()
    assert path.read_text() == "precious"


async def test_addresses_that_cannot_be_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="longer than 107 bytes"):
        await _server(f"unix:{tmp_path}/{'x' * 107}", Echo()).start()
    with pytest.raises(FailedPrecondition, match="no folder"):
        await _server(f"unix:{tmp_path}/missing/s.sock", Echo()).start()


async def test_only_its_owner_may_connect_to_a_socket(tmp_path: Path) -> None:
    async with running_echo(Echo(), tmp_path):
        assert (tmp_path / "echo.sock").stat().st_mode & 0o777 == 0o600


async def test_a_stopping_server_lets_running_calls_end(tmp_path: Path) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def unary(_request: bytes, _context: Any) -> bytes:
        begun.set()
        await go_on.wait()
        return b"finished"

    async with running_echo(Echo(Unary=unary), tmp_path) as running, running.channel(tries=1) as channel:
        stub = EchoStub(channel.channel)
        call = asyncio.create_task(stub.Unary(b""))
        async with asyncio.timeout(10):
            await begun.wait()
            stopping = asyncio.create_task(running.server.stop(timedelta(seconds=10)))
            while not await _refused(stub):
                pass
            go_on.set()
            assert await call == b"finished"
            await stopping
        await running.server.stop(timedelta())


async def _refused(stub: EchoStub) -> bool:
    try:
        await stub.Unary(b"", timeout=0.05)
    except Unavailable:
        return True
    except DeadlineExceeded:
        return False
    return False


async def test_a_call_that_outlives_the_grace_is_cancelled(tmp_path: Path) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def unary(_request: bytes, _context: Any) -> bytes:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    async with running_echo(Echo(Unary=unary), tmp_path) as running, running.channel(tries=1) as channel:
        call = asyncio.create_task(EchoStub(channel.channel).Unary(b""))
        async with asyncio.timeout(10):
            await begun.wait()
            await running.server.stop(timedelta(milliseconds=10))
            await cancelled.wait()
            with pytest.raises(PlatformError):
                await call
