"""A build's log."""

from __future__ import annotations

import pytest
from sless_builder.application.build_log import MAX_LOG_BYTES, BuildLog
from sless_builder.domain.build import (
    Claim,
    Problem,
)
from sless_platform.errors import Unavailable

from tests.support.builds import (
    Kept,
    claimed,
)


async def test_a_log_is_bounded_and_its_end_is_told_all_the_same() -> None:
    kept = Kept()
    log = BuildLog(kept.store, await claimed(kept))
    for number in range(2_000):
        log.line(f"{number} " + "x" * 1_000)
    log.problem(Problem("X", "what went wrong"))
    await log.flush()
    text = await kept.log()
    assert len(text) <= MAX_LOG_BYTES + 20
    assert text.endswith("\n… truncated\n")
    assert log.end().endswith("error: what went wrong")
    assert len(log.end()) <= 2_000


async def test_lines_that_could_not_be_stored_are_stored_later() -> None:
    kept = Kept()
    log = BuildLog(kept.store, await claimed(kept))
    append = kept.store.append_log

    async def away(claim: Claim, text: str) -> None:
        raise Unavailable("away")

    kept.store.append_log = away  # type: ignore[method-assign]
    log.line("one")
    with pytest.raises(Unavailable):
        await log.flush()
    kept.store.append_log = append  # type: ignore[method-assign]
    log.line("two\x1b[1m")
    await log.flush()
    assert await kept.log() == "one\ntwo\ufffd[1m\n"
