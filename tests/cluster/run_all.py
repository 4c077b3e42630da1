"""usage: run_all.py ADDRESS PICTURE  Opens a notebook of a JupyterLab in a headless browser, chooses Run > Run All Cells, waits until the last cell has run,
saves, and keeps a picture of the plot (or of where it got stuck). Needs selenium and Chromium."""
import json
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By

SECONDS = 900


def until(what, condition, seconds=60):
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = condition()
            if found:
                return found
        except (WebDriverException, urllib.error.HTTPError):       # the latter: a notebook that is just being saved
            pass
        if time.monotonic() > deadline:
            raise SystemExit(f"run_all: {what}: not within {seconds} s")
        time.sleep(0.2)


def choose(browser, menu, item):
    def click():
        next(m for m in browser.find_elements(By.CSS_SELECTOR, ".lm-MenuBar-item") if m.text == menu).click()
        return next((i for i in browser.find_elements(By.CSS_SELECTOR, ".lm-Menu-item") if i.text.startswith(item)), None)
    until(f"{menu} > {item}", click).click()


def is_idle(browser):
    """Whether no cell runs or waits to. Between two cells that may seem so for a moment, if those that wait are not in sight."""
    return browser.find_elements(By.CSS_SELECTOR, ".jp-Notebook-ExecutionIndicator[data-status='idle']") and \
        not browser.execute_script("return [...document.querySelectorAll('.jp-InputPrompt')].some(p => p.textContent.includes('*'))")


def has_kernel(sessions):
    """Whether the page is connected to a kernel that has started. Running cells before that opens a dialog to choose one."""
    with urllib.request.urlopen(sessions, timeout=30) as answer:
        return any(s["kernel"]["connections"] and s["kernel"]["execution_state"] == "idle" for s in json.load(answer))


def results(browser, contents):
    """The code cells of the notebook, saved just now, if all have run or one has failed."""
    if not all(is_idle(browser) and not time.sleep(0.2) for _ in range(10)):
        return None
    choose(browser, "File", "Save Notebook")
    time.sleep(2)
    with urllib.request.urlopen(contents, timeout=30) as answer:
        cells = [c for c in json.load(answer)["content"]["cells"] if c["cell_type"] == "code"]
    failed = any(o["output_type"] == "error" for c in cells for o in c["outputs"])
    return cells if failed or all(c["execution_count"] for c in cells) else None


def main(address, picture):
    base = urllib.parse.urlsplit(address)
    contents = f"{base.scheme}://{base.netloc}/api/contents/{base.path.split('/lab/tree/')[1]}"
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    with tempfile.TemporaryDirectory() as profile:
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1400,1600", f"--user-data-dir={profile}"):
            options.add_argument(argument)
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            browser.get(address)
            until("the notebook is open", lambda: browser.find_elements(By.CSS_SELECTOR, ".jp-Notebook .jp-CodeCell"), 120)
            until("a kernel is there", lambda: has_kernel(f"{base.scheme}://{base.netloc}/api/sessions"), 120)
            until("the kernel is idle", lambda: is_idle(browser), 120)
            choose(browser, "Run", "Run All Cells")
            until("it runs", lambda: not is_idle(browser))
            cells = until("all cells have run", lambda: results(browser, contents), SECONDS)
            plot = browser.execute_script("""
                const image = document.querySelector('.jp-OutputArea img');
                if (image) image.scrollIntoView({block: 'center'});
                return image !== null;""")
            time.sleep(1)       # the page is drawn where it was scrolled to
        finally:
            browser.save_screenshot(picture)
            browser.quit()
    print(json.dumps({"plot": plot, "outputs": [c["outputs"] for c in cells]}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
