"""Roles that are enforced: a user may do what some binding gives, in the real server's words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubelocal.cluster import EmbeddedCluster
from kubelocal.tests.server.builders import CONFIG_MAPS, PODS, Client, config_map, pod

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(rbac=True) as running:
        yield running


@pytest.fixture
async def alice(cluster: EmbeddedCluster) -> AsyncIterator[Client]:
    async with Client(cluster, "alice") as open_client:
        yield open_client


def role(name: str, verbs: list[str], resources: list[str], **rule: Any) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": resources, "verbs": verbs, **rule}],
    }


def binding(name: str, kind: str, bound: str, subject_kind: str, subject: str) -> dict[str, Any]:
    who: dict[str, Any] = {"kind": subject_kind, "name": subject}
    if subject_kind == "ServiceAccount":
        who["namespace"] = "default"
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": bound},
        "subjects": [who],
    }


async def test_a_token_holds_for_whom_it_was_made_and_until_it_is_revoked(
    cluster: EmbeddedCluster,
) -> None:
    async def reviewed(token: str, audiences: list[str]) -> dict[str, Any]:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "metadata": {},
            "spec": {"token": token, "audiences": audiences},
        }
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        async with Client(cluster) as administrator:
            _, answer = await administrator.request("POST", path, body)
        status: dict[str, Any] = answer["status"]
        return status

    ours, plain = cluster.token("alice", ["page", "other"]), cluster.token("alice")

    assert (await reviewed(ours, ["page"]))["audiences"] == ["page"]
    assert (await reviewed(ours, ["page"]))["user"]["username"] == "alice"
    assert (await reviewed(plain, []))["authenticated"]
    assert await reviewed(plain, ["page"]) == {
        "user": {},
        "error": '[invalid bearer token, token audiences ["https://kubernetes.default.svc.cluster'
        '.local"] is invalid for the target audiences ["page"]]',
    }
    assert await reviewed(ours.replace("~", "."), ["page"]) == {
        "user": {},
        "error": "invalid bearer token",
    }
    cluster.revoke(ours)
    assert await reviewed(ours, ["page"]) == {"user": {}, "error": "invalid bearer token"}


async def test_a_token_that_is_bound_to_a_pod_is_reviewed_with_its_uid(
    cluster: EmbeddedCluster,
) -> None:
    account = "system:serviceaccount:default:train"

    async def reviewed(token: str, *audiences: str) -> dict[str, Any]:
        body = {"metadata": {}, "spec": {"token": token, "audiences": list(audiences)}}
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        kinds = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
        async with Client(cluster) as administrator:
            _, answer = await administrator.request("POST", path, {**kinds, **body})
        status: dict[str, Any] = answer["status"]
        return status

    for audiences in ((), ("page",)):
        bound = cluster.token(account, audiences, pod_uid="uid~1.2")
        status = await reviewed(bound, *audiences)
        assert status["authenticated"]
        assert status["user"]["username"] == account
        assert status["user"]["extra"] == {"authentication.kubernetes.io/pod-uid": ["uid~1.2"]}
        other = await reviewed(cluster.token(account, audiences), *audiences)
        assert "extra" not in other["user"]


async def test_without_a_binding_nothing_but_discovery_is_allowed(alice: Client) -> None:
    answers = [
        await alice.request("GET", PODS),
        await alice.request("GET", "/api/v1/pods"),
        await alice.request("DELETE", f"{CONFIG_MAPS}/x"),
        await alice.request("GET", "/metrics"),
        await alice.request("GET", "/api"),
        await alice.request("GET", "/version"),
    ]

    assert [code for code, _ in answers] == [403, 403, 403, 403, 200, 200]
    assert [body["message"] for _, body in answers[:4]] == [
        (
            'pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the '
            'namespace "default"'
        ),
        (
            'pods is forbidden: User "alice" cannot list resource "pods" in API group "" at the '
            "cluster scope"
        ),
        (
            'configmaps "x" is forbidden: User "alice" cannot delete resource "configmaps" in API '
            'group "" in the namespace "default"'
        ),
        'forbidden: User "alice" cannot get path "/metrics"',
    ]
    assert answers[2][1]["details"] == {"kind": "configmaps", "name": "x"}


async def test_a_role_gives_its_verbs_in_its_namespace_only(client: Client, alice: Client) -> None:
    await client.create(ROLES, role("reader", ["get", "list"], ["pods"]))
    await client.create(BINDINGS, binding("alice", "Role", "reader", "User", "alice"))

    codes = [
        (await alice.request(method, path))[0]
        for method, path in (
            ("GET", PODS),
            ("GET", f"{PODS}/none"),
            ("DELETE", f"{PODS}/none"),
            ("GET", f"{PODS}/none/log"),
            ("GET", "/api/v1/namespaces/kube-system/pods"),
            ("GET", "/api/v1/pods"),
        )
    ]
    assert codes == [200, 404, 403, 403, 403, 403]


async def test_a_rule_with_names_covers_those_objects(client: Client, alice: Client) -> None:
    names = {"resourceNames": ["a"]}
    await client.create(ROLES, role("one", ["get", "update"], ["configmaps"], **names))
    await client.create(BINDINGS, binding("alice", "Role", "one", "User", "alice"))
    await client.create(CONFIG_MAPS, config_map("a"))

    codes = [
        (await alice.request("GET", path))[0]
        for path in (f"{CONFIG_MAPS}/a", f"{CONFIG_MAPS}/b", CONFIG_MAPS)
    ]
    assert codes == [200, 403, 403]


async def test_a_change_of_roles_holds_at_once(client: Client, alice: Client) -> None:
    await client.create(BINDINGS, binding("alice", "Role", "later", "User", "alice"))
    before = await alice.request("GET", PODS)
    await client.create(ROLES, role("later", ["list"], ["pods"]))
    allowed = await alice.request("GET", PODS)
    await client.merge(f"{ROLES}/later", {"rules": []})
    after = await alice.request("GET", PODS)

    assert (before[0], allowed[0], after[0]) == (403, 200, 403)
    assert before[1]["message"].endswith(
        'in the namespace "default": RBAC: role.rbac.authorization.k8s.io "later" not found'
    )


async def test_view_edit_and_admin_build_on_each_other_and_on_labelled_roles(
    client: Client, cluster: EmbeddedCluster
) -> None:
    extra = {
        **role("more", ["list"], ["nodes"]),
        "kind": "ClusterRole",
        "metadata": {
            "name": "more",
            "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"},
        },
    }
    extra["rules"][0]["resources"] = ["replicationcontrollers/dummy"]
    await client.create(f"{RBAC}/clusterroles", extra)
    found = {}
    for name in ("view", "edit", "admin"):
        await client.create(BINDINGS, binding(name, "ClusterRole", name, "User", name))
        async with Client(cluster, name) as user:
            found[name] = [
                (await user.request("GET", PODS))[0],
                (await user.request("POST", PODS, pod(f"by-{name}")))[0],
                (await user.request("GET", "/api/v1/namespaces/default/secrets"))[0],
                (await user.request("GET", ROLES))[0],
                await may(user, "list", "replicationcontrollers", "dummy"),
            ]

    assert found == {
        "view": [200, 403, 403, 403, True],
        "edit": [200, 201, 200, 403, True],
        "admin": [200, 201, 200, 200, True],
    }


async def may(user: Client, verb: str, resource: str, subresource: str = "") -> bool:
    attributes = {"namespace": "default", "verb": verb, "resource": resource}
    review = {"spec": {"resourceAttributes": {**attributes, "subresource": subresource}}}
    answer = await user.create(f"{AUTHORIZATION}/selfsubjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


async def test_a_service_account_acts_with_the_token_that_it_is_given(
    client: Client, cluster: EmbeddedCluster
) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await client.create(accounts, account)
    await client.create(ROLES, role("reader", ["list"], ["pods"]))
    await client.create(BINDINGS, binding("robot", "Role", "reader", "ServiceAccount", "robot"))
    issued = await client.create(f"{accounts}/robot/token", {"spec": {}})
    async with Client(cluster) as robot:
        robot.session.headers["Authorization"] = f"Bearer {issued['status']['token']}"
        listed, _ = await robot.request("GET", PODS)
        created, _ = await robot.request("POST", PODS, pod())
        review = await robot.create(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
        )

    assert (listed, created) == (200, 403)
    assert review["status"]["userInfo"] == {
        "username": "system:serviceaccount:default:robot",
        "groups": [
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated",
        ],
    }


async def test_only_who_may_impersonate_does(client: Client, alice: Client) -> None:
    client.session.headers["Impersonate-User"] = "bob"
    client.session.headers["Impersonate-Group"] = "system:masters"
    as_master, _ = await client.request("GET", PODS)
    del client.session.headers["Impersonate-Group"]
    as_bob, _ = await client.request("GET", PODS)
    alice.session.headers["Impersonate-User"] = "admin"
    refused, body = await alice.request("GET", PODS)

    assert (as_master, as_bob, refused) == (200, 403, 403)
    assert body["message"] == (
        'users "admin" is forbidden: User "alice" cannot impersonate resource "users" in API '
        'group "" at the cluster scope'
    )


async def test_reviews_say_who_may_what_and_why(client: Client, alice: Client) -> None:
    await client.create(ROLES, role("reader", ["get"], ["pods"]))
    await client.create(BINDINGS, binding("team", "Role", "reader", "Group", "team"))
    wanted = {"namespace": "default", "verb": "get", "resource": "pods"}
    spec = {"resourceAttributes": wanted, "user": "carol", "groups": ["team"]}
    review = await client.create(f"{AUTHORIZATION}/subjectaccessreviews", {"spec": spec})
    own = await alice.create(
        f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": wanted}}
    )
    denied, _ = await alice.request("POST", f"{AUTHORIZATION}/subjectaccessreviews", {"spec": spec})
    rules = await alice.create(
        f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}
    )

    assert review["status"] == {
        "allowed": True,
        "reason": 'RBAC: allowed by RoleBinding "team/default" of Role "reader" to Group "team"',
    }
    assert (own["status"], denied) == ({"allowed": False}, 403)
    assert [one["resources"] for one in rules["status"]["resourceRules"]] == [
        ["selfsubjectaccessreviews"],
        ["selfsubjectrulesreviews"],
        ["selfsubjectreviews"],
    ]
    assert {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version"]} in [
        {**one, "nonResourceURLs": [path for path in one["nonResourceURLs"] if path[-1] != "/"]}
        for one in rules["status"]["nonResourceRules"]
    ]


async def test_a_list_or_watch_of_one_name_is_covered_by_a_rule_with_that_name(
    client: Client, alice: Client
) -> None:
    names = {"resourceNames": ["a"]}
    await client.create(ROLES, role("one", ["list"], ["configmaps"], **names))
    await client.create(BINDINGS, binding("alice", "Role", "one", "User", "alice"))

    codes = [
        (await alice.request("GET", CONFIG_MAPS, fieldSelector=selector))[0]
        for selector in ("metadata.name=a", "metadata.name=b", "metadata.name!=a")
    ]
    assert codes == [200, 403, 403]


async def test_nobody_gives_rights_that_they_lack(client: Client, alice: Client) -> None:
    own = role("own", ["get", "list"], ["pods"])
    own["rules"].append(
        {
            "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["roles", "rolebindings"],
            "verbs": ["create", "update", "get"],
        }
    )
    await client.create(ROLES, own)
    await client.create(BINDINGS, binding("own", "Role", "own", "User", "alice"))
    await client.create(ROLES, role("secret", ["get", "list"], ["secrets", "pods"]))

    made = await alice.create(ROLES, role("less", ["get"], ["pods"]))
    code, body = await alice.request("POST", ROLES, role("more", ["get", "watch"], ["pods"]))
    assert (code, body["message"]) == (
        403,
        (
            'roles.rbac.authorization.k8s.io "more" is forbidden: user "alice" '
            '(groups=["system:authenticated"]) is attempting to grant RBAC permissions not '
            'currently held:\n{APIGroups:[""], Resources:["pods"], Verbs:["watch"]}'
        ),
    )
    made["rules"][0]["verbs"] = ["*"]
    code, body = await alice.request("PUT", f"{ROLES}/less", made)
    assert (code, body["message"].endswith('Resources:["pods"], Verbs:["*"]}')) == (403, True)
    bound = binding("grab", "Role", "secret", "User", "alice")
    code, body = await alice.request("POST", BINDINGS, bound)
    assert code == 403
    assert body["message"].endswith('{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}')
    await alice.create(BINDINGS, binding("fine", "Role", "own", "User", "bob"))


async def test_who_may_escalate_or_bind_need_not_hold_the_rights(
    client: Client, alice: Client
) -> None:
    everything = role("own", ["*"], ["roles", "rolebindings"])
    everything["rules"][0]["apiGroups"] = ["rbac.authorization.k8s.io"]
    await client.create(ROLES, everything)
    await client.create(BINDINGS, binding("own", "Role", "own", "User", "alice"))
    await alice.create(ROLES, role("more", ["get"], ["secrets"]))
    await alice.create(BINDINGS, binding("more", "Role", "more", "User", "alice"))


async def test_a_token_is_bound_to_a_pod_of_its_account_and_to_nothing_else(
    cluster: EmbeddedCluster,
) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "train"}}
    path = "/api/v1/namespaces/default/serviceaccounts/train/token"

    async with Client(cluster) as administrator:
        await administrator.request("POST", "/api/v1/namespaces/default/serviceaccounts", account)
        for name, user in (("mine", "train"), ("others", "other")):
            made = pod(name)
            made["spec"]["serviceAccountName"] = user
            await administrator.request("POST", PODS, made)
        _, mine = await administrator.request("GET", f"{PODS}/mine")
        uid = mine["metadata"]["uid"]

        async def asked(**bound: str) -> tuple[int, dict[str, Any]]:
            spec = {"audiences": ["page"], "boundObjectRef": bound}
            return await administrator.request("POST", path, {"spec": spec})

        pods = {"apiVersion": "v1", "kind": "Pod"}
        statuses = [
            (await asked(**bound))[0]
            for bound in (
                {**pods, "name": "mine", "uid": uid},
                {**pods, "name": "mine"},
                {**pods, "name": "mine", "uid": "another"},
                {**pods, "name": "others"},
                {**pods, "name": "gone"},
                {"apiVersion": "v1", "kind": "Secret", "name": "mine"},
            )
        ]
        assert statuses == [201, 201, 409, 400, 404, 400]

        _, answer = await asked(**pods, name="mine")
        review = {"spec": {"token": answer["status"]["token"], "audiences": ["page"]}}
        reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
        _, reviewed = await administrator.request("POST", reviews, review)
        assert reviewed["status"]["user"]["extra"] == {
            "authentication.kubernetes.io/pod-name": ["mine"],
            "authentication.kubernetes.io/pod-uid": [uid],
        }
