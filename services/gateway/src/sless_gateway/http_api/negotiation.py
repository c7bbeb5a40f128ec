"""Which of two forms of an answer a client would rather have (RFC 9110 §12.5.1). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def rather(accept: Iterable[str], wanted: str, usual: str) -> bool:
    """Whether the Accept fields of a request put `wanted` above `usual`, both media types in small letters.

    What can't be read is passed over; a client that says nothing gets the usual.
    """
    ranges = dict(_ranges(accept))
    return _quality(ranges, wanted) > _quality(ranges, usual)


def _ranges(accept: Iterable[str]) -> Iterator[tuple[str, float]]:
    for item in ",".join(accept).split(","):
        media_type, *parameters = (part.strip().lower() for part in item.split(";"))
        weights = (parameter[2:] for parameter in parameters if parameter.startswith("q="))
        try:
            yield media_type, float(next(weights, "1"))
        except ValueError:
            continue


def _quality(ranges: dict[str, float], media_type: str) -> float:
    """The weight of the range that names the type most exactly; 0 when none does."""
    group = media_type.partition("/")[0]
    return next((ranges[name] for name in (media_type, f"{group}/*", "*/*") if name in ranges), 0.0)
