"""Claims on a kwok cluster of their own: a storm while the controller and the API server are killed, a hostile tenant,
and what is said of bad input. No Sandbox is adopted twice, no Pod is doubled, none is lost."""

import collections
import itertools
import json
import subprocess
import threading

import pytest
from conftest import HERE, Kubectl
from rig.api import Api, ApiError, wait_for
from test_storm import COUNT, SEED, Controller, User, kwok, make_namespace, ready

EXTENSIONS = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/"
POOL = 30
POD = {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "busybox:1.36"}]}


@pytest.fixture(scope="module")
def fake():
    with kwok("claims") as one:
        yield one


@pytest.fixture
def controller(fake, tmp_path):
    one = Controller(fake, tmp_path / "controller.log")
    yield one
    one.end()


@pytest.fixture
def kubectl(fake):
    return Kubectl(fake)


def extension(kind, name, namespace="default", **spec):
    return {
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def template(name="template", namespace="default", **spec):
    return extension("SandboxTemplate", name, namespace, podTemplate={"spec": POD}, **spec)


def pool(name="pool", namespace="default", replicas=2, of="template", **spec):
    return extension("SandboxWarmPool", name, namespace, replicas=replicas, sandboxTemplateRef={"name": of}, **spec)


def claim(name, namespace="default", of="pool", **spec):
    return extension("SandboxClaim", name, namespace, warmPoolRef={"name": of}, **spec)


def owner(item, kind=None):
    """The uid of its controller, if that is of this kind."""
    return next(
        (
            r["uid"]
            for r in item["metadata"].get("ownerReferences", [])
            if r.get("controller") and kind in (None, r["kind"])
        ),
        None,
    )


def ready_of(kubectl, name, namespace="default"):
    found = kubectl.get("sandboxclaim", name, "-n", namespace)
    return {c["type"]: c for c in found.get("status", {}).get("conditions", [])}.get("Ready", {})


def bound(kubectl, name, namespace="default"):
    """The Sandbox of a claim, once it is Ready."""
    wait_for(f"{name} is Ready", 60, lambda: ready_of(kubectl, name, namespace).get("status") == "True")
    return kubectl.get("sandboxclaim", name, "-n", namespace)["status"]["sandbox"]["name"]


def full(kubectl, name="pool", namespace="default", count=2):
    wait_for(
        "the pool is full",
        60,
        lambda: kubectl.get("swp", name, "-n", namespace).get("status", {}).get("readyReplicas") == count,
    )


@pytest.fixture
def namespace(kubectl, request):
    name = "t-" + str(abs(hash(request.node.name)) % 10**8)
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


# ---- a storm ----


class Owners(threading.Thread):
    """Which claims each Sandbox ever belonged to."""

    def __init__(self, kubeconfig, path):
        super().__init__(daemon=True)
        self.api, self.path, self.claims = Api(kubeconfig), path, collections.defaultdict(set)
        self.start()

    def run(self):
        for _, item in self.api.changes(self.path):
            uid = owner(item, "SandboxClaim")
            if uid:
                self.claims[item["metadata"]["uid"]].add(uid)


class Claimant(User):
    """Makes and deletes claims of her own."""

    def create(self, name):
        body = claim(name, "storm", **({"env": [{"name": "A", "value": "1"}]} if name.endswith("5") else {}))
        wait_for(
            f"{name} can be made",
            120,
            lambda: (
                self.call("POST", self.path, body)
                or "deletionTimestamp" not in self.api.get(f"{self.path}/{name}")["metadata"]
            ),
        )
        self.wanted[name] = "Running"

    def run(self):
        try:
            for name in self.names:
                self.create(name)
            for _ in range(len(self.names)):
                name = self.random.choice(self.names)
                (self.create if self.wanted[name] is None else self.delete)(name)
        except Exception as error:  # noqa: BLE001 (the test says it)
            self.error = error


def what_is_wrong(api, boxes_path, pods_path, wanted):
    claims = {i["metadata"]["name"]: i for i in api.get(EXTENSIONS + "storm/sandboxclaims")["items"]}
    uid = api.get(EXTENSIONS + "storm/sandboxwarmpools/pool")["metadata"]["uid"]
    boxes = {i["metadata"]["name"]: i for i in api.get(boxes_path)["items"]}
    pods = {i["metadata"]["name"]: i for i in api.get(pods_path)["items"]}
    wrong = [f"{name}: wanted {state}" for name, state in wanted.items() if (state is None) == (name in claims)]
    taken = collections.Counter()
    for name, item in claims.items():
        box = item.get("status", {}).get("sandbox", {}).get("name")
        taken[box] += 1
        if not ready(item) or box not in boxes or owner(boxes[box]) != item["metadata"]["uid"]:
            wrong.append(f"{name}: {json.dumps(item.get('status'))}")
    wrong += [f"{box} belongs to {n} claims" for box, n in taken.items() if n > 1]
    waiting = [name for name, box in boxes.items() if owner(box) == uid]
    if len(waiting) != POOL or len(boxes) != POOL + len(claims):
        wrong.append(f"{len(waiting)} wait in the pool; {len(boxes)} Sandboxes for {len(claims)} claims")
    if set(pods) != set(boxes):
        wrong.append(f"Pods that should not be, or are missing: {set(pods) ^ set(boxes)}")
    return wrong


def test_a_storm_of_claims_adopts_nothing_twice_and_loses_nothing(fake, controller):
    api = Api(fake.kubeconfig)
    boxes, pods, _, _ = make_namespace(api, "storm")
    owners, counter, lock, killed = (
        Owners(fake.kubeconfig, boxes),
        itertools.count(1),
        threading.Lock(),
        collections.Counter(),
    )
    api.call(
        "POST", EXTENSIONS + "storm/sandboxtemplates", template(namespace="storm", envVarsInjectionPolicy="Allowed")
    )
    api.call("POST", EXTENSIONS + "storm/sandboxwarmpools", pool(namespace="storm", replicas=POOL))

    def did():
        with lock:
            number = next(counter)
            if number % 40 == 0:
                controller.kill()
            if number % 150 == 0:
                subprocess.run([HERE / "cluster", "kill", "--name", fake.name, "apiserver"], check=True)
                killed["apiserver"] += 1

    users = [
        Claimant(
            fake.kubeconfig,
            EXTENSIONS + "storm/sandboxclaims",
            [f"c-{i}" for i in range(start, COUNT // 2, 5)],
            SEED + start,
            did,
        )
        for start in range(5)
    ]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert [user.error for user in users if user.error] == []
    wanted, last = {}, []
    for user in users:
        wanted.update(user.wanted)

    def settled():
        last[:] = what_is_wrong(api, boxes, pods, wanted)
        return not last

    try:
        wait_for("the cluster to settle", 240, settled)
    except TimeoutError as error:
        pytest.fail(f"{error}: {len(last)} wrong: {last[:10]}")
    assert controller.kills >= 5 and killed["apiserver"] >= 1
    assert {box: claims for box, claims in owners.claims.items() if len(claims) > 1} == {}


# ---- a hostile tenant ----


def test_a_claim_cannot_reach_another_namespace_s_pool(kubectl, controller, namespace):
    kubectl.apply(template(), pool())
    full(kubectl)
    kubectl.apply(claim("thief", namespace))
    wait_for("it is told", 30, lambda: ready_of(kubectl, "thief", namespace).get("reason") == "WarmPoolNotFound")
    members = {i["metadata"]["name"]: owner(i, "SandboxWarmPool") for i in kubectl.get("sandboxes")["items"]}
    name = next(iter(members))
    kubectl("annotate", "-n", namespace, "sandboxclaim/thief", f"agents.x-k8s.io/sandbox-name={name}")
    kubectl.apply(claim("honest"))
    bound(kubectl, "honest")
    assert ready_of(kubectl, "thief", namespace)["reason"] == "WarmPoolNotFound"
    assert all(
        owner(i, "SandboxClaim") in (None, kubectl.get("sandboxclaim", "honest")["metadata"]["uid"])
        for i in kubectl.get("sandboxes")["items"]
    )
    kubectl("delete", "sandboxclaim,swp,sandboxtemplate", "--all")


def test_forged_labels_and_owners_do_not_put_a_sandbox_into_a_pool(kubectl, controller, namespace):
    kubectl.apply(template(namespace=namespace), pool(namespace=namespace, replicas=1))
    full(kubectl, namespace=namespace, count=1)
    real = kubectl.get("sandboxes", "-n", namespace)["items"][0]
    labels = real["metadata"]["labels"]
    evil = {"containers": [{"name": "main", "image": "evil"}]}

    def forged(name, reference):
        return {
            "apiVersion": "agents.x-k8s.io/v1beta1",
            "kind": "Sandbox",
            "spec": {"podTemplate": {"spec": evil}},
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": labels,
                "ownerReferences": [reference] if reference else [],
            },
        }

    reference = {
        **real["metadata"]["ownerReferences"][0],
        "uid": "11111111-2222-3333-4444-555555555555",
        "blockOwnerDeletion": False,
    }
    kubectl.apply(forged("aa-orphan", None), forged("aa-wrong-uid", reference))
    # The label alone makes it a member that lost its pool: another image than the template's, so it goes.
    wait_for(
        "the orphan is gone",
        60,
        lambda: "aa-orphan" not in [i["metadata"]["name"] for i in kubectl.get("sandboxes", "-n", namespace)["items"]],
    )
    kubectl.apply(claim("honest", namespace))
    assert bound(kubectl, "honest", namespace) == real["metadata"]["name"]


def test_64_kib_of_conditions_are_kept_within_bounds(kubectl, controller, namespace):
    kubectl.apply(template(namespace=namespace), pool(namespace=namespace), claim("big", namespace))
    bound(kubectl, "big", namespace)
    junk = [
        {
            "type": f"x{i}",
            "status": "True",
            "reason": "R",
            "message": "m" * 1000,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for i in range(64)
    ]
    kubectl(
        "patch",
        "-n",
        namespace,
        "sandboxclaim/big",
        "--subresource=status",
        "--type=merge",
        "-p",
        json.dumps({"status": {"conditions": junk}}),
    )
    wait_for("Ready is back", 60, lambda: ready_of(kubectl, "big", namespace).get("status") == "True")
    found = kubectl.get("sandboxclaim", "big", "-n", namespace)
    assert len(json.dumps(found["status"]["conditions"])) < 80_000
    kubectl.apply(claim("next", namespace))
    bound(kubectl, "next", namespace)


# ---- bad input, in the original's words ----

BAD = {
    "no-pool": (claim("x", of="missing"), "WarmPoolNotFound", 'SandboxWarmPool "missing" not found'),
    "no-template": (claim("x", of="untemplated"), "TemplateNotFound", 'SandboxTemplate "missing" not found'),
    "env": (
        claim("x", env=[{"name": "A", "value": "1"}]),
        "EnvVarsInjectionRejected",
        "environment variable injection rejected: environment variable injection is not allowed by the template policy",
    ),
    "label": (
        claim("x", additionalPodMetadata={"labels": {"a": "b"}}),
        "InvalidMetadata",
        'invalid additionalPodMetadata: failed to validate label "a": label "a" must have a domain prefix '
        "(e.g. 'sandbox.users.io/my-label') "
        "to prevent opting into unintended policy domains",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_and_leaves_nothing(kubectl, controller, namespace, name):
    body, reason, message = BAD[name]
    kubectl.apply(
        template(namespace=namespace),
        pool(namespace=namespace, replicas=0),
        pool("untemplated", namespace, of="missing"),
    )
    kubectl.apply({**body, "metadata": {"name": "x", "namespace": namespace}})
    wait_for("it is told", 30, lambda: ready_of(kubectl, "x", namespace).get("reason") == reason)
    assert ready_of(kubectl, "x", namespace)["message"] == message
    assert kubectl.get("sandboxes", "-n", namespace)["items"] == []


def test_a_pool_of_none_makes_a_sandbox_for_each_claim(kubectl, controller, namespace):
    kubectl.apply(template(namespace=namespace), pool(namespace=namespace, replicas=0), claim("cold", namespace))
    assert bound(kubectl, "cold", namespace) == "cold"
    kubectl("delete", "-n", namespace, "sandboxclaim/cold")
    wait_for("nothing is left", 60, lambda: not kubectl.get("sandboxes,pods", "-n", namespace)["items"])


def test_a_pool_is_scaled(kubectl, controller, namespace):
    kubectl.apply(template(namespace=namespace), pool(namespace=namespace, replicas=1))
    for count in (4, 0, 2):
        kubectl("scale", "-n", namespace, f"--replicas={count}", "swp/pool")
        if count:
            full(kubectl, namespace=namespace, count=count)
        wait_for(
            f"{count} Sandboxes and Pods",
            60,
            lambda count=count: len(kubectl.get("sandboxes,pods", "-n", namespace)["items"]) == 2 * count,
        )


def test_names_at_the_limit(kubectl, controller, namespace):
    long = "p" * 253
    kubectl.apply(
        template("t" * 200, namespace),
        pool(long, namespace, replicas=1, of="t" * 200),
        claim("c" * 253, namespace, of=long),
    )
    name = bound(kubectl, "c" * 253, namespace)
    assert len(name) in (63, 253) and kubectl.get("pod", name, "-n", namespace)


def test_a_claim_without_pool_or_template_is_refused(kubectl, controller):
    api = kubectl.api
    with pytest.raises(ApiError) as refused:
        api.call("POST", EXTENSIONS + "default/sandboxclaims", extension("SandboxClaim", "empty"))
    assert refused.value.code == 422 and "warmPoolRef" in str(refused.value)


def test_v1alpha1_names_a_template(kubectl, controller, namespace):
    old = "/apis/extensions.agents.x-k8s.io/v1alpha1/namespaces/"
    kubectl.apply(template(namespace=namespace), pool(namespace=namespace))
    full(kubectl, namespace=namespace)
    for name, spec in (("any", {}), ("none", {"warmpool": "none"}), ("named", {"warmpool": "pool"})):
        body = {
            "apiVersion": "extensions.agents.x-k8s.io/v1alpha1",
            "kind": "SandboxClaim",
            "metadata": {"name": name},
            "spec": {"sandboxTemplateRef": {"name": "template"}, **spec},
        }
        kubectl.api.call("POST", f"{old}{namespace}/sandboxclaims", body)
    assert bound(kubectl, "any", namespace).startswith("pool-") and bound(kubectl, "named", namespace).startswith(
        "pool-"
    )
    assert bound(kubectl, "none", namespace) == "none"
