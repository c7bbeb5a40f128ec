"""Traces through the whole platform, as a receiver of OTLP sees them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from tests.support.embedded import HTTP, Platform, User, running_platform, zipped
from tests.support.otlp import Collector, ReceivedSpan, collecting, path_to, roots

QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "100"}
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENT = f"00-{TRACE}-{SPAN}-01"
INVOKE = "sless.invoker.v1.InvokerService/Invoke"

TRACED = textwrap.dedent("""
    import json, time, urllib.request

    def span(collector, traceparent):
        '''A span of the handler's own, sent by nothing but the standard library.'''
        _, trace_id, parent_id, _ = traceparent.split("-")
        own = {"traceId": trace_id, "spanId": "1" * 16, "parentSpanId": parent_id, "name": "handler's own", "kind": 1,
               "startTimeUnixNano": str(time.time_ns()), "endTimeUnixNano": str(time.time_ns())}
        service = {"key": "service.name", "value": {"stringValue": "mine"}}
        body = {"resourceSpans": [{"resource": {"attributes": [service]}, "scopeSpans": [{"spans": [own]}]}]}
        request = urllib.request.Request(collector, json.dumps(body).encode(), {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=10).close()
        return trace_id

    def handle(event, context):
        if event.get("raise"):
            raise ValueError("on purpose")
        if "collector" in event:
            return span(event["collector"], context.traceparent)
        return {"traceparent": context.traceparent, "headers": event["_headers"]}
""")


@dataclass
class Traced:
    """A platform whose spans are received, and somebody on it with a service `hello`."""

    platform: Platform
    collector: Collector
    user: User

    def spans(self, trace_id: str, *needed: tuple[str, str]) -> Sequence[ReceivedSpan]:
        """The spans of a trace, once those are there that are needed (service and name)."""

        def found(_spans: Sequence[ReceivedSpan]) -> Sequence[ReceivedSpan] | None:
            spans = self.collector.trace(trace_id)
            there = {(span.service, span.name) for span in spans}
            return spans if there.issuperset(needed) and len(roots(spans)) == 1 else None

        return self.collector.until(found, f"{needed} of {trace_id} in one tree")


@pytest.fixture(scope="module")
def traced() -> Iterator[Traced]:
    with collecting() as collector, running_platform(SLESS_OTLP_ENDPOINT=collector.endpoint, **QUICK) as platform:
        user = platform.user()
        user.deploy("hello", TRACED)
        yield Traced(platform, collector, user)


def named(spans: Sequence[ReceivedSpan], service: str, name: str) -> ReceivedSpan:
    """The span of this name."""
    (found,) = [span for span in spans if (span.service, span.name) == (service, name)]
    return found


def test_a_call_is_one_trace_from_the_gateway_to_the_handler(traced: Traced) -> None:
    told = traced.user.fn("hello", "/below?secret=1").json()
    _, trace_id, handlers_parent, flags = told["traceparent"].split("-")

    spans = traced.spans(trace_id, ("gateway", "GET /fn/{ns}/{name}"), ("invoker", "service hello"))

    function = named(spans, "invoker", "service hello")
    assert (flags, handlers_parent) == ("01", function.span_id)
    assert told["headers"]["traceparent"] == told["traceparent"]
    assert path_to(function, spans) == [
        "gateway: GET /fn/{ns}/{name}",
        f"gateway: {INVOKE}",
        f"invoker: {INVOKE}",
        "invoker: service hello",
    ]
    assert [span.kind for span in spans if span.name == INVOKE and span.service == "gateway"] == ["CLIENT"]
    request = named(spans, "gateway", "GET /fn/{ns}/{name}")
    assert (request.kind, request.parent_id, request.failed) == ("SERVER", "", False)
    assert request.attributes["http.route"] == "/fn/{ns}/{name}"
    assert request.attributes["http.response.status_code"] == 200
    assert "secret" not in json.dumps(dict(request.attributes))
    assert (function.attributes["faas.name"], function.attributes["sless.version"]) == ("hello", 1)
    assert function.attributes["sless.handler_ms"] >= 0
    assert request.begun_at <= function.begun_at <= function.ended_at <= request.ended_at


def test_the_clients_trace_is_gone_on_with(traced: Traced) -> None:
    headers = {"traceparent": SENT, "tracestate": "congo=t61rcWkgMzE", "baggage": "userId=alice,x=%20"}

    told = traced.user.fn("hello", headers=headers).json()

    spans = traced.spans(TRACE, ("gateway", "GET /fn/{ns}/{name}"), ("invoker", "service hello"))
    function = named(spans, "invoker", "service hello")
    assert named(spans, "gateway", "GET /fn/{ns}/{name}").parent_id == SPAN
    assert told["traceparent"] == told["headers"]["traceparent"] == f"00-{TRACE}-{function.span_id}-01"
    assert told["headers"]["tracestate"] == headers["tracestate"]
    assert told["headers"]["baggage"] == headers["baggage"]


def test_what_is_no_trace_is_not_gone_on_with(traced: Traced) -> None:
    sent = f"00-{'0' * 32}-{SPAN}-01"

    told = traced.user.fn("hello", headers={"traceparent": sent, "tracestate": "a=1"}).json()

    spans = traced.spans(told["traceparent"][3:35], ("gateway", "GET /fn/{ns}/{name}"), ("invoker", "service hello"))
    assert named(spans, "gateway", "GET /fn/{ns}/{name}").parent_id == ""
    assert "tracestate" not in told["headers"]


def test_a_trace_that_its_client_does_not_want_makes_no_spans_and_reaches_the_handler(traced: Traced) -> None:
    unwanted = f"00-{'a' * 32}-{SPAN}-00"

    told = traced.user.fn("hello", headers={"traceparent": unwanted}).json()
    wanted = traced.user.fn("hello").json()

    assert told["traceparent"] == unwanted
    traced.spans(wanted["traceparent"][3:35], ("invoker", "service hello"))
    assert not traced.collector.trace("a" * 32)


def test_a_handler_that_fails_is_seen_in_its_trace(traced: Traced) -> None:
    sent = f"00-{'b' * 32}-{SPAN}-01"

    answer = traced.user.fn("hello", method="POST", json={"raise": True}, headers={"traceparent": sent})

    assert answer.status_code == 500
    spans = traced.spans("b" * 32, ("gateway", "POST /fn/{ns}/{name}"), ("invoker", "service hello"))
    for service, name in (("gateway", "POST /fn/{ns}/{name}"), ("invoker", "service hello")):
        span = named(spans, service, name)
        assert (span.failed, span.attributes["error.type"]) == (True, "500")


def test_probes_make_no_trace(traced: Traced) -> None:
    for path in ("/health", "/ready", "/metrics"):
        assert HTTP.get(traced.platform.endpoint + path).status_code == 200

    told = traced.user.fn("hello").json()
    traced.spans(told["traceparent"][3:35], ("gateway", "GET /fn/{ns}/{name}"))
    routes = {span.attributes.get("http.route") for span in traced.collector.spans if span.service == "gateway"}
    assert not routes & {"/health", "/ready", "/metrics"}


def test_spans_that_a_handler_makes_itself_stand_under_its_call(traced: Traced) -> None:
    trace_id = traced.user.fn("hello", method="POST", json={"collector": traced.collector.http_endpoint}).text

    spans = traced.spans(trace_id, ("mine", "handler's own"), ("gateway", "POST /fn/{ns}/{name}"))
    assert path_to(named(spans, "mine", "handler's own"), spans)[-2:] == [
        "invoker: service hello",
        "mine: handler's own",
    ]


UPLOAD = "POST /v1/namespaces/{ns}/services/{name}/upload"
REGISTRY = "sless.registry.v1.RegistryService"


def test_an_upload_is_one_trace_until_it_serves(traced: Traced) -> None:
    sent = f"00-{'c' * 32}-{SPAN}-01"
    assert traced.user.create("traced").status_code == 201

    uploaded = traced.user.request(
        "POST",
        "/services/traced/upload?wait=60",
        content=zipped({"handler.py": f"# built anew\n{TRACED}"}),
        headers={"Content-Type": "application/zip", "traceparent": sent},
    )

    assert uploaded.status_code == 200, uploaded.text
    needed = [
        ("gateway", UPLOAD),
        ("builder", "sless.builder.v1.BuilderService/UploadCode"),
        ("registry", f"{REGISTRY}/CreateVersion"),
        ("builder", "build"),
        ("registry", f"{REGISTRY}/ReportBuild"),
        ("runtime-manager", "deploy"),
        ("registry", f"{REGISTRY}/ReportStatus"),
    ]
    spans = traced.spans("c" * 32, *needed)
    assert named(spans, "gateway", UPLOAD).parent_id == SPAN
    build, deploy = named(spans, "builder", "build"), named(spans, "runtime-manager", "deploy")
    created = named(spans, "registry", f"{REGISTRY}/CreateVersion")
    assert build.parent_id == deploy.parent_id == created.span_id
    assert path_to(created, spans) == [
        f"gateway: {UPLOAD}",
        "gateway: sless.builder.v1.BuilderService/UploadCode",
        "builder: sless.builder.v1.BuilderService/UploadCode",
        f"builder: {REGISTRY}/CreateVersion",
        f"registry: {REGISTRY}/CreateVersion",
    ]
    names = {span.span_id: span.name for span in spans}
    below: dict[str, set[str]] = {names[span.parent_id]: set() for span in spans if span.parent_id in names}
    for span in spans:
        if span.parent_id in names:
            below[names[span.parent_id]].add(span.name)
    assert below["build"] >= {"compile", "store layer"}
    assert below["deploy"] >= {"start instance", "probe instance", "routes", f"{REGISTRY}/ReportStatus"}
    assert not any(span.failed for span in spans)
    assert not [span for span in spans if "Watch" in span.name]
    assert created.begun_at <= build.begun_at <= deploy.begun_at
    assert (build.attributes["sless.version"], deploy.attributes["sless.version"]) == (1, 1)


def test_a_build_and_a_start_that_fail_say_why(traced: Traced) -> None:
    for name, code, trace, span, reason in (
        ("broken", "def handle(:", "d", ("builder", "build"), "SYNTAX_ERROR"),
        (
            "raising",
            "raise ValueError('on purpose')\ndef handle(event): ...",
            "e",
            ("runtime-manager", "deploy"),
            "FAILED",
        ),
    ):
        assert traced.user.create(name).status_code == 201
        answer = traced.user.request(
            "POST",
            f"/services/{name}/upload",
            content=zipped({"handler.py": code}),
            headers={"Content-Type": "application/zip", "traceparent": f"00-{trace * 32}-{SPAN}-01"},
        )
        assert answer.status_code == 200, answer.text

        failed = named(traced.spans(trace * 32, span, ("gateway", UPLOAD)), *span)
        assert (failed.failed, failed.attributes["error.type"]) == (True, reason)
        assert failed.message


def test_without_anybody_at_the_endpoint_everything_works() -> None:
    with running_platform(SLESS_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_BSP_SCHEDULE_DELAY="10") as platform:
        user = platform.user()
        user.deploy("hello", TRACED)
        for _ in range(20):
            answer = user.fn("hello")
            assert answer.status_code == 200
            assert answer.json()["traceparent"].endswith("-01")
        platform.down()
        assert "127.0.0.1:9" in platform.log()
