"""HTTP in front of `Api`: one handler that reads a request, calls and answers.

Every answer to a failed request is a Status object; an internal error of the server is logged and
answered 500 without details. Watches are written by `streaming`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from enum import StrEnum
from typing import Any, Final

import orjson
from aiohttp import web

from kubelocal.server.admitting import outside
from kubelocal.server.api import Api
from kubelocal.server.causes import Cause
from kubelocal.server.errors import (
    StatusError,
    bad_request,
    conflict,
    invalid,
    method_not_allowed,
    other_kind,
    path_not_found,
    too_large,
    unsupported_media_type,
)
from kubelocal.server.rights.access import Access
from kubelocal.server.rights.identity import Attributes, User
from kubelocal.server.selectors import Selectors, parse_selectors
from kubelocal.server.types import conversion
from kubelocal.server.wire import courtesy
from kubelocal.server.wire.answers import Answers, warn
from kubelocal.server.wire.deprecations import deprecation
from kubelocal.server.wire.faults import Faults
from kubelocal.server.wire.hosts import Hosts
from kubelocal.server.wire.negotiation import decode_body, form_of
from kubelocal.server.wire.request_metrics import CONTENT_TYPE, RequestMetrics
from kubelocal.server.wire.streaming import stream
from kubelocal.server.wire.target import Target, Unserved, segments_of, target_of, verb_of
from kubelocal.server.writing import subresources
from kubelocal.server.writing.options import (
    OPTIONS_KIND,
    PatchType,
    WriteOptions,
    parse_delete_options,
    parse_list_options,
    parse_write_options,
)
from kubelocal.server.writing.patches import accepted_types
from kubelocal.store import StoreFailed, TooLarge

__all__ = ["HttpServer", "Stage", "Write"]

BODY_LIMIT: Final = 3 * 1024 * 1024
_WRITES: Final = frozenset(("create", "update", "patch", "delete", "deletecollection"))
_REVIEWS: Final = frozenset(("authentication.k8s.io", "authorization.k8s.io"))
_CONNECTIONS: Final = frozenset(("exec", "attach", "portforward", "proxy"))
_log = logging.getLogger(__name__)


class Stage(StrEnum):
    """How far a write request has come: received, stored, answered."""

    BEFORE = "before"
    STORED = "stored"
    ANSWERED = "answered"


@dataclass(frozen=True, slots=True)
class Write:
    """One write request; `index` counts the writes of its user from 1."""

    index: int
    user: str
    verb: str
    path: str
    body: bytes


@dataclass(slots=True)
class HttpServer:
    """The handler and its switches.

    `requests` counts (user, verb, group, resource), `refused` those of them without a right.
    """

    api: Api
    access: Access
    hosts: Hosts | None = None  # None: every client has a token
    faults: Faults = field(default_factory=Faults)
    on_write: Callable[[Write, Stage], Awaitable[None]] | None = None
    metrics: RequestMetrics = field(default_factory=RequestMetrics)
    requests: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    refused: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    _writes: Counter[str] = field(default_factory=Counter)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; never raises but for cancellation."""
        warnings: list[str] = []
        asked: list[tuple[Target, str]] = []
        response = await self._answered(request, warnings, asked)
        if not response.prepared:
            warn(response, warnings)
            # By the clock that dates objects, which may be a virtual one.
            seconds = self.api.clock.wall() // 1_000_000_000
            response.headers["Date"] = formatdate(seconds, usegmt=True)
        for target, verb in asked:
            self.metrics.count(
                target,
                verb,
                response.status,
                dry_run=request.query.get("dryRun", ""),
                content_type=request.headers.get("Content-Type", ""),
            )
        return response

    async def _answered(
        self, request: web.BaseRequest, warnings: list[str], asked: list[tuple[Target, str]]
    ) -> web.StreamResponse:
        try:
            return await self._answer(request, warnings, asked)
        except StatusError as error:
            return failure(error)
        except ConnectionResetError:
            return web.Response()  # the client has disconnected; aiohttp drops what cannot be sent
        except asyncio.CancelledError:
            raise
        except TooLarge as error:
            return failure(StatusError(500, "", str(error)))
        except StoreFailed as error:
            _log.error("a write was not stored: %s", error)
            return failure(StatusError(500, "InternalError", f"Internal error occurred: {error}"))
        except Exception:
            _log.exception("%s %s failed inside the server", request.method, request.path)
            message = "Internal error occurred: the server's log says more"
            return failure(StatusError(500, "InternalError", message))

    async def _answer(
        self, request: web.BaseRequest, warnings: list[str], asked: list[tuple[Target, str]]
    ) -> web.StreamResponse:
        """Answer, or raise what the refusal is.

        `warnings` receives what the answer's header states, and `asked` what the request is about
        and its verb, also of a request that is refused.
        """
        if self.hosts is not None:
            self.hosts.check(request.headers.get("Host", ""), request.headers.get("Origin", ""))
        raw_path = request.rel_url.raw_path
        public = courtesy.public(request.method, raw_path)
        if public is not None:
            return public
        user = self.access.authenticate(
            request.headers.get("Authorization", ""),
            request.headers.get("Impersonate-User", ""),
            request.headers.getall("Impersonate-Group", ()),
        )
        outside.acting.set(user)
        segments = segments_of(raw_path)
        if not _names_resource(segments):
            self.access.check(user, Attributes(request.method.lower(), "", "", path=raw_path))
            if raw_path == "/metrics" and request.method == "GET":
                body = self.metrics.text()
                return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
            return courtesy.document(self.api.registry, request, segments)
        target = target_of(self.api.registry, segments)
        verb = verb_of(request.method, target, request.query)
        attributes = target.attributes(verb, request.query.get("fieldSelector", ""))
        self._authorize(user, attributes)
        if isinstance(target, Unserved):
            raise path_not_found()
        asked.append((target, verb))
        if delay := self.faults.delay(user.name):
            await self.api.clock.sleep(delay)
        self.faults.refuse(user.name, verb, target.kind.group, attributes.resource)
        if old_fashioned := deprecation(target.kind):
            warnings.append(old_fashioned)
        if verb in _WRITES:
            return await self._write(request, user, target, verb, warnings)
        if verb == "watch":
            return await self._watch(request, user, target, warnings)
        answers = self._answers(request, target)
        if verb == "list":
            return await self._list(request, target, answers)
        return await self._get(target, answers)

    def _authorize(self, user: User, attributes: Attributes) -> None:
        """Count the request and refuse it without a right, also for a kind that is not served."""
        question = (user.name, attributes.verb, attributes.group, attributes.resource)
        self.requests[question] += 1
        try:
            self.access.check(user, attributes)
        except StatusError:
            self.refused[question] += 1
            raise

    # Reading

    async def _get(self, target: Target, answers: Answers) -> web.Response:
        kind, namespace, name = target.kind, target.namespace or "", target.name
        if "get" not in kind.verbs:
            raise method_not_allowed()
        await self.api.store.durable()
        stored = self.api.published(kind, namespace, name)
        if target.subresource in _CONNECTIONS and kind.resource == "pods":
            raise courtesy.connection_refused(stored.decode())
        if target.subresource in ("", "status", "resize", "ephemeralcontainers"):
            if target.subresource and target.subresource not in kind.subresources:
                raise path_not_found()
            (stored,) = await conversion.read_as(self.api.store, kind, [stored])
            return answers.stored(stored)
        if target.subresource == "scale" and "scale" in kind.subresources:
            obj = await self.api.get(kind, namespace, name)
            return answers.object(subresources.scale_of(kind, obj))
        if target.subresource == "log" and "log" in kind.subresources:
            return courtesy.log(stored.decode())
        raise path_not_found()

    async def _list(
        self, request: web.BaseRequest, target: Target, answers: Answers
    ) -> web.Response:
        if "list" not in target.kind.verbs:
            raise method_not_allowed()
        options = parse_list_options(request.query, watch=False)
        result = await self.api.list(
            target.kind,
            target.namespace,
            selectors=self._selectors(request, target),
            limit=options.limit,
            continue_token=options.continue_token,
            resource_version=options.resource_version,
            match=options.match,
        )
        return answers.listed(result)

    async def _watch(
        self, request: web.BaseRequest, user: User, target: Target, warnings: list[str]
    ) -> web.StreamResponse:
        if "watch" not in target.kind.verbs:
            raise method_not_allowed()
        selectors = self._selectors(request, target)
        if target.name:
            named = parse_selectors(target.kind.resource, "", f"metadata.name={target.name}")
            selectors = Selectors(selectors.labels, (*selectors.fields, *named.fields))
        return await stream(
            self.api,
            request,
            target,
            selectors,
            parse_list_options(request.query, watch=True),
            fate=lambda: self.faults.fate_of_watch(user.name),
            warnings=warnings,
        )

    # Writing

    async def _write(
        self,
        request: web.BaseRequest,
        user: User,
        target: Target,
        verb: str,
        warnings: list[str],
    ) -> web.StreamResponse:
        body = await _body(request)
        if target.kind.group in _REVIEWS:
            return await self._review(request, user, target, body)
        if verb not in target.kind.verbs and not target.subresource:
            raise method_not_allowed()
        self._writes[user.name] += 1
        write = Write(self._writes[user.name], user.name, verb, request.rel_url.raw_path_qs, body)
        await self._notify(write, Stage.BEFORE)
        options = parse_write_options(request.query, request.headers.get("User-Agent", ""))
        try:
            match verb:
                case "create":
                    response = await self._create(request, target, body, options)
                case "update":
                    response = await self._update(request, target, body, options)
                case "patch":
                    response = await self._patch(request, target, body, options)
                case "delete":
                    response = await self._delete(request, target, body)
                case _:
                    response = await self._delete_collection(request, target, body)
        except StatusError:
            # What a refusal shows, such as that a name is in use, has to be on disk too.
            await self.api.store.durable()
            raise
        finally:
            warnings.extend(options.warnings)
        await self._notify(write, Stage.STORED)
        if self.on_write is not None:
            warn(response, warnings)
            await response.prepare(request)
            await response.write_eof()
            await self._notify(write, Stage.ANSWERED)
        return response

    async def _notify(self, write: Write, stage: Stage) -> None:
        if self.on_write is not None:
            await self.on_write(write, stage)

    async def _create(
        self, request: web.BaseRequest, target: Target, body: bytes, options: WriteOptions
    ) -> web.Response:
        kind, answers = target.kind, self._answers(request, target)
        if target.subresource in _CONNECTIONS and kind.resource == "pods":
            pod = self.api.stored(kind, target.namespace or "", target.name)
            raise courtesy.connection_refused(pod.decode())
        if target.subresource and target.subresource not in kind.subresources:
            raise path_not_found()
        obj = decode_body(
            body, request.headers.get("Content-Type", ""), kind if not target.subresource else None
        )
        namespace = _namespace(target, obj)
        if target.subresource or kind.resource == "bindings":
            return await self._create_subresource(target, namespace, obj, answers)
        _check_type(target, obj)
        created = await self.api.create(kind, namespace, obj, options)
        return answers.object(created, 201)

    async def _create_subresource(
        self, target: Target, namespace: str, obj: dict[str, Any], answers: Answers
    ) -> web.Response:
        kind, name = target.kind, target.name
        metadata = obj.get("metadata")
        if kind.resource == "bindings" and isinstance(metadata, dict):
            name = str(metadata.get("name", ""))
        if target.subresource == "binding" or kind.resource == "bindings":
            return answers.plain(await self.api.bind(namespace, name, obj), 201)
        if target.subresource == "eviction" and "eviction" in kind.subresources:
            return answers.plain(await self.api.evict(namespace, name, obj), 201)
        if target.subresource == "token" and "token" in kind.subresources:
            self.api.stored(kind, namespace, name)
            user, audiences = f"system:serviceaccount:{namespace}:{name}", courtesy.audiences(obj)
            token = self.access.token(user, audiences, *self._bound_to(namespace, name, obj))
            answer = courtesy.token_request(obj, token, audiences, self.api.clock.wall())
            return answers.plain(answer, 201)
        raise path_not_found()

    def _bound_to(self, namespace: str, account: str, obj: dict[str, Any]) -> tuple[str, str]:
        """Return uid and name of the pod for which a token is requested, empty for none."""
        name, uid = courtesy.bound_pod(obj)
        if not name:
            return "", ""
        pods = self.api.registry.by_kind("v1", "Pod")
        assert pods is not None
        pod = self.api.stored(pods, namespace, name).decode()
        found = str(pod["metadata"]["uid"])
        if (pod["spec"].get("serviceAccountName") or "default") != account:
            raise bad_request(f"pod {name} does not run as the service account {account}")
        if uid and uid != found:
            raise conflict(pods, name, f"the pod's uid is {found}, and not {uid}")
        return found, name

    async def _update(
        self, request: web.BaseRequest, target: Target, body: bytes, options: WriteOptions
    ) -> web.Response:
        obj = decode_body(body, request.headers.get("Content-Type", ""), target.kind)
        if target.subresource != "scale":
            _check_type(target, obj)
        updated = await self.api.update(
            target.kind, target.namespace or "", target.name, obj, options, target.subresource
        )
        return self._answers(request, target).object(updated)

    async def _patch(
        self, request: web.BaseRequest, target: Target, body: bytes, options: WriteOptions
    ) -> web.Response:
        kind = target.kind
        content_type = request.headers.get("Content-Type", "").partition(";")[0].strip()
        if content_type not in accepted_types(kind):
            raise unsupported_media_type(accepted_types(kind))
        patch_type = PatchType(content_type)
        if patch_type is PatchType.APPLY and not request.query.get("fieldManager"):
            message = "Required value: is required for apply patch"
            raise invalid(OPTIONS_KIND, "", [Cause("FieldValueRequired", message, "fieldManager")])
        before = self.api.exists(kind, target.namespace or "", target.name)
        patched = await self.api.patch(
            kind,
            target.namespace or "",
            target.name,
            body,
            patch_type,
            options,
            target.subresource,
        )
        answers = self._answers(request, target)
        return answers.object(patched, 200 if before else 201)

    async def _delete(self, request: web.BaseRequest, target: Target, body: bytes) -> web.Response:
        given = decode_body(body, request.headers.get("Content-Type", "")) if body else {}
        options = parse_delete_options(request.query, given)
        result = await self.api.delete(target.kind, target.namespace or "", target.name, options)
        answers = self._answers(request, target)
        return answers.plain(result) if result["kind"] == "Status" else answers.object(result)

    async def _delete_collection(
        self, request: web.BaseRequest, target: Target, body: bytes
    ) -> web.Response:
        given = decode_body(body, request.headers.get("Content-Type", "")) if body else {}
        options = parse_delete_options(request.query, given)
        found = await self.api.list(
            target.kind, target.namespace, selectors=self._selectors(request, target)
        )
        await self.api.delete_all(target.kind, found.stored, options)
        return self._answers(request, target).listed(found)

    async def _review(
        self, request: web.BaseRequest, user: User, target: Target, body: bytes
    ) -> web.Response:
        obj = decode_body(body, request.headers.get("Content-Type", ""), target.kind)
        place = target.namespace or ""
        review = self.access.review(user, target.kind.kind, obj, place, self.api.clock.wall())
        return self._answers(request, target).plain(review, 201)

    # Inside

    def _selectors(self, request: web.BaseRequest, target: Target) -> Selectors:
        custom = target.kind.custom
        return parse_selectors(
            target.kind.resource,
            request.query.get("labelSelector", ""),
            request.query.get("fieldSelector", ""),
            None if custom is None else custom.selectable,
        )

    def _answers(self, request: web.BaseRequest, target: Target) -> Answers:
        return Answers(
            target.kind,
            form_of(request.headers.get("Accept", "")),
            request.query.get("includeObject", "Metadata"),
            self.api.clock,
        )


def failure(error: StatusError) -> web.Response:
    """Return the answer that states what was refused."""
    return web.Response(
        status=error.code,
        body=orjson.dumps(error.status()) + b"\n",
        content_type="application/json",
        headers=error.headers,
    )


def _names_resource(segments: list[str]) -> bool:
    return (segments[0] == "api" and len(segments) > 2) or (
        segments[0] == "apis" and len(segments) > 3
    )


def _namespace(target: Target, obj: dict[str, Any]) -> str:
    """Return the namespace of a create; a path over all namespaces leaves it to the object."""
    if target.namespace is not None:
        return target.namespace
    metadata = obj.get("metadata")
    named = metadata.get("namespace") if isinstance(metadata, dict) else None
    if not isinstance(named, str) or not named:
        raise method_not_allowed()
    return named


def _check_type(target: Target, obj: dict[str, Any]) -> None:
    """Refuse an object of another kind than the path's."""
    kind = target.kind
    sent = (obj.get("apiVersion"), obj.get("kind"))
    if sent == (None, None):
        obj["apiVersion"], obj["kind"] = kind.api_version, kind.kind
    elif sent != (kind.api_version, kind.kind):
        raise other_kind(kind, *sent)


async def _body(request: web.BaseRequest) -> bytes:
    if (request.content_length or 0) > BODY_LIMIT:
        raise too_large(BODY_LIMIT)
    parts: list[bytes] = []
    size = 0
    async for part in request.content.iter_any():
        size += len(part)
        if size > BODY_LIMIT:
            raise too_large(BODY_LIMIT)
        parts.append(part)
    return b"".join(parts)
