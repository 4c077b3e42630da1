"""tools/prove writes what it proved into the page, between the marks and nowhere else."""
import pathlib
import re
import shutil
import subprocess

TOP = pathlib.Path(__file__).resolve().parents[2]


def test_the_page_has_a_row_for_each_suite_and_keeps_the_rest(tmp_path):
    for folder in ("mk", "src", "guest", "sdk", "tests", "packaging", "tools", "docs"):
        (tmp_path / folder).mkdir()
    for tool in ("prove", "proof-table"):
        shutil.copy(TOP / "tools" / tool, tmp_path / "tools")
    (tmp_path / "Makefile").write_text("good: ; @echo fine\nbad: ; @exit 1\n")
    (tmp_path / "build/test").mkdir(parents=True)
    (tmp_path / "build/test/results.tsv").write_text("unit\tpassed\t2\t1\t118 | passed\n")
    page = tmp_path / "docs/proof.md"
    page.write_text("# head\n<!-- made by make proof -->\nold\n<!-- end -->\ntail\n")
    for _ in range(2):      # the second run repeats what failed, and only that
        done = subprocess.run([tmp_path / "tools/prove", "build/proof", "good", "bad"], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "FAILED: bad" in done.stdout, done
        text = page.read_text()
        assert text.startswith("# head\n<!--") and text.endswith("<!-- end -->\ntail\n") and "old" not in text
        assert re.search(r"^\| good \| passed \| \d+ \|", text, re.M) and re.search(r"^\| bad \| FAILED \| \d+ \|", text, re.M)
        assert "| test: unit | passed | 2 | 1 | 118 / passed |" in text
    assert done.stdout.count("fine") == 0
    (tmp_path / "docs/other.md").write_text("no marks\n")
    refused = subprocess.run([tmp_path / "tools/proof-table", tmp_path / "docs/other.md", tmp_path], capture_output=True, text=True)
    assert refused.returncode == 1 and "lacks the lines" in refused.stderr
