"""The configuration files of containerd, the network plugins, the kubelet and kwok, and the command lines of all programs."""
import json
import os

from .layout import BIN, DOMAIN, INSIDE, NODE_ADDRESS, POD_NETWORK, SERVICE_NETWORK

# No privilege to raise a process above others is assumed (CAP_SYS_RESOURCE): nothing touches oom_score_adj below what it inherits.
CONTAINERD = f"""version = 3
root = "{INSIDE}/containerd"
state = "{INSIDE}/containerd-state"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs", "io.containerd.nri.v1.nri"]
[grpc]
  address = "{INSIDE}/containerd.sock"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "docker.io/library/pause:1"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{INSIDE}/registries"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  netns_mounts_under_state_dir = true
  enable_selinux = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{BIN}"]
    conf_dir = "{INSIDE}/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = "{BIN}/runc"
        SystemdCgroup = false
"""

REGISTRY_PORT = 5000
REGISTRIES = f"""server = "http://127.0.0.1:{REGISTRY_PORT}"
[host."http://127.0.0.1:{REGISTRY_PORT}"]
  capabilities = ["pull", "resolve"]
"""

NETWORK = {"cniVersion": "1.0.0", "name": "cluster", "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True,
     "ipam": {"type": "host-local", "dataDir": f"{INSIDE}/cni-addresses", "ranges": [[{"subnet": POD_NETWORK}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "loopback"}]}

AUDIT = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}


def kubelet(cluster):
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "failCgroupV1": False, "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{cluster.cgroup}", "failSwapOn": False,
        "containerRuntimeEndpoint": f"unix://{INSIDE}/containerd.sock", "address": NODE_ADDRESS, "healthzBindAddress": "127.0.0.1",
        "resolvConf": "", "clusterDNS": [NODE_ADDRESS], "clusterDomain": DOMAIN, "oomScoreAdj": 0, "maxOpenFiles": 20000,
        "enforceNodeAllocatable": ["pods"], "imageGCHighThresholdPercent": 100, "serializeImagePulls": False, "staticPodPath": "",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "1%"},
        "podLogsDir": "/var/log/pods", "volumePluginDir": f"{INSIDE}/volume-plugins",
        "tlsCertFile": f"{INSIDE}/pki/kubelet-server.crt", "tlsPrivateKeyFile": f"{INSIDE}/pki/kubelet-server.key",
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": f"{INSIDE}/pki/ca.crt"}},
        "authorization": {"mode": "Webhook"},
    }


def fake_node(cluster):
    """A Node for kwok with room for every benchmark."""
    room = {"cpu": "4000", "memory": "4000Gi", "pods": "20000"}
    return {"apiVersion": "v1", "kind": "Node", "status": {"allocatable": room, "capacity": room},
            "metadata": {"name": cluster.node, "annotations": {"node.alpha.kubernetes.io/ttl": "0", "kwok.x-k8s.io/node": "fake"},
                         "labels": {"kubernetes.io/hostname": cluster.node, "kubernetes.io/os": "linux", "type": "kwok"}}}


def write(cluster, pki):
    """All files below the cluster's folder."""
    server = f"https://127.0.0.1:{cluster.port}"
    cluster.path("cni").mkdir()
    cluster.path("registries/_default").mkdir(parents=True)
    for name, text in {"containerd.toml": CONTAINERD, "registries/_default/hosts.toml": REGISTRIES, "cni/10-cluster.conflist": json.dumps(NETWORK), "audit.json": json.dumps(AUDIT),
                       "kubelet.json": json.dumps(kubelet(cluster)), "resolv.conf": f"nameserver {NODE_ADDRESS}\n"}.items():
        cluster.path(name).write_text(text)
    for name in ("controller-manager", "scheduler", "proxy", "kubelet", "kwok"):
        cluster.path("pki", f"{name}.kubeconfig").write_text(pki.kubeconfig(cluster.path("pki"), name, server))
    cluster.kubeconfig.touch(0o600)
    cluster.kubeconfig.write_text(pki.kubeconfig(cluster.path("pki"), "admin", server))


# CARREL_CLUSTER_ETCD names another one, for what an old etcd does to watches.
ETCD = [os.environ.get("CARREL_CLUSTER_ETCD") or "etcd", "--data-dir", f"{INSIDE}/etcd", "--unsafe-no-fsync", "--log-level", "warn",
        "--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
        "--listen-peer-urls", "http://127.0.0.1:2380", "--initial-advertise-peer-urls", "http://127.0.0.1:2380",
        "--initial-cluster", "default=http://127.0.0.1:2380"]


def apiserver(cluster):
    pki = f"{INSIDE}/pki"
    return ["kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0", f"--advertise-address={NODE_ADDRESS}",
            f"--secure-port={cluster.port}", f"--tls-cert-file={pki}/apiserver.crt", f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={pki}/ca.crt", f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
            f"--kubelet-client-key={pki}/apiserver-kubelet.key", f"--kubelet-certificate-authority={pki}/ca.crt",
            "--kubelet-preferred-address-types=InternalIP", f"--service-account-key-file={pki}/service-account.key",
            f"--service-account-signing-key-file={pki}/service-account.key", f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", f"--service-cluster-ip-range={SERVICE_NETWORK}",
            "--allow-privileged=true", f"--audit-policy-file={INSIDE}/audit.json", f"--audit-log-path={INSIDE}/log/audit.log",
            "--audit-log-mode=batch"]


def controller_manager(_cluster):
    pki = f"{INSIDE}/pki"
    return ["kube-controller-manager", f"--kubeconfig={pki}/controller-manager.kubeconfig", "--use-service-account-credentials",
            f"--service-account-private-key-file={pki}/service-account.key", f"--root-ca-file={pki}/ca.crt", "--kube-api-qps=500",
            "--kube-api-burst=1000", "--pvclaimbinder-sync-period=1s", "--leader-elect=false", "--bind-address=127.0.0.1",
            f"--cluster-signing-cert-file={pki}/ca.crt", f"--cluster-signing-key-file={pki}/ca.key"]


def scheduler(_cluster):
    return ["kube-scheduler", f"--kubeconfig={INSIDE}/pki/scheduler.kubeconfig", "--leader-elect=false", "--bind-address=127.0.0.1"]


# The kubelet wants to set sysctls of the whole machine. In a mount namespace of its own it finds files that say what it wants to hear; everybody
# else keeps an uncovered /proc, without which no Pod could have a user namespace.
SYSCTLS = {"vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1,
           "kernel/keys/root_maxkeys": 1000000, "kernel/keys/root_maxbytes": 25000000}


def node_programs(cluster):
    """What makes the node: (name, command line)."""
    pki = f"{INSIDE}/pki"
    if cluster.fake:
        yield "kwok", ["kwok", f"--kubeconfig={pki}/kwok.kubeconfig", "--manage-all-nodes=true", "--node-lease-duration-seconds=40",
                       f"--config={BIN}/kwok-stages.yaml", "--cidr=10.200.0.0/16", "--server-address="]
        return
    cover = "".join(f"echo {value} >{INSIDE}/sysctl.{name.replace('/', '.')}; "
                    f"mount --bind {INSIDE}/sysctl.{name.replace('/', '.')} /proc/sys/{name}; " for name, value in SYSCTLS.items())
    yield "kubelet", ["unshare", "--mount", "--propagation", "unchanged", "sh", "-ec", f'mount --make-private /proc; {cover} exec "$@"', "sh",
                      "kubelet", f"--config={INSIDE}/kubelet.json", f"--kubeconfig={pki}/kubelet.kubeconfig", f"--root-dir={INSIDE}/kubelet",
                      f"--cert-dir={INSIDE}/kubelet/pki", f"--node-ip={NODE_ADDRESS}", f"--hostname-override={cluster.node}"]
    yield "proxy", ["kube-proxy", f"--kubeconfig={pki}/proxy.kubeconfig", "--proxy-mode=nftables", f"--cluster-cidr={POD_NETWORK}",
                    f"--hostname-override={cluster.node}", "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0",
                    "--conntrack-tcp-timeout-close-wait=0", "--bind-address=127.0.0.1"]
    yield "registry", ["python3", "-u", "-m", "rig.registry", str(REGISTRY_PORT)]
    yield "dns", ["python3", "-u", "-m", "rig.dns", f"{INSIDE}/kubeconfig", NODE_ADDRESS]
