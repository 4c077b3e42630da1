"""Volumes of the default StorageClass: a folder of the node for each claim, as a `local` volume (for which the kubelet honours fsGroup, unlike
hostPath), removed when its claim is gone."""
import os
import shutil
import sys
import threading

from .api import Api, ApiError

PROVISIONER = "carrel.dev/folder"
CLAIMS, VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"


def storage_class():
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": PROVISIONER,
            "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}


def volume(claim, folder, node):
    meta, spec = claim["metadata"], claim["spec"]
    hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {"apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": os.path.basename(folder), "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
            "spec": {"capacity": {"storage": spec["resources"]["requests"]["storage"]}, "accessModes": spec["accessModes"],
                     "storageClassName": spec["storageClassName"], "persistentVolumeReclaimPolicy": "Delete", "local": {"path": folder},
                     "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta["namespace"],
                                  "name": meta["name"], "uid": meta["uid"]},
                     "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}}}}


def provide(kubeconfig, below, node):
    api = Api(kubeconfig)
    caller = Api(kubeconfig)
    for kind, claim in api.changes(CLAIMS):
        asked = claim["metadata"].get("annotations", {}).get("volume.kubernetes.io/storage-provisioner")
        if kind == "DELETED" or claim["status"].get("phase") != "Pending" or asked != PROVISIONER:
            continue
        folder = os.path.join(below, "pvc-" + claim["metadata"]["uid"])
        os.makedirs(folder, exist_ok=True)
        os.chmod(folder, 0o777)
        try:
            caller.call("POST", VOLUMES, volume(claim, folder, node))
        except ApiError as error:
            if error.code != 409:
                print(f"{claim['metadata']['name']}: {error}", flush=True)


def reclaim(kubeconfig):
    api = Api(kubeconfig)
    caller = Api(kubeconfig)
    for kind, item in api.changes(VOLUMES):
        ours = item["metadata"].get("annotations", {}).get("pv.kubernetes.io/provisioned-by") == PROVISIONER
        if kind == "DELETED" or not ours or item["status"].get("phase") != "Released":
            continue
        shutil.rmtree(item["spec"]["local"]["path"], ignore_errors=True)
        try:
            caller.call("DELETE", f"{VOLUMES}/{item['metadata']['name']}")
        except ApiError as error:
            if error.code != 404:
                print(f"{item['metadata']['name']}: {error}", flush=True)


def main(kubeconfig, below, node):
    threading.Thread(target=reclaim, args=(kubeconfig,), daemon=True).start()
    provide(kubeconfig, below, node)


if __name__ == "__main__":
    main(*sys.argv[1:])
