"""A line for each block of the pages: passes, fails, or what it lacks. Ends with 1 if any fails."""
import os
import subprocess
import sys

import cut
import table


def proved(command, known={}):
    """(how it ended, what it said) of a command, which is run once."""
    if command.startswith("["):
        return "lacks", command.strip("[]")
    if command not in known:
        done = subprocess.run(command.replace("{python}", sys.executable).split(), cwd=cut.HERE.parents[1], capture_output=True, text=True, check=False)
        last = (done.stdout.strip().splitlines() or [""])[-1]
        known[command] = ("passes", "") if done.returncode == 0 else ("lacks", last) if done.returncode == 77 else ("fails", done.stdout + done.stderr)
    return known[command]


def main():
    rows = table.PAGES if os.environ.get("CARREL_PAGES") else table.OWN
    counted = {"passes": 0, "fails": 0, "lacks": 0}
    told = set()
    for name, first, last, begins, what, repairs, proof in rows:
        if cut.page(name) is None:
            how, why = "lacks", "the page"
        else:
            cut.lines(name, first, last, begins)
            how, why = proved(proof)
        counted[how] += 1
        note = f": {why}" if how == "lacks" else ""
        print(f"{name} {first:>3}-{last:<3} {how:6}{note}  {what}" + (f" ({repairs})" if repairs else ""), flush=True)
        if how == "fails" and proof not in told:
            told.add(proof)
            print("".join(f"    | {line}\n" for line in why.splitlines()[-60:]), end="", flush=True)
    for what, words in (("example", "examples/scoped-sandbox-intro"), ("notebook", "a hidden model in a notebook"),
                        ("adapters", "adapters of models (PEFT) in a notebook")):
        how, why = proved(f"{table.PROVE} {what}")
        counted[how] += 1
        print(f"{words}: {how}" + (f": {why}" if why else ""), flush=True)
    print("pages: " + ", ".join(f"{n} {how}" for how, n in counted.items()))
    return 1 if counted["fails"] else 0


if __name__ == "__main__":
    sys.exit(main())
