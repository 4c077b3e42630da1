"""The program: configuration, the Lease, its pages, its end."""
import base64
import collections
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

import apiserver
from conftest import CONTROLLER, Controller, is_ready, sandbox
from support.waiting import wait_for

LEASE = "a3317529.agent-sandbox.x-k8s.io"
SYSTEM = "agent-sandbox-system"


def get(c, path):
    with urllib.request.urlopen("http://127.0.0.1:%d%s" % (c.port, path), timeout=10) as r:
        return r.read().decode()


def probe(c, path):
    """Status and text; no status before it listens."""
    try:
        with urllib.request.urlopen("http://127.0.0.1:%d%s" % (c.port, path), timeout=10) as r:
            return r.status, r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()
    except urllib.error.URLError:
        return None, ""


def refusal(*args, env=None):
    done = subprocess.run([CONTROLLER, *args], capture_output=True, text=True, timeout=30, env=env)
    assert done.returncode in (1, 2) and done.stdout == ""
    return done.stderr


def test_one_of_two_acts_and_the_other_follows(server, start):
    first = start("--leader-elect")
    wait_for(lambda: ": ours" in first.log(), "the first leads")
    second = start("--leader-elect")
    wait_for(lambda: "standing by" in second.log(), "the second waits")
    wait_for(lambda: probe(second, "/readyz") == (200, "ok"), "it is ready, too")
    assert get(first, "/healthz") == "ok"
    server.apply("sandboxes", sandbox("one"))
    wait_for(lambda: is_ready(server, "one"), "Ready")
    lease = server.get("leases", LEASE, SYSTEM)["spec"]
    assert lease["leaseDurationSeconds"] == 15 and lease["holderIdentity"]
    assert first.stop() == 0
    wait_for(lambda: ": ours" in second.log(), "the second leads", deadline_s=10)     # it was released: the successor does not wait 15 s
    server.apply("sandboxes", sandbox("two"))
    wait_for(lambda: is_ready(server, "two"), "Ready")
    assert server.get("leases", LEASE, SYSTEM)["spec"]["leaseTransitions"] >= 1


def test_who_loses_the_lease_writes_nothing_more_and_ends(server, start):
    c = start("--leader-elect")
    wait_for(lambda: "acting" in c.log(), "it leads")
    server.patch("leases", LEASE, {"spec": {"holderIdentity": "somebody-else", "renewTime": "2030-01-01T00:00:00.000000Z"}},
                 namespace=SYSTEM)
    assert c.process.wait(20) == 1
    assert "is lost" in c.log() and "another holder" in c.log()


def test_who_is_told_to_wait_for_long_keeps_its_lease(server, start):
    c = start("--leader-elect")
    wait_for(lambda: "acting" in c.log(), "it leads")
    refused = []

    def once(_, method, path, query):
        if "/leases" in path and not refused:
            refused.append(path)
            return "429-60"
        return None
    server.fault = once
    wait_for(lambda: refused, "refused")
    asked = len(server.requests)
    wait_for(lambda: sum("/leases" in path for _, path, _, _ in server.requests[asked:]) >= 3, "renewed three times more", deadline_s=20)
    assert c.process.poll() is None and "lost" not in c.log()


def test_who_cannot_renew_ends_before_another_may_begin(server, start):
    c = start("--leader-elect")
    wait_for(lambda: "acting" in c.log(), "it leads")
    server.fault = lambda _, method, path, query: "500" if "/leases" in path else None
    assert c.process.wait(20) == 1
    assert "could not be renewed in time" in c.log()
    server.apply("sandboxes", sandbox())
    assert server.get("pods", "box") is None


def test_a_token_that_changes_is_read_again(tmp_path):
    with apiserver.Server(token="old") as s:
        token = tmp_path / "token"
        token.write_text("old\n")
        config = json.loads(s.kubeconfig())
        config["users"][0]["user"] = {"tokenFile": "token"}
        c = Controller(s, tmp_path, "--leader-elect=false", kubeconfig=json.dumps(config))
        s.apply("sandboxes", sandbox("one"))
        wait_for(lambda: is_ready(s, "one"), "Ready")
        token.write_text("new\n")
        s.token = "new"
        s.cut()
        s.apply("sandboxes", sandbox("two"))
        wait_for(lambda: is_ready(s, "two"), "Ready")
        assert c.stop() == 0


def make_certificate(folder, name="127.0.0.1"):
    key, cert = str(folder / "key.pem"), str(folder / "cert.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=test", "-addext", "subjectAltName=IP:" + name, "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    return cert, key


def test_tls_with_the_cluster_s_own_authority(tmp_path):
    cert, key = make_certificate(tmp_path)
    with open(cert, "rb") as f:
        data = base64.b64encode(f.read()).decode()
    with apiserver.Server(tls=(cert, key), token="t") as s:
        c = Controller(s, tmp_path, "--leader-elect=false", kubeconfig=s.kubeconfig(**{"certificate-authority-data": data}))
        s.apply("sandboxes", sandbox())
        wait_for(lambda: is_ready(s), "Ready")
        assert c.stop() == 0


def test_tls_refuses_another_name_and_another_authority(tmp_path):
    cert, key = make_certificate(tmp_path, "127.0.0.2")
    with apiserver.Server(tls=(cert, key)) as s:
        c = Controller(s, tmp_path, "--leader-elect=false", kubeconfig=s.kubeconfig(**{"certificate-authority": cert}))
        wait_for(lambda: "IP address mismatch" in c.log(), "refused")
        c.kill()
        other = tmp_path / "other"
        other.mkdir()
        stranger, _ = make_certificate(other)
        d = Controller(s, tmp_path, "--leader-elect=false", kubeconfig=s.kubeconfig(**{"certificate-authority": stranger}))
        wait_for(lambda: "certificate: self" in d.log() or "certificate: unable" in d.log(), "refused")
        d.kill()
        assert not s.requests


@pytest.mark.parametrize("text, says", [
    ("a: [", "kc:2: did not find"), ("{}", "no current-context"), ("{current-context: x}", 'no context named "x"'),
    ("current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: 'ftp://x'}}]", "is not http"),
    ("current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: 'https://x'}}]",
     'no user named "u"'),
    ("current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1'}}]\n"
     "users: [{name: u, user: {client-certificate-data: '!!'}}]", "is not base64")])
def test_a_broken_kubeconfig_is_told_in_words(tmp_path, text, says):
    path = tmp_path / "kc"
    path.write_text(text)
    assert says in refusal("--kubeconfig", str(path))


def test_a_kubeconfig_that_cannot_be_read_is_told_with_the_reason(tmp_path):
    path = tmp_path / "missing"
    assert refusal("--kubeconfig", str(path)) == "carrel-controller: cannot read %s: No such file or directory\n" % path
    assert "Is a directory" in refusal("--kubeconfig", str(tmp_path))


def test_several_kubeconfigs_count_as_one(server, tmp_path):
    whole = json.loads(server.kubeconfig())
    for name, keys in {"first": ["contexts"], "second": ["current-context", "clusters"], "third": ["users", "clusters"]}.items():
        part = {k: whole[k] for k in keys}
        if name == "third":
            part["clusters"] = [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]
        (tmp_path / name).write_text(json.dumps(part))
    files = ":".join(str(tmp_path / n) for n in ("first", "missing", "second", "third"))
    env = dict(os.environ, KUBECONFIG=files + "::")
    with subprocess.Popen([CONTROLLER, "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0"],
                          env=env, stderr=subprocess.DEVNULL) as process:
        try:
            server.apply("sandboxes", sandbox())
            wait_for(lambda: is_ready(server), "Ready")
        finally:
            process.terminate()
    assert process.returncode == 0
    assert "none of it exists" in refusal(env=dict(env, KUBECONFIG=str(tmp_path / "missing")))


def test_no_kubeconfig_and_no_pod_is_told(tmp_path):
    said = refusal("--leader-elect", env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]})
    assert "use --kubeconfig" in said


def test_flags_of_the_original_are_accepted(server, start):
    c = start("--leader-elect=false", "--kube-api-qps=50", "--kube-api-burst", "100", "-sandbox-concurrent-workers=3", "--enable-pprof",
              "--extensions", "--sandbox-warm-pool-replenish-delay=250ms", "--sandbox-warm-pool-max-refill-rate=2.5")
    server.apply("sandboxes", sandbox())
    wait_for(lambda: is_ready(server), "Ready")
    assert "--kube-api-qps means nothing here" in c.log()
    assert "must be a time like" in refusal("--sandbox-warm-pool-readiness-grace-period=soon")
    assert "must be a number from 0" in refusal("--sandbox-warm-pool-max-refill-rate=-1")
    assert "see --help" in refusal("--nonsense")


def test_metrics_have_the_original_s_names(server, start):
    c = start()
    wait_for(lambda: "acting" in c.log(), "it acts")
    server.apply("sandboxes", sandbox())
    wait_for(lambda: is_ready(server), "Ready")
    text = wait_for(lambda: next((t for t in [get(c, "/metrics")] if 'ready_condition="true"' in t), None), "the gauge")
    assert ('agent_sandboxes{namespace="default",ready_condition="true",expired="false",launch_type="cold",'
            'sandbox_template="unknown",owned_by="None",created_by="unknown"} 1') in text
    server.apply("sandboxes", sandbox(), namespace="other")
    wait_for(lambda: is_ready(server, namespace="other"), "Ready")
    text = get(c, "/metrics")
    for namespace in ("default", "other"):
        assert ('agent_sandbox_creation_latency_ms_count{namespace="%s",launch_type="cold",sandbox_template="unknown"} 1'
                % namespace) in text
    assert "process_resident_memory_bytes" in text
    with pytest.raises(urllib.error.HTTPError):
        get(c, "/")


def test_rights_that_are_missing_are_told(server, start):
    server.store.refuse["list", "pods"] = apiserver.Refusal(403, "Forbidden", 'pods is forbidden: User "x" cannot list resource "pods"')
    c = start()
    wait_for(lambda: 'cannot list resource "pods"' in c.log() and "ClusterRole lacks a verb" in c.log(), "told")


def test_an_api_server_that_starts_again_is_one_line(server, start):
    """First it is not there, then it refuses everything because it has not read its roles yet."""
    c = start()
    wait_for(lambda: server.open_watches == 9, "watches")
    away, refused = collections.Counter(), collections.Counter()

    def restart(_, method, path, query):
        if sum(n >= 3 for n in away.values()) < 9:
            away[path] += 1
            return "close"
        refused[path] += 1
        return "403" if refused[path] <= 2 else None
    server.fault = restart
    server.cut()
    # Each watch waits twice as long after each failure, and by chance up to twice that.
    wait_for(lambda: "the API server answers again" in c.log(), c.log, deadline_s=90)
    server.fault = None
    wait_for(lambda: server.open_watches == 9 and probe(c, "/readyz") == (200, "ok"), c.log, deadline_s=90)
    lines = [line for line in c.log().splitlines() if "trying on" in line]
    assert len(lines) == 1 and "the API server does not answer: " in lines[0], lines
    assert "lacks a verb" not in c.log()


def test_kinds_that_are_left_alone_are_named(server, start):
    c = start("--leader-elect=false", "--extensions=false", "--kernels=false")
    wait_for(lambda: "acting" in c.log(), "it acts")
    assert "SandboxTemplates, SandboxWarmPools and SandboxClaims are left alone (--extensions=false)" in c.log()
    assert "Kernels are left alone (--kernels=false)" in c.log()


def test_it_is_ready_only_once_it_can_watch(server, start):
    server.store.refuse["list", "pods"] = apiserver.Refusal(403, "Forbidden", 'pods is forbidden: User "x" cannot list resource "pods"')
    c = start()
    wait_for(lambda: "ClusterRole lacks a verb" in c.log(), "told")
    status, text = probe(c, "/readyz")
    assert status == 503 and 'pods: cannot be watched: pods is forbidden: User "x" cannot list resource "pods" (the ClusterRole' in text
    assert "sandboxes: not listed yet" in text and "services" not in text
    assert probe(c, "/healthz") == (200, "ok")          # a restart would not help
    del server.store.refuse["list", "pods"]
    wait_for(lambda: probe(c, "/readyz") == (200, "ok"), "ready")


def test_it_is_not_ready_while_the_server_is_away(server, start):
    """Nor is a replica that stands by. Both are ready again when the server is back, though no object changes then."""
    first = start("--leader-elect")
    wait_for(lambda: ": ours" in first.log(), "the first leads")
    second = start("--leader-elect")
    wait_for(lambda: all(probe(c, "/readyz") == (200, "ok") for c in (first, second)), "ready")
    assert "standing by" in second.log()
    server.fault = lambda _, method, path, query: "500" if "/leases" not in path else None
    server.cut()
    for c in (first, second):
        status, text = wait_for(lambda c=c: next((p for p in [probe(c, "/readyz")] if p[1].count("cannot be watched") == 9), None), "not ready")
        assert status == 503 and "pods: cannot be watched: a fault of the tests\n" in text and probe(c, "/healthz") == (200, "ok")
    server.fault = None
    wait_for(lambda: all(probe(c, "/readyz") == (200, "ok") for c in (first, second)), "ready again")


def test_a_watch_that_is_open_again_makes_it_ready_though_it_tells_nothing(server, start):
    server.bookmarks = False
    c = start()
    wait_for(lambda: probe(c, "/readyz") == (200, "ok") and server.open_watches == 9, "ready")
    failures = []

    def three_times(_, method, path, query):
        if path.endswith("/pods") and len(failures) < 3:
            failures.append(query)
            return "500"
        return None
    server.fault = three_times
    server.cut()
    wait_for(lambda: "pods: cannot be watched" in c.log(), "told")
    wait_for(lambda: probe(c, "/readyz") == (200, "ok"), "ready again", deadline_s=20)
    assert all(query.get("watch") for query in failures)
    assert sum(path == "/api/v1/pods" and "limit" in query for _, path, query, _ in server.requests) == 1      # no new list


def test_it_is_ready_without_kernels_but_not_without_sandboxes(server, start):
    server.absent.update({"kernels", "sandboxes", "sandboxclaims", "sandboxwarmpools", "sandboxtemplates"})
    c = start()
    wait_for(lambda: "apply the CRD" in c.log() and "kernels are not installed here" in c.log() and "sandboxtemplates are not" in c.log(), "told")
    status, text = probe(c, "/readyz")
    assert status == 503 and "sandboxes: cannot be watched: " in text and "(apply the CRD sandboxes.agents.x-k8s.io" in text
    assert "kernels" not in text and "sandboxtemplates" not in text
    server.absent.remove("sandboxes")
    wait_for(lambda: probe(c, "/readyz") == (200, "ok"), "ready")


def test_in_a_pod_it_leaves_its_own_installation_alone(tmp_path):
    """Deleting its namespace must not delete definitions, and with them everybody's objects: nothing there gets an owner."""
    if os.geteuid() != 0:
        pytest.skip("only root can show it a pod's files")
    cert, key = make_certificate(tmp_path)
    pod = """mount -t tmpfs none /run && d=/run/secrets/kubernetes.io/serviceaccount && mkdir -p $d && cp {0} $d/ca.crt && echo t >$d/token &&
printf {1} >$d/namespace && unset KUBECONFIG && export KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT={2} && exec "$@" """
    name = "agent-sandbox-controller"
    with apiserver.Server(tls=(cert, key), token="t") as s:
        s.apply("namespaces", {"kind": "Namespace", "metadata": {"name": SYSTEM}}, namespace="")
        s.apply("clusterroles", {"kind": "ClusterRole", "metadata": {"name": name}}, namespace="")
        s.apply("clusterrolebindings", {"kind": "ClusterRoleBinding", "metadata": {"name": name}}, namespace="")
        crds = "customresourcedefinitions"
        s.apply(crds, {"kind": "CustomResourceDefinition", "metadata": {"name": "kernels.jupyter.org"}}, namespace="")
        c = Controller(s, tmp_path, "--kubeconfig=", before=("unshare", "-m", "sh", "-ec", pod.format(cert, SYSTEM, s.port), "sh"))
        wait_for(lambda: "acting" in c.log(), "it acts")
        for one in ("one", "two"):      # one after the other: what it does at its start is behind it then
            s.apply("sandboxes", sandbox(one))
            wait_for(lambda one=one: is_ready(s, one), "Ready")
        assert {path.split("/")[-1] for method, path, query, _ in s.requests if query.get("watch")} == \
            {"sandboxes", "kernels", "pods", "services", "persistentvolumeclaims", "sandboxtemplates", "sandboxwarmpools", "sandboxclaims",
             "networkpolicies"}
        assert not [path for _, path, _, _ in s.requests if "rbac" in path or crds in path or path.startswith("/api/v1/namespaces/" + SYSTEM)]
        assert c.stop() == 0
        s.delete("namespaces", SYSTEM, namespace="")
        assert s.get(crds, "kernels.jupyter.org", "") and s.get("clusterroles", name, "") and s.get("clusterrolebindings", name, "")


def test_a_credential_plugin_is_run(tmp_path):
    with apiserver.Server(token="from-the-plugin") as s:
        plugin = tmp_path / "plugin"
        plugin.write_text('#!/bin/sh\necho "{\\"status\\":{\\"token\\":\\"$WORD-the-plugin\\"}}"\n')
        plugin.chmod(0o755)
        config = json.loads(s.kubeconfig())
        config["users"][0]["user"] = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin),
                                               "env": [{"name": "WORD", "value": "from"}]}}
        c = Controller(s, tmp_path, "--leader-elect=false", kubeconfig=json.dumps(config))
        s.apply("sandboxes", sandbox())
        wait_for(lambda: is_ready(s), "Ready")
        assert c.stop() == 0


def plugin_config(server, tmp_path, script):
    plugin = tmp_path / "plugin"
    plugin.write_text("#!/bin/sh\n" + script)
    plugin.chmod(0o755)
    config = json.loads(server.kubeconfig())
    config["users"][0]["user"] = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin"}}
    return json.dumps(config)


def test_nobody_waits_for_a_slow_credential_plugin(tmp_path):
    script = """n=$(cat {0}/n 2>/dev/null || echo 0); echo $((n+1)) >{0}/n
test $n = 0 || {{ >{0}/waits; while test -e {0}/waits; do sleep 0.05; done; }}
echo '{{"status":{{"token":"token-'$n'"}}}}'
sleep 3 &     # somebody who keeps the output open
""".format(tmp_path)
    with apiserver.Server(token="token-0") as s:
        c = Controller(s, tmp_path, "--leader-elect=false", kubeconfig=plugin_config(s, tmp_path, script))
        s.apply("sandboxes", sandbox("one"))
        wait_for(lambda: is_ready(s, "one"), "Ready")
        s.token = "token-1"
        s.cut()
        wait_for((tmp_path / "waits").exists, "the plugin runs")
        assert get(c, "/healthz") == "ok" and (tmp_path / "waits").exists()
        assert c.process.poll() is None
        (tmp_path / "waits").unlink()
        s.apply("sandboxes", sandbox("two"))
        wait_for(lambda: is_ready(s, "two"), "Ready")
        assert c.stop() == 0
        assert "Sanitizer" not in c.log()


def test_a_credential_plugin_that_fails_is_told(tmp_path):
    script = """test ! -e {0}/ran || exit 7
>{0}/ran; echo '{{"status":{{"token":"a"}}}}'
""".format(tmp_path)
    with apiserver.Server(token="a") as s:
        c = Controller(s, tmp_path, "--leader-elect=false", kubeconfig=plugin_config(s, tmp_path, script))
        wait_for(lambda: "acting" in c.log(), "it acts")
        s.token = "b"
        s.cut()
        wait_for(lambda: "cannot be renewed: " in c.log() and "failed (status 7)" in c.log(), "told")
        s.token = "a"
        s.apply("sandboxes", sandbox())
        wait_for(lambda: is_ready(s), "Ready")
        assert c.stop() == 0


def test_nobody_waits_for_a_name_server(tmp_path):
    """While the host's name is looked for the controller answers, and the addresses of before still count."""
    with apiserver.Server() as s, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        try:
            silent.bind(("127.9.0.53", 53))
        except PermissionError:
            pytest.skip("only root may bind port 53")
        (tmp_path / "hosts").write_text("127.0.0.1 api.test\n")
        (tmp_path / "resolv.conf").write_text("nameserver 127.9.0.53\noptions timeout:3 attempts:1\n")
        config = s.kubeconfig(server="http://api.test:%d" % s.port)
        mounts = "mount --bind {0}/hosts /etc/hosts && mount --bind {0}/resolv.conf /etc/resolv.conf && exec \"$@\"".format(tmp_path)
        c = Controller(s, tmp_path, "--leader-elect=false", kubeconfig=config, before=("unshare", "-m", "sh", "-c", mounts, "sh"))
        s.apply("sandboxes", sandbox("one"))
        wait_for(lambda: is_ready(s, "one"), "Ready")
        (tmp_path / "hosts").write_text("")
        s.fault = lambda _, method, path, query: "close"
        s.cut()
        silent.settimeout(30)
        silent.recv(512)
        begun = time.monotonic()
        assert get(c, "/healthz") == "ok"
        assert time.monotonic() - begun < 1
        s.fault = None
        s.apply("sandboxes", sandbox("two"))
        wait_for(lambda: is_ready(s, "two"), "Ready")
        assert c.stop() == 0
        assert "Sanitizer" not in c.log()
