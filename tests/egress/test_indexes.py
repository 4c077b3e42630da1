"""Where packages come from, in boxes with network: addresses of the host's system files, and no secret of them."""
import os
import pathlib
import subprocess

import pytest

BUILD = pathlib.Path(os.environ.get("CARREL_BUILD", "build")).absolute()
FILES = {
    "pip.conf": "[global]\nindex-url = https://index.example.org/simple\nextra-index-url = https://me:hunter2@private.example.org/simple\n",
    "npmrc": "//npm.example.org/:_authToken=hunter2\nregistry=https://npm.example.org/\n",
    "uv/uv.toml": "[[index]]\nurl = \"https://uv.example.org/simple\"\ndefault = true\n",
    "apt/sources.list": "deb http://deb.example.org/debian stable main\ndeb https://me:hunter2@private.example.org/ stable main\n",
}
SHOWN = ["/etc/" + name for name in FILES]


@pytest.fixture
def etc(tmp_path):
    """Runs a command where these files are over the host's /etc."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    tmp_path.chmod(0o755)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for path in [tmp_path, *tmp_path.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)

    def run(*words):
        return subprocess.run(["unshare", "-m", "sh", "-c", f'mount -t overlay overlay -o lowerdir={tmp_path}:/etc /etc && exec "$@"', "sh",
                               str(BUILD / "carrel"), *words], capture_output=True, text=True, timeout=120)
    run.folder = tmp_path
    return run


def test_a_box_with_network_has_the_addresses_and_no_secret(etc):
    ended = etc("run", "--allow", "index.example.org", "--", "cat", *SHOWN)
    assert ended.returncode == 0, ended.stderr
    assert "hunter2" not in ended.stdout and "private.example.org" not in ended.stdout
    assert "index-url = https://index.example.org/simple\n" in ended.stdout and "registry=https://npm.example.org/\n" in ended.stdout
    assert '[[index]]\nurl = "https://uv.example.org/simple"\ndefault = true\n' in ended.stdout
    assert "deb http://deb.example.org/debian stable main\n" in ended.stdout
    assert ended.stdout.count("was left out here") == 2


def test_a_box_without_network_has_none_of_it(etc):
    ended = etc("run", "--", "sh", "-c", "cat /etc/pip.conf; ls /etc/npmrc /etc/uv /etc/apt/sources.list")
    assert "example.org" not in ended.stdout and ended.stderr.count("No such file") == 3


def test_a_file_that_not_everybody_may_read_is_left_alone(etc):
    (etc.folder / "pip.conf").chmod(0o600)
    (etc.folder / "uv").chmod(0o700)
    ended = etc("run", "--allow", "index.example.org", "--", "cat", "/etc/pip.conf", "/etc/uv/uv.toml")
    assert "example.org" not in ended.stdout


def test_the_doctor_names_what_to_allow_and_what_was_left_out(etc):
    told = etc("doctor", "--net").stdout
    for line in ("/etc/pip.conf      index.example.org", "/etc/npmrc         npm.example.org", "/etc/uv/uv.toml    uv.example.org",
                 "/etc/apt/sources.list deb.example.org"):
        assert " ".join(line.split()) in " ".join(told.split()), told
    assert "2 addresses with a user name, a password or the like are left out" in told and "hunter2" not in told


def test_programs_find_the_certificates_of_the_host(etc):
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    if not os.path.exists(bundle):
        pytest.skip("this host has its certificates elsewhere")
    ended = etc("run", "--allow", "index.example.org", "--", "sh", "-c", "grep -h ca-certificates /etc/pip.conf /etc/npmrc; env")
    assert f"cert = {bundle}" in ended.stdout and f"cafile={bundle}" in ended.stdout
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"):
        assert f"{variable}={bundle}" in ended.stdout
    assert f"SSL_CERT_FILE={bundle}" not in etc("run", "--", "env").stdout
