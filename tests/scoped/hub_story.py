"""In mount and network namespaces of its own, as root: a hub that speaks TLS on port 443 of loopback, and a token that the broker has. A line of JSON tells
who got it."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "sdk/python")]
TOKEN = "hf_0123456789abcdefghij"
NAME = "org/model"
CERTIFICATES = "/etc/ssl/certs"
# The worker's first lines: what a program in the box sees of the token.
SEEN = "import os, json, sys\nif os.path.isdir('/staging'): open('/staging/seen', 'w').write(json.dumps(dict(os.environ)))\n"


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def certificates(folder):
    """An authority that this host trusts from now on, and its certificate for the names of the hub."""
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=root",
            "-keyout", folder / "root.key", "-out", folder / "root.crt")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=hub", "-keyout", folder / "hub.key",
            "-addext", "subjectAltName=DNS:hub.carrel.internal,DNS:files.carrel.internal", "-out", folder / "hub.csr")
    openssl("x509", "-req", "-in", folder / "hub.csr", "-CA", folder / "root.crt", "-CAkey", folder / "root.key", "-days", "2", "-CAcreateserial",
            "-copy_extensions", "copy", "-out", folder / "hub.crt")
    (folder / "hub.pem").write_text((folder / "hub.key").read_text() + (folder / "hub.crt").read_text())
    shutil.copytree(CERTIFICATES, folder / "certs", symlinks=True)
    with open(folder / "certs/ca-certificates.crt", "a") as bundle:
        bundle.write((folder / "root.crt").read_text())
    subprocess.run(["mount", "--bind", folder / "certs", CERTIFICATES], check=True)
    return folder / "hub.pem"


def weights(folder):
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(os.urandom(3 << 20))
    return folder


def main(folder):
    folder.mkdir(mode=0o755)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    os.environ.update(HF_ENDPOINT="https://hub.carrel.internal", HF_HOME=str(folder / "hf"), XDG_CACHE_HOME=str(folder / "cache"), HF_TOKEN=TOKEN,
                      CARREL_MODEL_HOSTS="files.carrel.internal:8443")
    from hub_server import Hub
    from carrel.environment import hub_box
    from carrel.environment.models import find_model
    from carrel.environment.server import scoped_server
    model, pem = weights(folder / "weights"), certificates(folder)
    hub, files = (Hub({NAME: model}, ("127.0.0.1", port), certificate=pem) for port in (443, 8443))
    hub.store, hub.store_port, hub.gated = "files.carrel.internal", 8443, TOKEN
    source = hub_box.inspect.getsource
    # A line of ours comes after the worker's own first two, which must be the first.
    hub_box.inspect.getsource = lambda module: source(module).replace("\nimport functools\n", "\n" + SEEN + "import functools\n", 1)
    seen = {}
    land = hub_box.HubBox.get

    def get(self, commit, *rest, **options):
        land(self, commit, *rest, **options)
        place = options["mounts"][0]["source"] + "/seen"
        seen.update(json.loads(pathlib.Path(place).read_text()))
        os.unlink(place)
    hub_box.HubBox.get = get
    found = find_model(NAME, os.environ)
    holding = subprocess.run(["grep", "-rlF", "--devices=skip", TOKEN, folder, scoped_server().directory], capture_output=True, text=True, check=False).stdout
    print(json.dumps({"placeholder": seen["HF_TOKEN"], "seen_inside": TOKEN in json.dumps(seen), "files_with_token": holding,
                      "fetched": pathlib.Path(found, "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes(),
                      "tokens_of_hub": sorted({auth for _, auth in hub.tokens}, key=str), "tokens_of_files": sorted({auth for _, auth in files.tokens}, key=str)}))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
