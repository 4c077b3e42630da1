"""packaging/kubernetes/carrel.yaml: what it must not say, and that its generated part is what the script writes."""
import importlib.machinery
import importlib.util
import json
import pathlib
import re

TREE = pathlib.Path(__file__).resolve().parent.parent.parent
TEXT = (TREE / "packaging/kubernetes/carrel.yaml").read_text()


def make_crds():
    loader = importlib.machinery.SourceFileLoader("make_crds", str(TREE / "tools/make-crds"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_crds", loader))
    loader.exec_module(module)
    return module


OPENAPI = {"components": {"schemas": {
    "io.k8s.api.core.v1.PodSpec": {"type": "object", "required": ["containers"], "properties": {
        "containers": {"type": "array", "items": {"allOf": [{"$ref": "#/components/schemas/c"}], "default": {}}, "x-kubernetes-patch-strategy": "merge"}}},
    "c": {"type": "object", "description": "a container", "required": ["name"], "properties": {
        "name": {"type": "string", "default": ""}, "protocol": {"type": "string", "default": "TCP"},
        "limit": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"}}},
    "io.k8s.api.core.v1.PersistentVolumeClaimSpec": {"type": "object"},
    "io.k8s.api.networking.v1.NetworkPolicyIngressRule": {"type": "object"},
    "io.k8s.api.networking.v1.NetworkPolicyEgressRule": {"type": "object"}}}}


def test_a_schema_has_no_references_and_only_real_defaults():
    spec = make_crds().Source([OPENAPI]).named("io.k8s.api.core.v1.PodSpec")
    container = spec["properties"]["containers"]["items"]
    assert container == {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}, "protocol": {"type": "string", "default": "TCP"},
        "limit": container["properties"]["limit"]}}
    assert container["properties"]["limit"]["x-kubernetes-int-or-string"] is True
    assert "x-kubernetes-patch-strategy" not in json.dumps(spec) and "$ref" not in json.dumps(spec)


def test_both_versions_share_one_schema():
    module = make_crds()
    sandbox, *extensions, kernel = module.definitions(module.Source([OPENAPI]))
    assert [one["spec"]["names"]["kind"] for one in extensions] == ["SandboxTemplate", "SandboxWarmPool", "SandboxClaim"]
    for one in extensions:
        newer, older = one["spec"]["versions"]
        assert newer["schema"] == older["schema"] and newer["storage"] and not older["storage"] and older["served"]
    newer, older = sandbox["spec"]["versions"]
    assert newer["schema"] is older["schema"] and newer["storage"] and not older["storage"] and older["served"]
    assert "default" not in newer["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["replicas"]
    assert kernel["metadata"]["name"] == "kernels.jupyter.org"
    assert "\n".join(module.yaml(sandbox, set())).count("*schema") == 1


def test_writing_it_again_keeps_what_is_above_the_line(tmp_path):
    module = make_crds()
    manifest, openapi = tmp_path / "m.yaml", tmp_path / "o.json"
    openapi.write_text(json.dumps(OPENAPI))
    manifest.write_text("kind: Namespace\n")
    module.main(openapi, manifest)
    first = manifest.read_text()
    module.main(openapi, manifest)
    assert manifest.read_text() == first and first.startswith("kind: Namespace\n" + module.MARK)


def test_the_controller_gets_no_secrets_and_no_wildcards():
    rules = TEXT[:TEXT.index("CustomResourceDefinition")]
    assert "secrets" not in rules and '"*"' not in rules and "escalate" not in rules
    role = rules[rules.index("kind: ClusterRole\n"):rules.index("kind: ClusterRoleBinding")]
    assert "create" not in re.search(r"resources: \[sandboxclaims\]\n  verbs: (.*)", role)[1]
    assert "delete" not in re.search(r"resources: \[persistentvolumeclaims\]\n  verbs: (.*)", role)[1]
    assert set(re.findall(r"apiGroups: \[(.*)\]", role)) == {"agents.x-k8s.io", "extensions.agents.x-k8s.io", "networking.k8s.io", "jupyter.org",
                                                                '""'}     # no roles, no definitions
    assert "namespaces" not in role
    assert re.search(r"resources: \[events\]\n  verbs: (.*)", role)[1] == "[create]"
