"""W3C Trace Context, as the standard's own examples and rules have it."""

from __future__ import annotations

import asyncio

import pytest
from sless_platform import tracing
from sless_platform.tracing import Trace, parse

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
SENT = f"00-{TRACE}-{SPAN}-01"


def test_what_was_sent_is_gone_on_with() -> None:
    trace = parse([SENT], ["congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"])

    assert trace == Trace(SENT, "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7")
    assert (trace.trace_id, trace.span_id, trace.sampled) == (TRACE, SPAN, True)


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("03", True), ("ff", True)])
def test_the_sampled_flag_is_one_bit(flags: str, sampled: bool) -> None:
    trace = parse([f"00-{TRACE}-{SPAN}-{flags}"])

    assert trace is not None
    assert trace.sampled is sampled


@pytest.mark.parametrize(
    "sent",
    [
        [],
        [SENT, SENT],
        [""],
        ["nonsense"],
        [SENT.upper()],
        [f"ff-{TRACE}-{SPAN}-01"],
        [f"0-{TRACE}-{SPAN}-01"],
        [f"00-{'0' * 32}-{SPAN}-01"],
        [f"00-{TRACE}-{'0' * 16}-01"],
        [f"00-{TRACE[1:]}-{SPAN}-01"],
        [f"00-{TRACE}-{SPAN}"],
        [f"00-{TRACE}-{SPAN}-1"],
        [f"00-{TRACE}-{SPAN}-0g"],
        [f"{SENT}-more"],
        [f"{SENT}."],
        [f"01-{TRACE}-{SPAN}-01."],
        [f"00-{TRACE}-{SPAN}-0\N{ARABIC-INDIC DIGIT ONE}"],
        [f"{SENT}\n"],
    ],
)
def test_what_is_no_traceparent_is_none(sent: list[str]) -> None:
    assert parse(sent, ["a=b"]) is None


@pytest.mark.parametrize("sent", [f"01-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-ff-what-the-future-brings"])
def test_a_later_version_is_gone_on_with_as_the_known_one(sent: str) -> None:
    assert parse([sent]) == Trace(SENT)


def test_blanks_around_a_header_are_none_of_it() -> None:
    assert parse([f" {SENT}\t"]) == Trace(SENT)


@pytest.mark.parametrize(
    ("states", "kept"),
    [
        (["a=1", "b=2"], "a=1,b=2"),
        (["a=1, ,b=2 ,"], "a=1,b=2"),
        (["tenant@vendor=x y"], "tenant@vendor=x y"),
        ([f"a={'x' * 256}"], f"a={'x' * 256}"),
        ([f"a={'x' * 257}"], ""),
        (["a=1,a=2"], ""),
        (["A=1"], ""),
        (["a"], ""),
        (["a=b=c"], ""),
        (["a=☃"], ""),
        ([",".join(f"a{n}=1" for n in range(32))], ",".join(f"a{n}=1" for n in range(32))),
        ([",".join(f"a{n}=1" for n in range(33))], ""),
    ],
)
def test_a_tracestate_is_passed_on_whole_or_not_at_all(states: list[str], kept: str) -> None:
    assert parse([SENT], states) == Trace(SENT, kept)


def test_traces_that_begin_here_are_new_and_valid() -> None:
    begun = [tracing.begin(ratio=1.0) for _ in range(100)]

    assert len({trace.trace_id for trace in begun}) == len({trace.span_id for trace in begun}) == 100
    assert [parse([trace.traceparent]) for trace in begun] == begun
    assert all(trace.sampled for trace in begun)


def test_the_ratio_says_how_many_are_sampled() -> None:
    assert not any(tracing.begin(ratio=0.0).sampled for _ in range(100))
    assert 300 < sum(tracing.begin(ratio=0.5).sampled for _ in range(1_000)) < 700


async def test_a_trace_is_its_tasks_own() -> None:
    entered = asyncio.Event()

    async def work() -> str:
        tracing.enter(Trace(SENT))
        entered.set()
        await asyncio.sleep(0)
        return tracing.traceparent()

    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(work())
        await entered.wait()
        assert tracing.current() is None
    assert working.result() == SENT


def test_a_trace_lasts_for_its_block() -> None:
    with tracing.within(Trace(SENT)):
        assert tracing.current() == Trace(SENT)
        with tracing.within(None):
            assert tracing.traceparent() == ""
        assert tracing.traceparent() == SENT
    assert tracing.current() is None
