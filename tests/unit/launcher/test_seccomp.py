"""The filter of system calls, run by an interpreter of its instructions."""

from __future__ import annotations

import errno
import struct

import pytest
from sless_runtime_manager.launcher import seccomp

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED = 0x7FFF0000
CALLS = {
    "read": (0, 63),
    "execve": (59, 221),
    "clone": (56, 220),
    "clone3": (435, 435),
    "socket": (41, 198),
    "ioctl": (16, 29),
    "personality": (135, 92),
    "mount": (165, 40),
    "ptrace": (101, 117),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "keyctl": (250, 219),
    "kexec_load": (246, 104),
    "finit_module": (313, 273),
    "process_vm_readv": (310, 270),
    "open_by_handle_at": (304, 265),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "memfd_create": (319, 279),
    "futex": (202, 98),
    "seccomp": (317, 277),
    "openat": (257, 56),
}
STREAM, DATAGRAM, RAW, CLOEXEC = 1, 2, 3, 0o2000000


def answer(program: bytes, number: int, *arguments: int, arch: int) -> int:
    """What the filter returns, as the kernel's interpreter of classic BPF would (Documentation/networking/filter.rst)."""
    padded = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack("=IIQ6Q", number, arch, 0, *(argument & (1 << 64) - 1 for argument in padded))
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    accumulator, position = 0, 0
    while True:
        operation, when, otherwise, constant = code[position]
        position += 1
        match operation:
            case 0x20:
                accumulator = struct.unpack_from("=I", data, constant)[0]
            case 0x54:
                accumulator &= constant
            case 0x15:
                position += when if accumulator == constant else otherwise
            case 0x35:
                position += when if accumulator >= constant else otherwise
            case 0x45:
                position += when if accumulator & constant else otherwise
            case 0x06:
                return int(constant)
            case _:
                raise AssertionError(f"no such instruction: {operation:#x}")


def judged(machine: str, call: str, *arguments: int, unix_sockets: bool = True) -> int:
    """0 for an allowed call, else the error that it meets."""
    program = seccomp.program(machine, unix_sockets=unix_sockets)
    number = CALLS[call][list(MACHINES).index(machine)]
    action = answer(program, number, *arguments, arch=MACHINES[machine])
    return 0 if action == ALLOWED else action & 0xFFFF


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("call", "arguments", "error"),
    [
        ("read", (0, 0, 1), 0),
        ("execve", (), 0),
        ("openat", (), 0),
        ("futex", (), 0),
        ("memfd_create", (), 0),
        ("seccomp", (), 0),
        ("mount", (), errno.EPERM),
        ("ptrace", (), errno.EPERM),
        ("unshare", (0x10000000,), errno.EPERM),
        ("setns", (), errno.EPERM),
        ("bpf", (), errno.EPERM),
        ("keyctl", (), errno.EPERM),
        ("kexec_load", (), errno.EPERM),
        ("finit_module", (), errno.EPERM),
        ("process_vm_readv", (), errno.EPERM),
        ("open_by_handle_at", (), errno.EPERM),
        ("userfaultfd", (), errno.EPERM),
        ("perf_event_open", (), errno.EPERM),
        ("io_uring_setup", (), errno.ENOSYS),
        ("clone3", (), errno.ENOSYS),
        ("clone", (0x01200011,), 0),
        ("clone", (0x003D0F00,), 0),
        ("clone", (0x10000011,), errno.EPERM),
        ("clone", (0x00020011,), errno.EPERM),
        ("clone", (0x20000000 | 1 << 40,), errno.EPERM),
        ("socket", (1, STREAM, 0), 0),
        ("socket", (2, STREAM | CLOEXEC, 6), 0),
        ("socket", (10, DATAGRAM, 0), 0),
        ("socket", (2, RAW | CLOEXEC, 1), errno.EPERM),
        ("socket", (10, RAW, 58), errno.EPERM),
        ("socket", (2, 10, 0), errno.EPERM),
        ("socket", (16, RAW | CLOEXEC, 0), 0),
        ("socket", (16, RAW, 9), errno.EPERM),
        ("socket", (17, RAW, 0), errno.EAFNOSUPPORT),
        ("socket", (38, 5, 0), errno.EAFNOSUPPORT),
        ("socket", (40, STREAM, 0), errno.EAFNOSUPPORT),
        ("ioctl", (0, 0x5401), 0),
        ("ioctl", (0, 0x5412), errno.EPERM),
        ("ioctl", (0, 0x5412 | 1 << 32), errno.EPERM),
        ("ioctl", (0, 0x541C), errno.EPERM),
        ("personality", (0xFFFFFFFF,), 0),
        ("personality", (0,), 0),
        ("personality", (0x0040000,), errno.EPERM),
    ],
)
def test_what_no_function_needs_is_refused(machine: str, call: str, arguments: tuple[int, ...], error: int) -> None:
    assert judged(machine, call, *arguments) == error


@pytest.mark.parametrize("machine", MACHINES)
def test_without_unix_sockets_none_is_made_and_all_others_are(machine: str) -> None:
    assert judged(machine, "socket", 1, STREAM, 0, unix_sockets=False) == errno.EPERM
    assert judged(machine, "socket", 2, STREAM, 0, unix_sockets=False) == 0


@pytest.mark.parametrize("machine", MACHINES)
def test_another_architectures_calls_are_not_there(machine: str) -> None:
    program = seccomp.program(machine, unix_sockets=True)
    assert answer(program, 1, arch=0x40000003) == 0x00050000 | errno.ENOSYS


def test_the_calls_of_x32_are_not_there() -> None:
    program = seccomp.program("x86_64", unix_sockets=True)
    assert answer(program, 0x40000000 | 521, arch=MACHINES["x86_64"]) == 0x00050000 | errno.ENOSYS


def test_no_jump_leads_out_of_the_filter() -> None:
    for machine in MACHINES:
        program = seccomp.program(machine, unix_sockets=True)
        length = len(program) // 8
        for at in range(length):
            operation, when, otherwise, _ = struct.unpack_from("=HBBI", program, at * 8)
            if operation & 0x07 == 0x05:
                assert at + 1 + max(when, otherwise) < length
        assert length <= 4096
