"""What people read: which option, which box, how much, and what to do, in the words of the command line."""
import pathlib
import signal
import subprocess

import pytest

from support import USER
from support.waiting import wait_for


@pytest.mark.parametrize("words", [["run", "--network", "--", "true"], ["create", "--network", "host"]])
def test_an_option_of_other_tools_is_answered_with_ours_and_the_page(server, words):
    refused = server.carrel(*words)
    assert refused.returncode == 125
    assert "--network" in refused.stderr and "--net public" in refused.stderr and "--allow" in refused.stderr and "docs/network.md" in refused.stderr


COMMANDS = [["run", "--", "true"], ["plan", "--", "true"], ["create"], ["py", "-c", "1"], ["service", "create", "tools", "/dev/null"], ["mcp"],
            ["net", "one"]]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize(
    "one, other, said",
    [
        (["--net", "none"], ["--allow", "a.test"], "--net none excludes --allow"),
        (["--net", "none"], ["--deny", "a.test"], "--net none excludes --deny"),
        (["--net", "none"], ["--net", "public"], "exclude each other"),
        (["--net", "named"], ["--allow", "a.test"], "named"),
    ],
)
def test_networks_that_contradict_each_other_are_refused_by_every_command_in_any_order(server, command, one, other, said):
    for options in (one + other, other + one):
        at = command.index("--") if "--" in command else len(command)
        refused = server.carrel(*command[:at], *options, *command[at:])
        assert refused.returncode == 125 and said in refused.stderr, (command, options, refused)


MANUAL = pathlib.Path(__file__).parents[2] / "docs/carrel.1"


@pytest.mark.parametrize("command", [["run"], ["create"], ["py"], ["service"], ["mcp"], ["net"]], ids=lambda words: words[0])
def test_options_for_the_network_are_in_the_help_of_every_command_that_takes_them_and_in_the_manual(server, command):
    told = server.carrel(*command, "--help").stdout
    assert [option for option in ("--net", "--allow", "--deny") if option not in told] == []
    manual = MANUAL.read_text()
    entry = manual[manual.index(".It Fl -allow") :] if command == ["run"] else manual[manual.index(f".It Cm {command[0]}") :]
    assert [option for option in ("-net", "-allow", "-deny") if option not in (entry if command == ["run"] else entry[: entry.index(".It Cm", 1)])] == []


@pytest.mark.parametrize("options", [["--allow", "a.test"], ["--net", "public"]])
def test_the_same_network_twice_and_rules_beside_public_are_no_contradiction(server, options):
    for given in (["--net", "public", *options], [*options, "--net", "public"]):
        made = server.carrel("create", "--json", *given)
        assert made.returncode == 0 and '"public"' in made.stdout, made.stderr
        assert server.carrel("plan", *given, "--", "true").returncode == 0


def test_a_run_that_names_a_network_of_the_configuration_is_told_where_it_is(server):
    refused = server.carrel("run", "--net", "work", "--", "true")
    assert refused.returncode == 125 and "are in a server's configuration: use 'carrel create --net NAME'" in refused.stderr, refused.stderr


def test_a_misspelt_option_is_answered_with_the_nearest(server):
    refused = server.carrel("create", "--memmory", "1G")
    assert refused.returncode == 125 and "did you mean --memory?" in refused.stderr


@pytest.mark.skipif(bool(USER), reason="only limits that a server can hold have a most")
def test_a_limit_is_told_as_people_write_it(make_server):
    server = make_server("--set", "limits.memory=8G", "--set", "defaults.memory=64M")
    refused = server.carrel("create", "--memory", "16G")
    assert refused.returncode == 125 and "--memory may be at most 8G on this server, not 16G" in refused.stderr, refused.stderr
    assert "limits.memory may be at most 8G" in server.admin.post("/v1/boxes", {"limits": {"memory": "16G"}}).body.decode()


def test_the_most_output_is_told_as_people_write_it(make_server):
    server = make_server("--set", "limits.output=64M")
    made = server.carrel("create").stdout.strip()
    refused = server.carrel("exec", "--output-limit", "65M", made, "true")
    assert refused.returncode == 125 and "--output-limit may be at most 64M on this server" in refused.stderr, refused.stderr
    asked = server.admin.post(f"/v1/boxes/{made}/exec", {"argv": ["true"], "output_limit": "65M"})
    assert "output_limit may be at most 64M on this server (limits.output)" in asked.json["error"]["message"]


def test_what_the_server_says_of_fields_is_told_with_options(server):
    asked = {"memory": "64M", "disk": "128M"}
    told = server.admin.post("/v1/boxes", {"limits": asked})
    if told.status == 201:
        pytest.skip("this server cannot limit memory")
    assert "limits.disk is larger than limits.memory" in told.json["error"]["message"] and '"store": "disk"' in told.json["error"]["message"]
    refused = server.carrel("create", "--memory", "64M", "--disk", "128M")
    assert "--disk is larger than --memory" in refused.stderr and "--store disk" in refused.stderr and "limits." not in refused.stderr, refused.stderr


def test_a_box_that_is_not_there_is_named_and_one_that_went_says_why(server):
    never = server.carrel("exec", "nosuch", "true")
    assert never.returncode == 125 and "there is no box 'nosuch'" in never.stderr
    made = server.carrel("create", "--name", "short", "--idle-timeout", "1s").stdout.strip()
    wait_for(lambda: server.admin.get("/v1/boxes/" + made).json["phase"] == "deleted")
    by_name, by_id = (server.carrel("exec", box, "true").stderr for box in ("short", made))
    assert f"there is no box 'short' any more: {made} was deleted" in by_name and "s ago: idle" in by_name
    assert "the box was deleted" in by_id and "s ago: idle" in by_id


@pytest.mark.parametrize("words,said", [(("service", "call", "nosuch", "f"), "there is no service 'nosuch'; 'carrel service ls' lists your services"),
                                        (("grant", "rm", "nosuch"), "there is no grant 'nosuch'; 'carrel grant ls' lists your grants"),
                                        (("token", "revoke", "nosuch"), "there is no token 'nosuch'; 'carrel token list' shows them"),
                                        (("stats", "nosuch"), "there is no box 'nosuch'; 'carrel ps' lists your boxes")])
def test_what_is_not_there_is_named_with_the_command_that_lists_what_is(server, words, said):
    refused = server.carrel(*words)
    assert refused.returncode == 125 and refused.stderr == f"carrel: {said}\n" and refused.stdout == "", refused


def test_help_has_the_commands(place):
    for command in ("run", "create", "layer"):
        asked = [subprocess.run([place / "carrel", *words], capture_output=True, text=True, timeout=60) for words in (("help", command), (command, "--help"))]
        assert asked[0].returncode == 0 and asked[0].stdout == asked[1].stdout and command in asked[0].stdout
    unknown = subprocess.run([place / "carrel", "help", "nosuch"], capture_output=True, text=True, timeout=60)
    assert unknown.returncode == 125 and "nosuch" in unknown.stderr


def test_a_server_that_is_stopped_says_how_many_boxes_end(make_server):
    server = make_server()
    for _ in range(2):
        assert server.carrel("create").returncode == 0
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(60)
    assert "the server ends, and 2 boxes with it" in server.log_text()
