"""Lines that belong to no call, in the functions' log files."""

from __future__ import annotations

from collections.abc import Sequence

from sless_calls.log_file import FunctionLogFiles, format_line
from sless_platform.logging import get_logger

from sless_runtime_manager.ports import LogLine

log = get_logger(__name__)


class FileFunctionLogs:
    """FunctionLogs in files. A folder that can't be written is reported once, until it can again."""

    def __init__(self, files: FunctionLogFiles) -> None:
        self._files = files
        self._failing = False

    def write(self, function_uid: str, instance_id: str, lines: Sequence[LogLine]) -> None:
        """See FunctionLogs."""
        texts = [format_line(line.at, instance_id, line.stream, line.text) for line in lines]
        try:
            self._files.append(function_uid, texts)
        except OSError as error:
            if not self._failing:
                log.warning("functions' logs can't be written, their lines are lost", error=str(error))
            self._failing = True
        else:
            self._failing = False

    def remove(self, function_uid: str) -> None:
        """See FunctionLogs."""
        try:
            self._files.remove(function_uid)
        except OSError as error:
            log.warning("a function's log can't be removed", function=function_uid, error=str(error))
