"""Certificates and kubeconfigs of a cluster: one authority, and a client certificate for each client of the API server."""
import base64
import json
import subprocess

from .layout import DOMAIN, NODE_ADDRESS, SERVICE_ADDRESS

CLIENTS = {
    "admin": "/O=system:masters/CN=admin",
    "controller-manager": "/CN=system:kube-controller-manager",
    "scheduler": "/CN=system:kube-scheduler",
    "proxy": "/CN=system:kube-proxy",
    "kwok": "/O=system:masters/CN=kwok",
    "apiserver-kubelet": "/O=system:masters/CN=kube-apiserver-kubelet-client",
}


def openssl(folder, *arguments, text=None):
    done = subprocess.run(["openssl", *arguments], cwd=folder, input=text, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"cluster: openssl {arguments[0]}: {done.stderr.strip()}")


def key(folder, name):
    openssl(folder, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")


def sign(folder, name, subject, extensions):
    key(folder, name)
    openssl(folder, "req", "-new", "-key", f"{name}.key", "-subj", subject, "-out", f"{name}.csr")
    (folder / f"{name}.ext").write_text(extensions)
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30",
            "-extfile", f"{name}.ext", "-out", f"{name}.crt")


def make(folder, node):
    """Fills a folder with keys and certificates that are valid for 30 days."""
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    key(folder, "ca")
    openssl(folder, "req", "-x509", "-new", "-key", "ca.key", "-days", "30", "-subj", "/CN=carrel-cluster", "-out", "ca.crt")
    key(folder, "service-account")
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{DOMAIN}"]
    addresses = ["127.0.0.1", NODE_ADDRESS, SERVICE_ADDRESS]
    alternatives = ",".join([f"DNS:{n}" for n in names] + [f"IP:{a}" for a in addresses])
    sign(folder, "apiserver", "/CN=kube-apiserver", f"extendedKeyUsage=serverAuth\nsubjectAltName={alternatives}\n")
    sign(folder, "kubelet-server", f"/O=system:nodes/CN=system:node:{node}",
         f"extendedKeyUsage=serverAuth\nsubjectAltName=IP:{NODE_ADDRESS},DNS:{node}\n")
    for name, subject in {**CLIENTS, "kubelet": f"/O=system:nodes/CN=system:node:{node}"}.items():
        sign(folder, name, subject, "extendedKeyUsage=clientAuth\n")


def kubeconfig(folder, name, server):
    """A kubeconfig with everything in it, so that it may be copied. (JSON is YAML.)"""
    def data(file):
        return base64.b64encode((folder / file).read_bytes()).decode()
    return json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "carrel",
        "clusters": [{"name": "carrel", "cluster": {"server": server, "certificate-authority-data": data("ca.crt")}}],
        "users": [{"name": name, "user": {"client-certificate-data": data(f"{name}.crt"), "client-key-data": data(f"{name}.key")}}],
        "contexts": [{"name": "carrel", "context": {"cluster": "carrel", "user": name}}],
    }, indent=1)
