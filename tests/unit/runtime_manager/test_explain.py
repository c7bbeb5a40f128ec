from __future__ import annotations

import signal
from datetime import timedelta

import pytest
from sless_runtime_manager.application import explain
from sless_runtime_manager.errors import HandlerNotLoaded
from sless_runtime_manager.ports import InstanceEnded


def ended(*, exit_code: int | None = None, number: int | None = None, tail: str = "") -> InstanceEnded:
    return InstanceEnded("i-1", exit_code, number, "the machine took it away", tail)


@pytest.mark.fault(17)
def test_a_load_failure_ends_with_the_end_of_its_traceback() -> None:
    traceback = "\n".join(f'  File "deep.py", line {line}' for line in range(500)) + "\nImportError: no module named x"
    message = explain.not_loaded(HandlerNotLoaded("handler.handle could not be loaded", traceback), 128)
    assert message.startswith("handler.handle could not be loaded\n…\n  File")
    assert message.endswith("ImportError: no module named x")
    assert len(message) < 2_200


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (ended(exit_code=3, tail="bye\n"), "the instance ended before it was ready: it exited with code 3\nbye"),
        (ended(number=signal.SIGSEGV), "the instance ended before it was ready: it was ended by signal SIGSEGV"),
        (ended(number=99), "the instance ended before it was ready: it was ended by signal 99"),
        (
            ended(number=signal.SIGKILL),
            "the instance was killed before it was ready, most likely for using more than its 128 MiB of memory",
        ),
        (
            ended(exit_code=1, tail="Traceback…\nMemoryError"),
            "the instance ended before it was ready: it exited with code 1 "
            "(it needed more than its 128 MiB of memory: set a larger memory_mb)\nTraceback…\nMemoryError",
        ),
    ],
)
def test_an_early_end_is_told_in_words(event: InstanceEnded, words: str) -> None:
    assert explain.ended_before_ready(event, 128) == words


def test_an_end_that_nobody_saw_is_told_as_the_backend_does() -> None:
    assert explain.how(ended(), 128) == "the machine took it away"


def test_a_start_that_takes_too_long_shows_what_was_printed() -> None:
    message = explain.too_slow(timedelta(seconds=60), "still loading\n", None)
    assert message.startswith("the instance did not become ready within 60 s")
    assert message.endswith("\nstill loading")


def test_running_out_of_memory_is_told_with_its_size() -> None:
    event = InstanceEnded("i-1", None, 9, "", "the last words", exceeded="memory")
    assert explain.how(event, 128) == "it ran out of memory (128 MiB)"
    assert explain.how(event, None) == "it ran out of memory (its memory_mb)"
    text = explain.ended_before_ready(event, 128)
    assert text == "the instance ended before it was ready: it ran out of memory (128 MiB)\nthe last words"
