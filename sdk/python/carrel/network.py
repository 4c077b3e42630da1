"""A box's network rules and refusals."""
from __future__ import annotations

from typing import Any, Dict, Mapping, Sequence

Raw = Dict[str, Any]


def net_body(net: str | Mapping[str, Any] | None, allow: Sequence[str] | None, deny: Sequence[str] | None) -> str | Raw | None:
    """A box's network in the API's form; None if no option was given."""
    if isinstance(allow, str) or isinstance(deny, str):
        raise TypeError("allow and deny are lists of rules, as in allow=[\"index.example.org\"]")
    if not allow and not deny:
        return dict(net) if isinstance(net, Mapping) else net
    if net not in (None, "public"):
        raise ValueError(f"allow and deny go with net=\"public\" or without net, not with net={net!r}")
    return {"allow": list(allow or ()), "deny": list(deny or ()), "public": net == "public"}


def added_body(now: str | Raw, allow: Sequence[str], deny: Sequence[str]) -> Raw:
    """A box's present network, with further rules."""
    if isinstance(allow, str) or isinstance(deny, str):
        raise TypeError("allow and deny are lists of rules, as in allow=[\"index.example.org\"]")
    if isinstance(now, str) and now not in ("none", "public"):
        raise ValueError(f"the box has the network {now!r} of the server's configuration, whose rules are fixed; update(net=\"none\") takes it away")
    body: Raw = {"public": now == "public"} if isinstance(now, str) else dict(now)
    for key, more in (("allow", allow), ("deny", deny)):
        there = list(body.get(key, ()))
        body[key] = there + [rule for rule in dict.fromkeys(more) if rule not in there]
    return body


def update_body(changes: Mapping[str, Any]) -> Raw:
    body = {k: v for k, v in changes.items() if k not in ("net", "allow", "deny")}
    if len(body) != len(changes):
        body["net"] = net_body(changes.get("net"), changes.get("allow"), changes.get("deny"))
    return body


def refused_line(raw: Raw) -> str:
    """The box's refused connections meanwhile, in one line for people and models; empty if there were none."""
    refused = raw.get("refused")
    if not refused:
        return ""
    index = ", or let packages be installed for the box: packages=[\"NAME\"]" if refused.get("is_index") else ""
    return str(refused["message"]) + (f"; allow it with allow=[\"{refused['rule']}\"]{index}" if refused.get("rule") else "")
