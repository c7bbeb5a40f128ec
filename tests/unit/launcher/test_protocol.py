"""The launcher's requests: what is accepted, what is refused with a sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sless_runtime_manager.launcher import protocol
from sless_runtime_manager.launcher.protocol import RequestError, StartSpec


def fields(**changes: Any) -> dict[str, Any]:
    return {
        "instance_id": "i-0123456789abcdef",
        "uid_index": 0,
        "argv": ["/bin/true"],
        "env": {"A": "1"},
        "prefixes": ["/opt/python"],
        "layers": [{"source": "/data/layers/ab", "target": "/srv/function"}],
        "memory_mb": 128,
        "allowance_mb": 64,
        **changes,
    }


def test_a_right_spec_is_read_whole() -> None:
    spec = StartSpec(fields(cwd="/srv/function"))
    assert (spec.instance_id, spec.uid_index, spec.argv, spec.env) == (
        "i-0123456789abcdef",
        0,
        ["/bin/true"],
        {"A": "1"},
    )
    assert (spec.prefixes, spec.layers) == (("/opt/python",), [("/data/layers/ab", "/srv/function")])
    assert (spec.cwd, spec.memory_mb, spec.allowance_mb) == ("/srv/function", 128, 64)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"instance_id": "../x"}, "instance_id must be small letters, digits and hyphens, not '../x'"),
        ({"instance_id": ".roots"}, "instance_id must be"),
        ({"instance_id": "i" * 64}, "instance_id must be"),
        ({"instance_id": "i-1\n"}, "instance_id must be"),
        ({"instance_id": None}, "instance_id must be"),
        ({"uid_index": -1}, "uid_index must be a whole number from 0"),
        ({"uid_index": True}, "uid_index must be a whole number"),
        ({"memory_mb": 0}, "memory_mb must be a whole number from 1 to"),
        ({"memory_mb": 1.5}, "memory_mb must be a whole number"),
        ({"argv": []}, "argv must begin with an absolute path"),
        ({"argv": ["true"]}, "argv must begin with an absolute path"),
        ({"argv": ["/bin/true", 1]}, "argv must be a list of strings"),
        ({"argv": ["/bin/true\0"]}, "argv must be a list of strings"),
        ({"env": {"A=B": "1"}}, "env must map names to strings"),
        ({"env": {"": "1"}}, "env must map names to strings"),
        ({"env": {"A": 1}}, "env must map names to strings"),
        ({"env": {"A": "\0"}}, "env must map names to strings"),
        ({"env": []}, "env must be a JSON object"),
        ({"prefixes": ["/"]}, "prefixes must not name the machine's root"),
        ({"prefixes": ["opt/python"]}, "prefixes must hold absolute paths"),
        ({"prefixes": ["/opt/../root"]}, "prefixes must hold absolute paths without . and .."),
        ({"layers": {}}, "layers must be a list"),
        ({"layers": ["x"]}, "a layer must be a JSON object"),
        (
            {"layers": [{"source": "/a", "target": "/etc"}]},
            "a layer's target must lie below /opt/sless/ or /srv/, not at /etc",
        ),
        ({"layers": [{"source": "a", "target": "/srv/x"}]}, "a layer's source must hold absolute paths"),
        ({"layers": [{"source": "/a", "target": "/srv/../etc"}]}, "a layer's target must hold absolute paths"),
        ({"cwd": "srv"}, "cwd must hold absolute paths"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError) as caught:
        StartSpec(fields(**changes))
    assert caught.value.code == "INVALID"
    assert caught.value.message.startswith(says)


@pytest.mark.parametrize("line", [b"", b"nonsense", b"[1]", b"1", b"\xff", b'{"id": 1'])
def test_what_is_no_object_is_refused(line: bytes) -> None:
    with pytest.raises(RequestError):
        protocol.parse(line)


def test_an_answer_is_one_line_whatever_is_in_it() -> None:
    line = protocol.encode({"text": "a\nb\u2028\0 ü \ud800"})
    assert line.count(b"\n") == 1
    assert json.loads(line)["text"] == "a\nb\u2028\0 ü ?"


def test_a_long_secret_is_not_quoted_back() -> None:
    with pytest.raises(RequestError) as caught:
        StartSpec(fields(env="password" * 100))
    assert len(caught.value.message) < 100
