"""From a request to its answer: route, caller, handler, and errors as answers."""

from __future__ import annotations

import time

from aiohttp import web
from sless_platform.errors import PlatformError
from sless_platform.identity import authorise
from sless_platform.logging import bind, get_logger

from sless_gateway.errors import outcome
from sless_gateway.http_api import traces
from sless_gateway.http_api.answer import Answer
from sless_gateway.http_api.api import Api
from sless_gateway.http_api.connection import Server
from sless_gateway.http_api.errors import error_answer, internal
from sless_gateway.http_api.exchange import Exchange, Target, request_id_of
from sless_gateway.http_api.head import check_head
from sless_gateway.http_api.routes import Match, Router
from sless_gateway.http_api.streaming import abort

log = get_logger(__name__)


class HttpApi:
    """Answers requests. `server` is what listeners hand their connections to."""

    def __init__(self, api: Api, router: Router | None = None) -> None:
        self._api = api
        self._router = router or Router()
        self.server = Server(self.handle)

    async def handle(self, request: web.BaseRequest) -> Answer:
        """One request, to the end of its answer. Never raises but for cancellation."""
        started = time.perf_counter()
        exchange = Exchange(request, request_id_of(request))
        bind(request_id=exchange.request_id)
        span = traces.accept(request)
        status: int | None = None
        try:
            answer = await self._answer(exchange)
            status = answer.status
        finally:
            if span is not None:
                traces.end(span, exchange, status)
        self._api.metrics.count(exchange.template, request.method, answer.status, time.perf_counter() - started)
        return answer

    async def _answer(self, exchange: Exchange) -> Answer:
        try:
            match = self._match(exchange)
            await self._admit(exchange, match)
            answer = await match.route.handler(self._api, exchange)
            await answer.prepare(exchange.request)
            return answer
        except PlatformError as error:
            if outcome(error).code == "INTERNAL":
                log.exception("internal error", reason=error.reason)
            return await self._refused(exchange, error)
        except ConnectionError:
            raise  # the client is gone
        except Exception:
            log.exception("request failed")
            return await self._refused(exchange, internal(exchange.request_id))

    async def _refused(self, exchange: Exchange, error: PlatformError) -> Answer:
        answer = error_answer(error, exchange.request_id, exchange.extra, closing=not exchange.trusted)
        if exchange.request.writer.output_size > 0:
            abort(exchange.request)  # another answer has begun: cut it rather than write into it
        else:
            await answer.prepare(exchange.request)
        return answer

    def _match(self, exchange: Exchange) -> Match:
        request = exchange.request
        exchange.trusted = False
        check_head(request)
        exchange.trusted = True
        exchange.target = Target.of(request.raw_path)
        match = self._router.match(request.method, exchange.target.path)
        exchange.template, exchange.params, exchange.kind = match.route.template, match.params, match.route.kind
        return match

    async def _admit(self, exchange: Exchange, match: Match) -> None:
        """Who is calling, and whether the namespace is theirs, before anything else is looked at."""
        if match.route.open:
            return
        exchange.caller = await self._api.callers.authenticate(exchange.token())
        namespace = match.params.get("ns")
        if namespace is not None:
            authorise(exchange.caller.principal, namespace)
