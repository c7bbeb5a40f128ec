"""The prober against instances that speak the protocol as a test tells them to."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sless_runtime_manager.adapters.probe import ProtocolProber
from sless_runtime_manager.errors import InstanceUnreachable
from sless_runtime_manager.ports import InstanceHandle

from tests.support.fake_instance import fake_instance


def handle(path: Path, instance_id: str = "i-1") -> InstanceHandle:
    return InstanceHandle(
        instance_id=instance_id,
        address=f"unix:{path}",
        started_at=datetime(2026, 11, 30, tzinfo=UTC),
        function_uid="f",
        namespace="sless-ffd1f598c169b0ae",
        name="hello",
        version=1,
        generation=1,
        template="a",
        max_concurrency=1,
    )


async def test_hello_says_how_many_calls_an_instance_takes(tmp_path: Path) -> None:
    async with fake_instance(tmp_path / "sock", max_concurrency=7):
        link = await ProtocolProber().open(handle(tmp_path / "sock"), lambda _lines: None)
        assert link.max_concurrency == 7
        link.close()
        await asyncio.wait_for(link.closed, 5)


async def test_another_instance_at_the_address_is_not_taken_for_the_one_that_was_started(tmp_path: Path) -> None:
    async with fake_instance(tmp_path / "sock"):
        with pytest.raises(InstanceUnreachable, match="calls itself 'i-1', not 'i-2'"):
            await ProtocolProber().open(handle(tmp_path / "sock", "i-2"), lambda _lines: None)


async def test_where_nothing_listens_the_instance_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(InstanceUnreachable):
        await ProtocolProber().open(handle(tmp_path / "sock"), lambda _lines: None)


async def test_an_instance_that_asks_for_no_more_calls_is_departing(tmp_path: Path) -> None:
    async with fake_instance(tmp_path / "sock") as instance:
        link = await ProtocolProber().open(handle(tmp_path / "sock"), lambda _lines: None)
        instance.drain()
        await asyncio.wait_for(link.departing, 5)


OFTEN = timedelta(milliseconds=20)


async def test_a_socket_that_somebody_removes_is_noticed(tmp_path: Path) -> None:
    async with fake_instance(tmp_path / "sock"):
        link = await ProtocolProber(OFTEN).open(handle(tmp_path / "sock"), lambda _lines: None)
        lost = asyncio.create_task(link.lost())
        (tmp_path / "sock").unlink()
        assert "is gone" in await asyncio.wait_for(lost, 10)
        link.close()


async def test_an_instance_that_gives_no_sign_of_life_is_lost(tmp_path: Path) -> None:
    async with fake_instance(tmp_path / "sock"):  # It answers no PING.
        link = await ProtocolProber(OFTEN, timedelta(milliseconds=100)).open(
            handle(tmp_path / "sock"), lambda _lines: None
        )
        assert await asyncio.wait_for(link.lost(), 10) == "no sign of life for 0.1 s"
        link.close()
