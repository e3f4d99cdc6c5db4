"""Requests: who sends them, what they name, and which verb answers them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp import web

from . import discovery, exchange, lists, patches, podlogs, reviews, scales
from .access import Attributes, User, escalation
from .audit import AuditLog
from .cluster import Cluster
from .deletions import DeleteOptions
from .failures import (
    ApiError,
    PageNotFoundError,
    bad_request,
    method_not_allowed,
    method_not_supported,
    no_such_page,
    not_found,
    unauthorized,
    unsupported_media,
)
from .kinds import Resource, dig
from .lists import Selection, View
from .openapi import Documents
from .paths import ResourcePath, parse
from .release import SERVER_HEADER, VERSION
from .schema import JsonDict
from .store import Stored
from .watches import Watch
from .writes import Target, Write

_RBAC = "rbac.authorization.k8s.io"
_HEALTH = ("/healthz", "/readyz", "/livez", "/healthz/ping", "/readyz/ping", "/livez/ping")
_CUSTOM_PATCHES = (patches.JSON_PATCH, patches.MERGE_PATCH, patches.APPLY_PATCH)
_PATCHES = (patches.JSON_PATCH, patches.MERGE_PATCH, patches.STRATEGIC_PATCH, patches.APPLY_PATCH)
_WATCH_SECONDS = (1800, 3600)
_TRUE = ("true", "1")
# Called before each request with its method and path; an error it gives is the answer, and it may wait.
Fault = Callable[[str, str], Awaitable[ApiError | None]]


class Handlers:
    """Answers HTTP requests from a cluster."""

    def __init__(self, cluster: Cluster, address: str, session: aiohttp.ClientSession, audit: AuditLog) -> None:
        self.cluster = cluster
        self.address = address
        self.session = session
        self.audit = audit
        self.documents = Documents(cluster.registry)
        self.watches: set[Watch] = set()
        self.fault: Fault | None = None

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        try:
            if self.fault is not None:
                problem = await self.fault(request.method, request.path_qs)
                if problem is not None:
                    return exchange.failure(problem)
            return await self._answer(request)
        except ApiError as problem:
            return exchange.failure(problem)
        except PageNotFoundError:
            return exchange.plain("404 page not found\n", 404)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        user = self.cluster.authenticator.user_of(request.headers.get("Authorization"))
        if user is None:
            raise unauthorized()
        path = parse(request.path)
        if path is None or not path.plural:
            self.cluster.authorizer.require(user, Attributes(request.method.lower(), path=request.path))
            return self._answer_other(request, path)
        return await self._answer_resource(request, path, user)

    # -- what is no resource --------------------------------------------------------------------------------------

    def _answer_other(self, request: web.BaseRequest, path: ResourcePath | None) -> web.StreamResponse:
        if path is not None:
            return self._discover(request, path)
        where = request.path.rstrip("/")
        if where in _HEALTH:
            return exchange.plain("ok")
        if where == "/version":
            return exchange.answer(VERSION)
        if where == "/openapi/v3":
            return exchange.answer(self.documents.index())
        if where.startswith("/openapi/v3/"):
            return exchange.encoded(self.documents.find(where.removeprefix("/openapi/v3/")))
        if where == "":
            return exchange.answer(
                {"paths": ["/api", "/api/v1", "/apis", "/healthz", "/openapi/v3", "/readyz", "/version"]}
            )
        raise PageNotFoundError(where)

    def _discover(self, request: web.BaseRequest, path: ResourcePath) -> web.StreamResponse:
        registry = self.cluster.registry
        aggregated = discovery.wants_aggregated(request.headers.get("Accept", ""))
        if not path.group and not path.version:
            if aggregated:
                return exchange.answer(discovery.aggregated(registry, path.core), content_type=discovery.AGGREGATED)
            return exchange.answer(
                discovery.api_versions(self.address) if path.core else discovery.group_list(registry)
            )
        if path.group not in registry.group_order or (
            path.version and path.version not in registry.versions(path.group)
        ):
            raise PageNotFoundError(request.path)
        if not path.version:
            return exchange.answer(discovery.group(registry, path.group))
        return exchange.answer(discovery.resource_list(registry, path.group, path.version))

    # -- resources ------------------------------------------------------------------------------------------------

    async def _answer_resource(self, request: web.BaseRequest, path: ResourcePath, user: User) -> web.StreamResponse:
        verb = _verb(request, path)
        namespace = path.name if path.plural == "namespaces" and not path.group else path.namespace
        wanted = Attributes(verb, path.group, path.plural, path.part, namespace, path.name)
        self.audit.record(user, wanted)
        self.cluster.authorizer.require(user, wanted)
        resource = self._resource(path, verb)
        target = Target(resource, path.namespace, path.name, path.part)
        if path.part:
            return await self._answer_part(request, target, verb)
        return await self._answer_object(request, target, verb, user)

    def _resource(self, path: ResourcePath, verb: str) -> Resource:
        """The resource a path leads to. Raises what a path to nowhere is answered with."""
        registry = self.cluster.registry
        resource = registry.find(path.group, path.version, path.plural)
        if resource is not None and resource.custom and path.part and path.part not in resource.subresources:
            raise not_found(resource.group, resource.plural, path.name)
        lost = resource is None or path.rest or (path.part and path.part not in resource.subresources)
        if resource is not None and resource.namespaced and not path.namespace:
            lost = lost or path.name or verb not in ("list", "watch")
        if resource is not None and not lost and (resource.namespaced or not path.namespace):
            return resource
        known = [found for found in registry.of_group(path.group) if found.version == path.version]
        if known and not known[0].custom:
            raise no_such_page()
        raise PageNotFoundError(path.plural)

    async def _answer_object(
        self, request: web.BaseRequest, target: Target, verb: str, user: User
    ) -> web.StreamResponse:
        resource = target.resource
        if verb not in resource.verbs:
            raise method_not_allowed()
        if verb == "watch":
            return await self._watch(request, target)
        if verb == "list":
            return self._list(request, target)
        if verb == "get":
            return self._object(request, target, self.cluster.writer.stored(target))
        if verb == "create":
            return await self._create(request, target, user)
        if verb == "update":
            return await self._update(request, target, user)
        if verb == "patch":
            return await self._patch(request, target, user)
        if verb == "delete":
            options = DeleteOptions.read(await exchange.options_body(request), dict(request.query))
            return exchange.answer(self.cluster.deleter.delete(target, options))
        return await self._delete_collection(request, target)

    def _object(
        self, request: web.BaseRequest, target: Target, stored: Stored, code: int = 200, write: Write | None = None
    ) -> web.Response:
        view = View.read(request.headers.get("Accept", ""), dict(request.query))
        body = lists.encode_object(target.resource, stored, view, self.cluster.clock)
        return exchange.encoded(body, code, warnings=write.warnings if write else None)

    def _list(self, request: web.BaseRequest, target: Target) -> web.Response:
        query = dict(request.query)
        selection = Selection.read(target.resource, target.namespace, query)
        found = lists.page(self.cluster.store, target.resource, selection, query)
        view = View.read(request.headers.get("Accept", ""), query)
        return exchange.encoded(lists.encode_list(target.resource, found, view, self.cluster.clock))

    async def _watch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        query, resource = dict(request.query), target.resource
        selection = Selection.read(resource, target.namespace, query, target.name)
        version = lists.check_version(query, watching=True)
        seconds = _seconds(query.get("timeoutSeconds"))
        view = View.read(request.headers.get("Accept", ""), query)
        watch = Watch(self.cluster.store, resource, selection, view, self.cluster.clock)
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Server": SERVER_HEADER})
        response.enable_chunked_encoding()
        await response.prepare(request)
        self.watches.add(watch)
        try:
            async for line in watch.lines(query, version, seconds):
                await response.write(line)
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            # The client went away; there is nobody to tell.
            return response
        finally:
            self.watches.discard(watch)
        return response

    async def _create(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        resource = target.resource
        if target.name and not resource.custom:
            raise method_not_allowed()
        body = await exchange.body_of(request)
        write = exchange.write_of(request, "CreateOptions")
        if resource.verbs == ("create",):
            review = reviews.answer(self.cluster.writer, self.cluster.authorizer, resource, body, user, write)
            return exchange.answer(review, 201, warnings=write.warnings)
        self._forbid_escalation(target, body, user)
        return self._object(request, target, self.cluster.writer.create(target, body, write), 201, write)

    async def _update(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        body = await exchange.body_of(request)
        write = exchange.write_of(request, "UpdateOptions")
        if not target.part:
            self._forbid_escalation(target, body, user)
        stored, created = self.cluster.writer.update(target, body, write)
        return self._object(request, target, stored, 201 if created else 200, write)

    async def _patch(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        resource, kind = target.resource, exchange.media_type(request)
        accepted = _CUSTOM_PATCHES if resource.custom else _PATCHES
        if kind not in accepted:
            raise unsupported_media(accepted)
        body = await exchange.body_of(request, accepted)
        write = exchange.write_of(request, "PatchOptions", applying=kind == patches.APPLY_PATCH)
        if kind == patches.APPLY_PATCH:
            if not target.part:
                self._require_create(target, user)
                self._forbid_escalation(target, body, user)
            stored, created = self.cluster.writer.apply(target, body, write)
            return self._object(request, target, stored, 201 if created else 200, write)

        def change(before: JsonDict) -> JsonDict:
            after = _patched(resource, before, body, kind)
            if not target.part:
                self._forbid_escalation(target, after, user)
            return after

        return self._object(request, target, self.cluster.writer.patch(target, change, write), write=write)

    async def _delete_collection(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        options = DeleteOptions.read(await exchange.options_body(request), dict(request.query))
        query = {key: value for key, value in request.query.items() if key in ("labelSelector", "fieldSelector")}
        selection = Selection.read(target.resource, target.namespace, query)
        found = lists.page(self.cluster.store, target.resource, selection, query)
        self.cluster.deleter.delete_collection(target.resource, found.items, options)
        return exchange.encoded(lists.encode_list(target.resource, found, View(), self.cluster.clock))

    def _require_create(self, target: Target, user: User) -> None:
        """An apply that would make an object needs the right to create it as well."""
        resource = target.resource
        if self.cluster.store.get(resource.storage, target.key) is None:
            wanted = Attributes("create", resource.group, resource.plural, "", target.namespace, target.name)
            self.audit.record(user, wanted)
            self.cluster.authorizer.require(user, wanted)

    def _forbid_escalation(self, target: Target, body: Any, user: User) -> None:
        """Nobody may grant by role or binding what they do not hold themselves."""
        resource, authorizer = target.resource, self.cluster.authorizer
        if resource.group != _RBAC or not isinstance(body, dict):
            return
        rules = body.get("rules") or []
        verb = "escalate"
        if "roleRef" in body and isinstance(body["roleRef"], dict):
            rules = authorizer.role_rules({"kind": "", "name": "", **body["roleRef"]}, target.namespace)
            verb = "bind"
        name = str(dig(body, "metadata", "name") or "")
        if authorizer.decide(user, Attributes(verb, _RBAC, resource.plural, "", target.namespace, name)).allowed:
            return
        missing = authorizer.missing(user, target.namespace, rules)
        if missing:
            raise escalation(user, resource.group, resource.plural, name, missing)

    # -- parts of objects -----------------------------------------------------------------------------------------

    async def _answer_part(self, request: web.BaseRequest, target: Target, verb: str) -> web.StreamResponse:
        resource = target.resource
        if verb not in resource.subresources[target.part]:
            if resource.custom:
                raise method_not_supported(resource.group, resource.plural, verb)
            raise method_not_allowed()
        if target.part == "log":
            return await podlogs.stream(request, self.cluster, target, self.session)
        if target.part == "scale":
            return await self._answer_scale(request, target, verb)
        if target.part in ("eviction", "binding"):
            body = await exchange.body_of(request)
            write = exchange.write_of(request, "CreateOptions")
            if target.part == "eviction":
                return exchange.answer(self.cluster.deleter.evict(target, body, write), 201)
            return exchange.answer(self._bind(target, body, write), 201)
        if target.part == "finalize":
            return await self._finalize(request, target)
        if verb == "get":
            return self._object(request, target, self.cluster.writer.stored(target))
        nobody = User("")
        return await (
            self._update(request, target, nobody) if verb == "update" else self._patch(request, target, nobody)
        )

    async def _answer_scale(self, request: web.BaseRequest, target: Target, verb: str) -> web.StreamResponse:
        resource, writer = target.resource, self.cluster.writer
        stored = writer.stored(target)
        if verb == "get":
            return exchange.answer(scales.scale_of(resource, stored))
        current = scales.scale_of(resource, stored)
        if verb == "update":
            body = await exchange.body_of(request)
            write = exchange.write_of(request, "UpdateOptions")
        else:
            kind = exchange.media_type(request)
            if kind not in (patches.JSON_PATCH, patches.MERGE_PATCH, patches.STRATEGIC_PATCH):
                raise unsupported_media((patches.JSON_PATCH, patches.MERGE_PATCH))
            patch = await exchange.body_of(request, (kind,))
            write = exchange.write_of(request, "PatchOptions")
            body = (
                patches.json_patch(current, patch)
                if kind == patches.JSON_PATCH
                else patches.merge_patch(current, patch)
            )
        changed = scales.with_scale(resource, resource.outward(stored.obj), body)
        path = tuple(f"f:{key}" for key in scales.replicas_path(resource))
        whole = Target(resource, target.namespace, target.name)
        result = writer.change_part(whole, stored, changed, write, "scale", path)
        return exchange.answer(scales.scale_of(resource, result))

    def _bind(self, target: Target, body: JsonDict, write: Write) -> JsonDict:
        """Place a pod on a node, as a scheduler does."""
        writer = self.cluster.writer
        pod = writer.stored(target)
        node = dig(body, "target", "name")
        if not node:
            raise bad_request("target.name is required")
        writer.assign(Target(target.resource, target.namespace, target.name), pod, node, write)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    async def _finalize(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        body = await exchange.body_of(request)
        stored = self.cluster.writer.stored(target)
        finalizers = list(dig(body, "spec", "finalizers") or ())
        return exchange.answer(self.cluster.finalize_namespace(stored, finalizers).obj)


def _verb(request: web.BaseRequest, path: ResourcePath) -> str:
    method = request.method
    if method in ("GET", "HEAD"):
        watching = request.query.get("watch") in _TRUE and not path.part
        if watching:
            return "watch"
        return "get" if path.name else "list"
    if method == "DELETE":
        return "delete" if path.name else "deletecollection"
    verb = {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(method)
    if verb is None or (verb in ("update", "patch") and not path.name):
        raise method_not_allowed()
    return verb


def _patched(resource: Resource, before: JsonDict, body: Any, kind: str) -> JsonDict:
    if kind == patches.JSON_PATCH:
        return patches.json_patch(before, body)
    if not isinstance(body, dict):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        )
    if kind == patches.STRATEGIC_PATCH:
        return patches.strategic_merge(resource.schema, before, body)
    merged: JsonDict = patches.merge_patch(before, body)
    return merged


def _seconds(text: str | None) -> float:
    if text and text.isdigit() and int(text) > 0:
        return float(text)
    return random.uniform(*_WATCH_SECONDS)  # noqa: S311
