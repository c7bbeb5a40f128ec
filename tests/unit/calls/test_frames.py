"""The caller's parser and encoders, against any bytes."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sless_calls import frames
from sless_calls.errors import ProtocolError

from tests.support.patience import PATIENT

FRAMES = st.lists(
    st.one_of(
        st.tuples(st.just(frames.BODY), st.integers(0, 2**32 - 1), st.binary(max_size=300)),
        st.tuples(st.just(frames.END), st.integers(0, 2**32 - 1), st.just(b"")),
        st.tuples(st.just(frames.PING), st.just(0), st.binary(min_size=8, max_size=8)),
        st.tuples(st.just(frames.LOG), st.integers(0, 9), st.binary(min_size=2, max_size=50)),
    ),
    max_size=12,
)


def parsed(pieces: list[bytes]) -> list[tuple[int, int, bytes]]:
    found: list[tuple[int, int, bytes]] = []
    parser = frames.FrameParser(lambda kind, call_id, payload: found.append((kind, call_id, payload)))
    for piece in pieces:
        parser.feed(piece)
    return found


@PATIENT
@given(expected=FRAMES, cuts=st.lists(st.integers(0, 4000), max_size=8))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    expected: list[tuple[int, int, bytes]], cuts: list[int]
) -> None:
    data = b"".join(frames.frame(*one) for one in expected)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    assert parsed([data[a:b] for a, b in itertools.pairwise(edges)]) == expected


@PATIENT
@given(data=st.binary(max_size=300), cut=st.integers(0, 300))
def test_any_bytes_give_frames_or_a_protocol_error(data: bytes, cut: int) -> None:
    found: list[int] = []
    parser = frames.FrameParser(lambda kind, call_id, payload: found.append(len(payload)))
    try:
        parser.feed(data[:cut])
        parser.feed(data[cut:])
    except ProtocolError:
        pass
    assert sum(found) <= len(data)


@pytest.mark.parametrize(
    ("length", "kind"),
    [
        (0, frames.BODY),
        (4, frames.END),
        (5, 0),
        (5, 13),
        (5, 255),
        (6, frames.END),
        (5 + frames.MAX_BODY + 1, frames.BODY),
        (5 + frames.MAX_HEAD + 1, frames.LOG),
        (5 + 4 + frames.MAX_HEAD + frames.MAX_BODY + 1, frames.REPLY),
        (2**32 - 1, frames.REPLY),
        (8, frames.CREDIT),
        (12, frames.PING),
        (6, frames.DRAIN),
    ],
)
def test_a_length_or_type_that_the_protocol_has_not_is_an_error_before_its_payload_comes(
    length: int, kind: int
) -> None:
    with pytest.raises(ProtocolError, match=rf"\b{kind if kind in (0, 13, 255) else length}\b"):
        parsed([struct.pack(">IBI", length, kind, 1)])


def test_the_greatest_frames_pass() -> None:
    body = b"x" * frames.MAX_BODY
    assert parsed([frames.frame(frames.BODY, 1, body)]) == [(frames.BODY, 1, body)]


def test_credit_is_a_number() -> None:
    ((kind, call_id, payload),) = parsed([frames.credit_frame(7, 2**20)])
    assert (kind, call_id, frames.credit_of(payload)) == (frames.CREDIT, 7, 2**20)
