"""Where a cluster lives and what its addresses are. Each cluster has namespaces of its own, so that all of them use the same addresses and
none of them is seen on the machine: what is outside is a folder, a cgroup and one loopback port."""
import os
import pathlib

NODE_ADDRESS = "10.99.0.1"
POD_NETWORK = "10.244.0.0/16"
SERVICE_NETWORK = "10.96.0.0/16"
SERVICE_ADDRESS = "10.96.0.1"
DOMAIN = "cluster.local"

# In the namespaces, the cluster's folder is seen here: a short path (sockets), and one that users of a Pod's own namespace may pass.
INSIDE = pathlib.Path("/run/cluster")

HERE = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("CARREL_CLUSTER_CACHE") or pathlib.Path.home() / ".cache/carrel-cluster")
BIN = CACHE / "bin"


class Cluster:
    """One cluster by name. `fake` has kwok instead of a kubelet: Pods become Ready without running."""

    def __init__(self, name, fake=False):
        self.name, self.fake = name, fake
        self.folder = CACHE / "clusters" / name
        self.node = "kwok-0" if fake else "carrel-node"
        self.cgroup = f"carrel-cluster-{name}"

    def path(self, *parts):
        return self.folder.joinpath(*parts)

    @property
    def kubeconfig(self):
        return self.path("kubeconfig")

    @property
    def init_pid(self):
        """The pid of the cluster's first process as the machine sees it; None if it does not run."""
        try:
            pid, start = self.path("pid").read_text().split()
            if pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19] == start:
                return int(pid)
        except (OSError, ValueError):
            pass
        return None

    def cgroup_folders(self):
        """Where this cluster's cgroups are: one folder per controller of v1."""
        return [path / self.cgroup for path in sorted(pathlib.Path("/sys/fs/cgroup").iterdir())
                if path.name != "unified" and (path / "cgroup.procs").exists() and not path.is_symlink()]
