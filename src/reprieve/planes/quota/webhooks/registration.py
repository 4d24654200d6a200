"""Registration of the webhooks: configurations, and the conversion of Kueue's kinds.

Both configurations are applied whole, so that a removed hook does not linger. The chart makes them,
empty, so that the operator needs the right to patch these two alone and they are deleted with the
release; where it may create them it does. Definitions of Kueue's kinds refer to the conversion
webhook only where they are ours, by their label: those of a Kueue beside us keep its own. Where
cert-manager keeps the certificate, its annotation stands in place of the authority.

Source: specification of the quota plane, sections 1.5 and 12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reprieve.api.crds import KUEUE_NAMES, load
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError, Forbidden, NotFound
from reprieve.kube.own_objects import OURS, is_ours
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, Resource
from reprieve.planes.quota.webhooks.reviews import Hook, Json

__all__ = [
    "CONFIGURATIONS",
    "CONVERT",
    "MUTATING",
    "VALIDATING",
    "Place",
    "configurations",
    "register_webhooks",
]

_GROUP: Final = "admissionregistration.k8s.io"
MUTATING: Final = Resource(
    _GROUP, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False
)
VALIDATING: Final = Resource(
    _GROUP,
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
CONVERT: Final = "/convert"
#: Name of both configurations.
CONFIGURATIONS: Final = "reprieve-quota"
_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class Place:
    """Where the API server finds the webhooks, and whom it trusts there.

    `url` without a path, for a server outside the cluster; else the Service. `bundle` is empty
    where another tool injects the authority, by the `annotations` of the configurations.
    """

    namespace: str = ""
    service: str = "reprieve-webhook"
    port: int = 443
    url: str = ""
    bundle: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    def client_config(self, path: str) -> Json:
        """Return the `clientConfig` of the webhook at `path`."""
        trust = {"caBundle": self.bundle} if self.bundle else {}
        if self.url:
            return {"url": f"{self.url}{path}", **trust}
        service = {
            "namespace": self.namespace,
            "name": self.service,
            "port": self.port,
            "path": path,
        }
        return {"service": service, **trust}


def configurations(name: str, hooks: Iterable[Hook], place: Place) -> tuple[Json, Json]:
    """Return the mutating and the validating configuration, both called `name`."""
    listed = list(hooks)
    metadata: Json = {"name": name, "labels": dict(OURS)}
    if place.annotations:
        metadata["annotations"] = dict(place.annotations)
    mutating, validating = (
        {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
            "webhooks": [_webhook(hook, place) for hook in listed if hook.mutating is changing],
        }
        for resource, changing in ((MUTATING, True), (VALIDATING, False))
    )
    return mutating, validating


async def register_webhooks(
    client: Client, name: str, hooks: Iterable[Hook], place: Place
) -> tuple[str, ...]:
    """Register all hooks and the conversion; repeating it changes nothing.

    Returns:
        The definitions of Kueue's kinds that are missing or not ours.

    Raises:
        ApiError: the server refuses.
    """
    for resource, wanted in zip(
        (MUTATING, VALIDATING), configurations(name, hooks, place), strict=True
    ):
        try:
            await client.apply(resource, wanted, dict, force=True)
        except Forbidden as error:
            if '"create"' not in (error.rule or ""):
                raise
            raise ApiError(
                f"there is no {resource.kind} {name}, and it may not be created; accepted: that "
                "right, or `reprieve webhooks | kubectl apply -f -`, which the chart does",
                code=error.code,
                call=error.call,
            ) from None
    foreign = []
    for crd in KUEUE_NAMES:
        if not await _point(client, crd, place):
            foreign.append(crd)
    return tuple(foreign)


async def _point(client: Client, name: str, place: Place) -> bool:
    """Name the conversion webhook in a definition; return whether it is there and ours."""
    try:
        crd: Json = await client.get(CUSTOM_RESOURCE_DEFINITIONS, "", name, dict)
    except NotFound:
        return False
    if not is_ours(crd):
        return False
    wanted = place.client_config(CONVERT)
    if "conversion" in load(name)["spec"]:
        await client.modify(
            CUSTOM_RESOURCE_DEFINITIONS, "", name, _pointed(wanted, keeps_bundle=not place.bundle)
        )
    return True


def _pointed(wanted: Json, *, keeps_bundle: bool) -> Callable[[Json], Json | None]:
    def change(crd: Json) -> Json | None:
        # `reprieve uninstall` has set it to None; fields that differ would be lost so.
        conversion = crd["spec"].setdefault("conversion", {})
        converted = conversion.get("strategy") == "Webhook"
        webhook = conversion.get("webhook") or {}
        before = webhook.get("clientConfig") or {}
        after = dict(wanted)
        if keeps_bundle and before.get("caBundle"):
            after["caBundle"] = before["caBundle"]
        if converted and before == after:
            return None
        webhook |= {"clientConfig": after, "conversionReviewVersions": ["v1"]}
        conversion |= {"strategy": "Webhook", "webhook": webhook}
        return crd

    return change


def _webhook(hook: Hook, place: Place) -> Json:
    found: dict[str, Any] = {
        "name": hook.name,
        "clientConfig": place.client_config(hook.path),
        "rules": [
            {
                "apiGroups": [hook.group],
                "apiVersions": [hook.version],
                "resources": list(hook.resources),
                "operations": list(hook.operations),
                "scope": "*",
            }
        ],
        "failurePolicy": hook.failure_policy,
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": _SECONDS,
        "admissionReviewVersions": ["v1"],
    }
    if hook.namespace_selector is not None:
        found["namespaceSelector"] = dict(hook.namespace_selector)
    return found
