"""usage: cluster up [--fake] [--name NAME] [--image ARCHIVE]… | down | kubeconfig | env | run COMMAND… | load ARCHIVE… | kill PROGRAM

A real Kubernetes on this machine, in namespaces of its own: API server, controller manager, scheduler, kubelet and containerd; with --fake,
kwok instead of the last two. `up` prints how long it took and the KUBECONFIG; `env` prints lines for a shell that puts kubectl, kind and docker
into its PATH; `run` runs a command where Pods, Services and their names can be reached; `load` takes image archives; `kill` kills one of the
cluster's programs, which is started again; `down` leaves nothing."""
import argparse
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

from . import config, pki, volumes
from .api import Api, ApiError, wait_for
from .layout import BIN, HERE, Cluster

PORT = 16443


def fail(message):
    raise SystemExit(f"cluster: {message}")


def listen():
    """A listener on the usual port, or on any if it is taken."""
    for port in (PORT, 0):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(128)
            return listener
        except OSError:
            listener.close()
            if not port:
                raise


def make_cgroups(cluster):
    for folder in cluster.cgroup_folders():
        folder.mkdir(exist_ok=True)
        if folder.parent.name.startswith("cpuset"):
            for file in ("cpuset.cpus", "cpuset.mems"):
                (folder / file).write_text((folder.parent / file).read_text())


def start(cluster, listener):
    """The first process, in its namespaces, and the forwarder. Both outlive this one."""
    environment = {**os.environ, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
    with open(cluster.path("node.log"), "wb") as log:
        outer = subprocess.Popen(
            ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc", "--", sys.executable, "-m",
             "rig.node", cluster.name, "fake" if cluster.fake else "real", str(cluster.port)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True)

        def first():
            with open(f"/proc/{outer.pid}/task/{outer.pid}/children") as file:
                return int(file.read().split()[0])
        try:
            pid = wait_for("the cluster's first process", 10, first)
        except TimeoutError:
            outer.kill()
            fail(f"it did not start: {cluster.path('node.log').read_text()}")
        started = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[19]
        cluster.path("pid").write_text(f"{pid} {started}\n")
        subprocess.Popen([sys.executable, "-m", "rig.forward", str(listener.fileno()), str(cluster.port), str(pid)], pass_fds=[listener.fileno()],
                         stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True)


def is_ready(api, node):
    conditions = api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def up(cluster, images):
    if cluster.init_pid:
        fail(f"{cluster.name} runs already: KUBECONFIG={cluster.kubeconfig}")
    if os.geteuid() != 0:
        fail("this needs root: a kubelet makes cgroups, mounts and networks")
    missing = [p for p in ("etcd", "kube-apiserver", "kwok" if cluster.fake else "kubelet") if not (BIN / p).exists()]
    if missing:
        fail(f"not built: {' '.join(missing)}; run `make cluster-build`")
    began = time.monotonic()
    down(cluster, quiet=True)
    cluster.folder.mkdir(parents=True)
    listener = listen()
    cluster.port = listener.getsockname()[1]
    pki.make(cluster.path("pki"), cluster.node)
    config.write(cluster, pki)
    if not cluster.fake:
        make_cgroups(cluster)
    start(cluster, listener)
    listener.close()
    try:
        api = Api(cluster.kubeconfig)
        wait_for("API server", 120, lambda: api.get("/readyz") == "ok")
        server_after = time.monotonic() - began
        if cluster.fake:
            wait_for("Node", 10, lambda: api.call("POST", "/api/v1/nodes", config.fake_node(cluster)))
        else:
            load(cluster, images)
        wait_for("default ServiceAccount", 60, lambda: api.get("/api/v1/namespaces/default/serviceaccounts/default"))
        wait_for("Node Ready", 120, lambda: is_ready(api, cluster.node))
        api.call("POST", "/apis/storage.k8s.io/v1/storageclasses", volumes.storage_class())
    except (TimeoutError, ApiError) as error:
        tail = cluster.path("node.log").read_text()[-2000:]
        fail(f"{error}\n{tail}the programs' logs are in {cluster.path('log')}; `make cluster-down` clears up")
    print(f"cluster: API server after {server_after:.1f} s, node {cluster.node} Ready after {time.monotonic() - began:.1f} s")
    print(f"export KUBECONFIG={cluster.kubeconfig}")


def load(cluster, archives):
    """Image archives into containerd, where the kubelet finds them."""
    for archive in archives:
        command = [BIN / "ctr", "-a", cluster.path("containerd.sock"), "-n", "k8s.io", "images", "import", "--all-platforms", archive]
        done = wait_for("containerd", 30, lambda: cluster.path("containerd.sock").exists()) and \
            subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            fail(f"{archive}: {done.stderr.strip()}")


def down(cluster, quiet=False):
    pid = cluster.init_pid
    if pid:
        watched = os.pidfd_open(pid)
        signal.pidfd_send_signal(watched, signal.SIGKILL)
        select.select([watched], [], [], 60)
    elif not quiet and not cluster.folder.exists():
        print("cluster: none runs")
    for folder in cluster.cgroup_folders():
        for path, _, _ in os.walk(folder, topdown=False):
            wait_for(f"{path} to be empty", 30, lambda: os.rmdir(path) is None)
    if cluster.folder.exists():
        shutil.rmtree(cluster.folder)
    if pid and not quiet:
        print("cluster: gone")


def enter(cluster, command):
    """Replaces this process by a command in the cluster's network, with its names."""
    pid = cluster.init_pid or fail("it does not run; `make cluster` starts it")
    os.environ.update(KUBECONFIG=str(cluster.kubeconfig), PATH=f"{HERE / 'bin'}:{BIN}:{os.environ['PATH']}")
    names = 'mount --bind "$1" /etc/resolv.conf; shift; exec "$@"'
    os.execvp("nsenter", ["nsenter", f"--net=/proc/{pid}/ns/net", "unshare", "--mount", "sh", "-ec", names, "sh",
                          str(cluster.path("resolv.conf")), *command])


def kill(cluster, programs):
    pid = cluster.init_pid or fail("it does not run")
    inner = [cluster.path(f"{program}.pid").read_text().strip() for program in programs]
    subprocess.run(["nsenter", f"--pid=/proc/{pid}/ns/pid", f"--mount=/proc/{pid}/ns/mnt", "kill", "-KILL", *inner], check=True)


def environment(cluster):
    """For a shell: what the documented commands need. The machine's own programs come after them."""
    print(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))} CARREL_CLUSTER={shlex.quote(cluster.name)}")
    folders = shlex.quote(f"{HERE / 'bin'}:{BIN}")
    print(f'case ":$PATH:" in *:{folders}:*) ;; *) export PATH={folders}:"$PATH" ;; esac')


ACTIONS = {"env": environment, "up": up, "down": down, "load": load, "kill": kill, "run": enter, "kubeconfig": lambda cluster: print(cluster.kubeconfig)}


def main():
    parser = argparse.ArgumentParser(prog="cluster", usage=__doc__.split("\n")[0][7:], description=__doc__.split("\n\n", 1)[1])
    actions = parser.add_subparsers(dest="action", required=True)
    which = argparse.ArgumentParser(add_help=False)
    which.add_argument("--fake", action="store_true")
    which.add_argument("--name")
    for name in ACTIONS:
        action = actions.add_parser(name, parents=[which])
        if name == "up":
            action.add_argument("--image", dest="arguments", action="append", default=[])
        elif name in ("load", "kill"):
            action.add_argument("arguments", nargs="+" if name == "load" else 1)
        elif name == "run":
            action.add_argument("arguments", nargs=argparse.REMAINDER)
    given = vars(parser.parse_args())
    cluster = Cluster(given["name"] or os.environ.get("CARREL_CLUSTER") or ("kwok" if given["fake"] else "node"), given["fake"])
    ACTIONS[given["action"]](cluster, *([given["arguments"]] if "arguments" in given else []))


if __name__ == "__main__":
    main()
