"""What `sless status` says of isolation, in words."""

from __future__ import annotations

from sless_cli.commands.status import builds_in_words, in_words

FULL = {
    "level": "namespaces",
    "memory": "control group v2",
    "processes": "control group v2",
    "seccomp": True,
    "network": "host",
    "user": "one for each namespace",
    "reason": "",
}


def test_each_part_is_told_in_words() -> None:
    assert dict(in_words(FULL)) == {
        "isolation": "namespaces: own files, processes and users",
        "  users": "one for each namespace",
        "  memory": "limited exactly, by a control group v2",
        "  processes": "limited, by a control group v2",
        "  system calls": "filtered",
        "  network": "this machine's: no boundary",
    }


def test_what_is_missing_is_told_with_its_reason() -> None:
    poor = {
        **FULL,
        "level": "none",
        "memory": "approximate",
        "processes": "not limited",
        "seccomp": False,
        "reason": "no",
    }
    told = dict(in_words(poor))
    assert told["isolation"] == "none: functions are not kept apart here"
    assert told["  memory"] == "limited approximately: looked at once a second"
    assert (told["  processes"], told["  system calls"], told["  why no more"]) == ("not limited", "not filtered", "no")


def test_a_launcher_that_does_not_answer_leaves_it_unknown() -> None:
    assert set(dict(in_words(dict.fromkeys(FULL))).values()) == {"unknown"}


def test_what_builds_may_do_is_told_in_words() -> None:
    full = {"level": "namespaces", "memory": "exact", "network": "host", "reason": ""}
    assert dict(builds_in_words(full)) == {
        "builds": "namespaces: own files and processes",
        "  memory": "limited exactly, by a control group",
        "  network": "this machine's: no boundary",
    }
    poor = dict(builds_in_words({**full, "level": "limits", "memory": "approximate", "reason": "no namespaces"}))
    assert poor["builds"].startswith("limits: builds are not kept apart")
    assert poor["  why no more"] == "no namespaces"
    assert set(dict(builds_in_words(dict.fromkeys(full))).values()) == {"unknown"}
