#!/usr/bin/python3
"""Makes what a test machine boots: a kernel, an initramfs, a read-only image of this host's /usr, one of the project, an empty disk.

Everything comes from Debian packages. The kernel's package is unpacked, not installed. Of /usr only the files of some
packages and of what they depend on go in, because a whole /usr is gigabytes. An output is kept until it is older than
something it is made from.
"""

import argparse
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import threading

# Besides the packages that Debian marks as essential.
GUEST_PACKAGES = ["python3", "uidmap", "util-linux", "mount", "procps", "strace", "bubblewrap", "libcap2-bin",
                  "libseccomp2", "git", "gcc", "libc6-dev", "iproute2", "systemd", "libsqlite3-0", "libjansson4",
                  "libssl3", "libyaml-0-2"]
# What pytest needs; other suites' modules only make it slow to start.
GUEST_MODULES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup", "tomli", "typing_ext", "py.py")
# In the order in which they are loaded; those with a question mark may be absent or built in.
MODULES = ["virtio", "virtio_ring", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk",
           "squashfs", "loop?", "overlay?", "fuse?", "tun?"]
TOOLS = {"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}


def run(*argv, **kwargs):
    return subprocess.run(argv, check=True, timeout=600, **kwargs)


def fresh(output, *inputs):
    """True if output is newer than all inputs."""
    if not os.path.exists(output):
        return False
    made = os.path.getmtime(output)
    return all(os.path.getmtime(i) <= made for i in inputs)


def make_kernel(out):
    """kernel/boot/vmlinuz-* and kernel/lib/modules/*, from the newest package that linux-image-cloud-amd64 means."""
    if glob.glob(f"{out}/kernel/boot/vmlinuz-*"):
        return
    shown = run("apt-cache", "depends", "linux-image-cloud-amd64", stdout=subprocess.PIPE, text=True).stdout
    package = next(line.split()[1] for line in shown.splitlines() if "Depends: linux-image-" in line)
    debs = f"{out}/debs"
    os.makedirs(debs, exist_ok=True)
    run("apt-get", "-q", "download", package, cwd=debs, stdout=subprocess.DEVNULL)
    shutil.rmtree(f"{out}/kernel.new", ignore_errors=True)
    run("dpkg", "-x", glob.glob(f"{debs}/{package}_*.deb")[0], f"{out}/kernel.new")
    os.rename(f"{out}/kernel.new", f"{out}/kernel")


def make_initramfs(out, here):
    output, init = f"{out}/initramfs", f"{here}/init.sh"
    kernel = glob.glob(f"{out}/kernel/boot/vmlinuz-*")[0]
    if fresh(output, init, kernel, __file__):
        return
    tree = f"{out}/initramfs.tree"
    shutil.rmtree(tree, ignore_errors=True)
    for name in ("bin", "modules", "proc", "sys", "dev", "new"):
        os.makedirs(f"{tree}/{name}")
    shutil.copy(shutil.which("busybox"), f"{tree}/bin/busybox")
    shutil.copy(init, f"{tree}/init")
    os.chmod(f"{tree}/init", 0o755)
    for number, module in enumerate(MODULES):
        found = glob.glob(f"{out}/kernel/lib/modules/*/kernel/**/{module.rstrip('?')}.ko", recursive=True)
        if found:
            shutil.copy(found[0], f"{tree}/modules/{number:02}-{module.rstrip('?')}.ko")
        elif not module.endswith("?"):
            sys.exit(f"image.py: the kernel package has no module {module}")
    names = "\n".join(os.path.relpath(os.path.join(where, n), tree) for where, dirs, files in os.walk(tree)
                      for n in sorted(dirs) + files)
    with open(output + ".new", "wb") as file:
        run("busybox", "cpio", "-o", "-H", "newc", "-R", "0:0", cwd=tree, input=names.encode(), stdout=file,
            stderr=subprocess.DEVNULL)
    os.rename(output + ".new", output)


def installed_packages():
    """{name: (essential, [[alternative, ...], ...])} of what dpkg has installed here, virtual names included."""
    packages, provided = {}, {}
    fields = ("Package", "Essential", "db:Status-Status", "Pre-Depends", "Depends", "Provides")
    shown = run("dpkg-query", "-W", "-f=" + "\t".join("${%s}" % f for f in fields) + "\n", stdout=subprocess.PIPE,
                text=True).stdout
    for line in shown.splitlines():
        name, essential, status, before, depends, provides = line.split("\t")
        if status != "installed":
            continue
        clauses = [c for c in (before + "," + depends).split(",") if c.strip()]
        needs = [[a.split()[0].split(":")[0] for a in clause.split("|")] for clause in clauses]
        packages[name] = (essential == "yes", needs)
        for virtual in provides.split(","):
            if virtual.strip():
                provided.setdefault(virtual.split()[0], name)
    for virtual, name in provided.items():
        packages.setdefault(virtual, (False, [[name]]))
    return packages


def package_closure(wanted):
    packages = installed_packages()
    missing = [w for w in wanted if w not in packages]
    if missing:
        print(f"image.py: not installed here, so not in the guest: {' '.join(missing)}")
    todo = [w for w in wanted if w in packages] + [n for n, (essential, _) in packages.items() if essential]
    seen = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        for alternatives in packages[name][1]:
            todo.extend([a for a in alternatives if a in packages][:1])
    return sorted(seen)


def package_files(names):
    """The files below /usr of these packages, relative to /usr, with all directories on the way."""
    info = "/var/lib/dpkg/info"
    real = [n for n in names if os.path.exists(f"{info}/{n}.list") or glob.glob(f"{info}/{n}:*.list")]
    listed = run("dpkg", "-L", *real, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    skip = tuple(f"/usr/share/{name}/" for name in ("doc", "man", "locale", "info", "bash-completion"))
    files = set()
    for name in listed:
        if not name.startswith("/") or not os.path.lexists(name):
            continue
        name = os.path.join(os.path.realpath(os.path.dirname(name)), os.path.basename(name))
        if name.startswith("/usr/") and not name.startswith(skip):
            files.add(name.removeprefix("/usr/"))
    # Made by maintainer scripts, so in no list.
    for name in glob.glob("/usr/bin/*") + glob.glob("/usr/sbin/*"):
        if os.path.islink(name) and os.readlink(name).startswith("/etc/alternatives/"):
            files.add(name.removeprefix("/usr/"))
    files.add("local")      # a mount point
    for name in list(files):
        while name := os.path.dirname(name):
            files.add(name)
    return sorted(files)


def make_squashfs(output, *argv, **kwargs):
    """argv: the source and its options. lz4, because the guest, which is emulated, unpacks it fast."""
    remove(output + ".new")
    run("mksquashfs", argv[0], output + ".new", *argv[1:], "-comp", "lz4", "-all-root", "-no-progress", "-quiet",
        stdout=subprocess.DEVNULL, **kwargs)
    os.rename(output + ".new", output)


def make_usr(out):
    """ext4 and not squashfs, because ids can be mapped on it: for squashfs that takes Linux 6.2."""
    names = package_files(package_closure(GUEST_PACKAGES))
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
    output, stamp, tree = f"{out}/usr.ext4", f"{out}/usr.stamp", f"{out}/usr.tree"
    if fresh(output, "/var/lib/dpkg/status") and os.path.exists(stamp) and open(stamp).read() == digest:
        return
    remove(tree)
    os.makedirs(tree)
    # The files are root's in the image, also when an ordinary user makes it.
    as_root = [] if os.getuid() == 0 else ["unshare", "--map-root-user"]
    xattrs = ["--xattrs", "--xattrs-include=security.capability"]
    command = ["tar", "-c", "-C", "/usr", "--no-recursion", *xattrs, "-T", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tar:
        writer = threading.Thread(target=feed, args=(tar.stdin, "\n".join(names).encode()))
        writer.start()
        run(*as_root, "tar", "-x", "-p", "-C", tree, *xattrs, stdin=tar.stdout)
        writer.join()
    if tar.returncode != 0:
        sys.exit("image.py: tar failed")
    remove(output + ".new")
    used = int(run("du", "-sk", tree, stdout=subprocess.PIPE, text=True).stdout.split()[0])
    run(*as_root, "mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", "-N", str(2 * len(names)), "-d", tree, output + ".new",
        f"{used * 5 // 4 + 65536}k", env=TOOLS)
    os.rename(output + ".new", output)
    remove(tree)
    with open(stamp, "w") as file:
        file.write(digest)


def feed(pipe, data):
    with pipe:
        pipe.write(data)


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def make_project(out, args):
    """/carrel in the guest: the tests, the programs built for them, pytest, and this host's /etc/alternatives."""
    tree, output = f"{out}/project.tree", f"{out}/project.squashfs"
    remove(tree)
    os.makedirs(f"{tree}/build")
    for name in ("tests", "guest", "sdk", "tools", "packaging"):
        if os.path.isdir(f"{args.source}/{name}"):
            shutil.copytree(f"{args.source}/{name}", f"{tree}/{name}", symlinks=True,
                            ignore=shutil.ignore_patterns("__pycache__"))
    for path in args.program:
        if os.path.isdir(path):
            shutil.copytree(path, f"{tree}/build/{os.path.basename(path)}", symlinks=True)
        else:
            shutil.copy(path, f"{tree}/build/")
    site = glob.glob(f"{args.venv}/lib/python3*/site-packages")
    if not site:
        sys.exit(f"image.py: no Python environment in {args.venv}")
    os.makedirs(f"{tree}/site")
    for name in filter(lambda name: name.lower().startswith(GUEST_MODULES), os.listdir(site[0])):
        copy = shutil.copytree if os.path.isdir(f"{site[0]}/{name}") else shutil.copy
        copy(f"{site[0]}/{name}", f"{tree}/site/{name}")
    shutil.copytree("/etc/alternatives", f"{tree}/alternatives", symlinks=True)
    make_squashfs(output, tree)


def make_disk(out):
    """An empty file system on which ids can be mapped; on tmpfs that takes Linux 6.3."""
    output = f"{out}/disk.ext4"
    if not os.path.exists(output):
        with open(output + ".new", "wb") as file:
            file.truncate(256 << 20)
        run("mkfs.ext4", "-q", "-m", "0", output + ".new", env=TOOLS)
        os.rename(output + ".new", output)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--source", required=True, help="the project's directory")
    parser.add_argument("--venv", required=True)
    parser.add_argument("program", nargs="+", help="goes to /carrel/build in the guest")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    here = os.path.dirname(os.path.abspath(__file__))
    make_kernel(args.out)
    make_initramfs(args.out, here)
    make_usr(args.out)
    make_project(args.out, args)
    make_disk(args.out)


if __name__ == "__main__":
    main()
