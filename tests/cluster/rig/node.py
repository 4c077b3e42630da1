"""The first process of a cluster. `up` starts it in namespaces of its own (mounts, network, pids, host name, IPC): it prepares them, starts
the programs, starts again what ends, and reaps. When it is killed, the kernel ends everything else with it."""
import os
import pathlib
import signal
import subprocess
import sys
import time

from . import config
from .api import Api, wait_for
from .layout import BIN, HERE, INSIDE, NODE_ADDRESS, SERVICE_NETWORK, Cluster


def shell(script):
    subprocess.run(["sh", "-ec", script], check=True)


def mounts(cluster):
    """A sysfs of this network namespace over the machine's cgroups; private /run, /var/lib and /var/log."""
    folder = cluster.folder
    shell(f"""
        mkdir -p {folder}/mnt {folder}/var-log {folder}/log
        mount --rbind /sys/fs/cgroup {folder}/mnt
        mount -t sysfs sysfs /sys
        mount --rbind {folder}/mnt /sys/fs/cgroup
        umount -l {folder}/mnt
        ! mountpoint -q /sys/fs/cgroup/unified || umount -l /sys/fs/cgroup/unified
        mount -t tmpfs tmpfs /var/lib
        mount --bind {folder}/var-log /var/log
        mount -t tmpfs tmpfs /run
        mkdir -p {INSIDE}
        """)
    # What a Pod's own user namespace must pass on its way to its files.
    folder.chmod(0o711)
    shell(f"mount --bind {folder} {INSIDE} && mount --make-rshared /")


def network():
    """The node's address is a bridge's, because not every kernel has dummy interfaces. There is no way out."""
    shell(f"""
        ip link set lo up
        ip link add node0 type bridge
        ip addr add {NODE_ADDRESS}/24 dev node0
        ip link set node0 up
        ip route add {SERVICE_NETWORK} dev node0
        echo 1 >/proc/sys/net/ipv4/ip_forward
        """)


class Programs:
    """Running processes, by pid; an ended one is restarted after a moment, and recorded."""

    def __init__(self):
        self.running = {}
        self.environment = {"PATH": f"{BIN}:/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(HERE), "HOME": "/run",
                            "KUBECONFIG": f"{INSIDE}/kubeconfig", "PYTHONDONTWRITEBYTECODE": "1"}

    def start(self, name, command):
        with open(INSIDE / "log" / f"{name}.log", "ab") as log:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment)
        self.running[child.pid] = (name, command, child)
        INSIDE.joinpath(f"{name}.pid").write_text(f"{child.pid}\n")

    def reap(self):
        """Waits for one process, a program or an orphan."""
        pid, status = os.wait()
        if pid in self.running:
            name, command, child = self.running.pop(pid)
            child.returncode = os.waitstatus_to_exitcode(status)
            print(f"{name} ended with {child.returncode}; started again", flush=True)
            time.sleep(0.2)
            self.start(name, command)


def main(name, fake, port):
    cluster = Cluster(name, fake == "fake")
    cluster.port = int(port)
    mounts(cluster)
    network()
    programs = Programs()
    programs.start("etcd", config.ETCD)
    if not cluster.fake:
        programs.start("containerd", ["containerd", "-c", f"{INSIDE}/containerd.toml"])
    programs.start("apiserver", config.apiserver(cluster))
    api = Api(INSIDE / "kubeconfig")
    wait_for("API server", 120, lambda: api.get("/readyz") == "ok")
    programs.start("controller-manager", config.controller_manager(cluster))
    programs.start("scheduler", config.scheduler(cluster))
    programs.start("volumes", ["python3", "-u", "-m", "rig.volumes", f"{INSIDE}/kubeconfig", f"{INSIDE}/volumes", cluster.node])
    for program, command in config.node_programs(cluster):
        programs.start(program, command)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        programs.reap()


if __name__ == "__main__":
    main(*sys.argv[1:])
