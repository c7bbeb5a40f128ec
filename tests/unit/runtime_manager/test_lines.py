from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from sless_calls.log_file import FunctionLogFiles
from sless_contracts.limits import LOG_LINE_BYTES
from sless_runtime_manager.adapters.function_log import FileFunctionLogs
from sless_runtime_manager.application.lines import LineCutter
from sless_runtime_manager.ports import InstanceOutput, LogLine

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def texts(cutter: LineCutter, output: InstanceOutput) -> list[str]:
    return [line.text for line in cutter.cut(output, NOW)]


def test_text_that_comes_in_pieces_makes_whole_lines_of_each_stream() -> None:
    cutter = LineCutter()
    assert texts(cutter, InstanceOutput("i-1", "stdout", "a\nb")) == ["a"]
    assert texts(cutter, InstanceOutput("i-1", "stderr", "x\r\n")) == ["x"]
    assert texts(cutter, InstanceOutput("i-1", "stdout", "c\n\n")) == ["bc", ""]
    assert cutter.end(NOW) == []


def test_a_last_line_without_end_is_kept() -> None:
    cutter = LineCutter()
    assert texts(cutter, InstanceOutput("i-1", "stdout", "prompt> ")) == []
    assert cutter.end(NOW) == [LogLine(NOW, "stdout", "prompt> ")]


def test_an_endless_line_is_cut() -> None:
    cutter = LineCutter()
    lines = texts(cutter, InstanceOutput("i-1", "stdout", "x" * (2 * LOG_LINE_BYTES.value + 1)))
    assert [len(line) for line in lines] == [LOG_LINE_BYTES.value] * 2
    assert [line.text for line in cutter.end(NOW)] == ["x"]


def test_dropped_output_leaves_a_mark() -> None:
    assert texts(LineCutter(), InstanceOutput("i-1", "stdout", "a\n", dropped=7)) == [
        "[7 bytes of output were dropped here]",
        "a",
    ]


def test_lines_stand_in_the_functions_own_file_and_go_with_it(tmp_path: Path) -> None:
    logs = FileFunctionLogs(FunctionLogFiles(tmp_path))
    logs.write("f", "i-1", [LogLine(NOW, "stdout", "hello")])
    logs.write("g", "i-2", [LogLine(NOW, "stderr", "other")])
    assert (tmp_path / "f.log").read_text() == "2026-11-30T12:00:00.000Z i-1 stdout hello\n"
    logs.remove("f")
    logs.remove("f")
    assert [path.name for path in tmp_path.iterdir()] == ["g.log"]


def test_a_folder_that_cannot_be_written_loses_lines_and_nothing_else(tmp_path: Path) -> None:
    logs = FileFunctionLogs(FunctionLogFiles(tmp_path / "missing"))
    logs.write("f", "i-1", [LogLine(NOW, "stdout", "hello")])
    (tmp_path / "missing").mkdir()
    logs.write("f", "i-1", [LogLine(NOW, "stdout", "again")])
    assert (tmp_path / "missing" / "f.log").read_text().endswith("again\n")
