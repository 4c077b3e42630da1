"""Writes image archives without a container engine. An archive is a layout of the Open Container Initiative (`index.json`) and what `docker
save` writes (`manifest.json`) at once, so that `docker load`, `podman load`, `ctr images import` and `kind load image-archive` take it. The same
files give the same bytes: names in order, no times, no names of users."""
import gzip
import hashlib
import io
import json
import os
import stat
import tarfile

EPOCH = 315532800  # 1980-01-01, the oldest day that zip files know
PREFIX = "application/vnd.oci.image."


def entry(name, mode, kind=tarfile.REGTYPE, size=0, link="", owner=(0, 0)):
    info = tarfile.TarInfo(name)
    info.mode, info.type, info.size, info.linkname, info.mtime = mode, kind, size, link, EPOCH
    info.uid, info.gid = owner
    return info


def tree(folder, skip=lambda name: False):
    """Every file below a folder, in order: (TarInfo, content or None). Hard links become copies; sockets and devices are left out."""
    for path, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(folders + files):
            full = os.path.join(path, name)
            inside = os.path.relpath(full, folder)
            if skip(inside):
                if name in folders:
                    folders.remove(name)
                continue
            status = os.lstat(full)
            mode, owner = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)
            if stat.S_ISLNK(status.st_mode):
                yield entry(inside, 0o777, tarfile.SYMTYPE, link=os.readlink(full), owner=owner), None
            elif stat.S_ISDIR(status.st_mode):
                yield entry(inside, mode, tarfile.DIRTYPE, owner=owner), None
            elif stat.S_ISREG(status.st_mode):
                with open(full, "rb") as file:
                    content = file.read()
                yield entry(inside, mode, size=len(content), owner=owner), content


def layer(entries):
    """A compressed layer, and the digest of what is in it."""
    plain, packed = hashlib.sha256(), io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0, filename="") as out:
        class Both:
            def write(self, data):
                plain.update(data)
                out.write(data)
                return len(data)
        with tarfile.open(fileobj=Both(), mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for info, content in entries:
                tar.addfile(info, None if content is None else io.BytesIO(content))
    return packed.getvalue(), plain.hexdigest()


def full_names(names):
    """Names without a registry are of the default one, as everybody reads them."""
    return [name if "/" in name else f"docker.io/library/{name}" for name in names]


def write(path, names, layers, config):
    """One image under its full names. `layers` are what layer() gives, `config` is the image's (Entrypoint, Env, User …)."""
    blobs = {}

    def blob(data):
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"digest": f"sha256:{digest}", "size": len(data)}

    def text(value):
        return json.dumps(value, sort_keys=True).encode()

    created = "1980-01-01T00:00:00Z"
    settings = {"architecture": "amd64", "os": "linux", "created": created, "config": config,
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{plain}" for _, plain in layers]},
                "history": [{"created": created, "created_by": "make-image"} for _ in layers]}
    packed = [{"mediaType": PREFIX + "layer.v1.tar+gzip", **blob(data)} for data, _ in layers]
    about = {"mediaType": PREFIX + "config.v1+json", **blob(text(settings))}
    manifest = {"schemaVersion": 2, "mediaType": PREFIX + "manifest.v1+json", "config": about, "layers": packed}
    described = {"mediaType": PREFIX + "manifest.v1+json", **blob(text(manifest)), "platform": {"architecture": "amd64", "os": "linux"}}
    index = {"schemaVersion": 2, "mediaType": PREFIX + "index.v1+json", "manifests": [
        {**described, "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}} for name in names]}

    def place(digest):
        return "blobs/sha256/" + digest.removeprefix("sha256:")

    docker = [{"Config": place(about["digest"]), "RepoTags": names,
               "Layers": [place(one["digest"]) for one in packed]}]
    files = {"oci-layout": text({"imageLayoutVersion": "1.0.0"}), "index.json": text(index), "manifest.json": text(docker), **blobs}
    with tarfile.open(f"{path}.new", "w", format=tarfile.USTAR_FORMAT) as tar:
        for file in sorted(files):
            tar.addfile(entry(file, 0o644, size=len(files[file])), io.BytesIO(files[file]))
    os.rename(f"{path}.new", path)
