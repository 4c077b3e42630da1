"""The cluster's names, asked of the API server at each question: a Service's address, the Pods' addresses of a headless one (all, or one by
its host name). There is nothing outside of the cluster, so every other name does not exist."""
import socket
import struct
import sys

from .api import Api
from .layout import DOMAIN

A, NO_ERROR, FAILURE, NO_NAME = 1, 0, 2, 3


def endpoints(api, namespace, service, host):
    slices = api.get(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io/service-name%3D{service}")
    return [address for item in slices["items"] for endpoint in item.get("endpoints") or []
            if endpoint["conditions"].get("ready", True) and host in (None, endpoint.get("hostname"))
            for address in endpoint["addresses"]]


def lookup(api, name):
    """The addresses of a name; None if there is no such name."""
    parts, domain = name.lower().rstrip(".").split("."), DOMAIN.split(".")
    if parts[-len(domain) - 1:] != ["svc", *domain]:
        return None
    parts = parts[:-len(domain) - 1]
    if len(parts) not in (2, 3):
        return None
    host, (service, namespace) = (parts[0] if len(parts) == 3 else None), parts[-2:]
    found = api.find(f"/api/v1/namespaces/{namespace}/services/{service}")
    if not found:
        return None
    if found["spec"].get("clusterIP") == "None":
        return endpoints(api, namespace, service, host) or (None if host else [])
    return [found["spec"]["clusterIP"]] if host is None else None


def answer(api, query):
    """The reply to one question, as bytes."""
    at, labels = 12, []
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode())
        at += 1 + query[at]
    kind = struct.unpack(">H", query[at + 1:at + 3])[0]
    try:
        addresses, code = lookup(api, ".".join(labels)), NO_ERROR
    except Exception as error:  # noqa: BLE001 (whatever it was, the asker must not wait)
        print(f"{'.'.join(labels)}: {error!r}", flush=True)
        addresses, code = [], FAILURE
    if addresses is None:
        addresses, code = [], NO_NAME
    addresses = addresses if kind == A else []
    records = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", A, 1, 1, 4) + socket.inet_aton(a) for a in addresses)
    return query[:2] + struct.pack(">HHHHH", 0x8580 | code, 1, len(addresses), 0, 0) + query[12:at + 5] + records


def main(kubeconfig, address):
    api = Api(kubeconfig)
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind((address, 53))
    while True:
        query, asker = listener.recvfrom(4096)
        try:
            listener.sendto(answer(api, query), asker)
        except (IndexError, UnicodeError, struct.error) as error:
            print(f"{asker}: {error!r}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
