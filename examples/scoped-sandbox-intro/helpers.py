"""Formatting. Runs in the agent's session, not in the sandbox."""


def as_table(rows: list) -> str:
    """A list of dicts as a markdown table."""
    if not rows:
        return "(empty)"
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([str(row[name]) for name in names] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
