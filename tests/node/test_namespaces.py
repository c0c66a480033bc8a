"""A namespace that is deleted with work under way in it: what is left of it, and who goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.node_site import FULL, PULLED_AND_STARTED, NodeRelease, NodeSite

# Asks the server from its own pod: nothing else reaches it.
_TELL_KEYS = """
import json, os, socket, sys
link = socket.create_connection(("127.0.0.1", 6379)); answers = link.makefile("rb")
def ask(*parts):
    link.sendall(b"*%d\\r\\n" % len(parts) + b"".join(b"$%d\\r\\n%s\\r\\n" % (len(p), p) for p in map(str.encode, parts)))
    return read()
def read():
    line = answers.readline().rstrip(); kind, rest = line[:1], line[1:]
    if kind == b"*": return [read() for _ in range(int(rest))]
    if kind == b"$":
        text = answers.read(int(rest) + 2)[:-2] if int(rest) >= 0 else b""
        return text.decode()
    if kind == b"-": raise SystemExit(rest.decode())
    return int(rest) if kind == b":" else rest.decode()
ask("AUTH", os.environ["LEDGER_PASSWORD"])
sizes = {"stream": "XLEN", "set": "SCARD", "zset": "ZCARD", "hash": "HLEN", "list": "LLEN", "string": "STRLEN"}
told = {}
for key in ask("KEYS", sys.argv[1] + "*"):
    kind = ask("TYPE", key)
    if kind in sizes:
        told[key[len(sys.argv[1]):]] = {"size": ask(sizes[kind], key), "ttl": ask("TTL", key)}
print(json.dumps(told))
"""


@pytest.fixture
def doomed(kubeconfig: Path, release: NodeRelease, site: NodeSite) -> Iterator[NodeSite]:
    """A namespace that is deleted; its business system is in one that outlives it."""
    made = NodeSite(kubeconfig, release)
    try:
        made.use_provider_of(site)
        yield made
    finally:
        made.close()


def ledger_keys(site: NodeSite) -> dict[str, dict[str, int]]:
    """Return what the ledger keeps of a namespace: how much is in each key, and for how many seconds (-1: for ever)."""
    prefix = f"{site.release.namespace}:{site.namespace}:"
    said = site.release.kubectl("exec", f"{FULL}-valkey-0", "--", "python", "-c", _TELL_KEYS, prefix)
    return dict(json.loads(said))


def held_for_ever(keys: dict[str, dict[str, int]]) -> set[str]:
    """Return the keys with something in them that only work under way may have. Queues' names and reports stay."""
    return {
        key
        for key, found in keys.items()
        if found["size"] and found["ttl"] < 0 and not key.startswith(("queues:", "reports"))
    }


def objects_of_release(release: NodeRelease) -> set[str]:
    return set(release.kubectl("get", "leases,secrets,configmaps,jobs,pods,deployments", "-o", "name").split())


def test_a_namespace_that_is_deleted_with_running_calls_leaves_nothing_behind(site: NodeSite, doomed: NodeSite) -> None:
    release = doomed.release
    release.wait_ready()
    before = objects_of_release(release)
    for name, execution in (("hold", {}), ("hold-alone", {"mode": "Job"})):
        doomed.apply_tool(name, function="hold", timeout="2m", execution=execution)
    doomed.apply_tool("act")

    def call(name: str, tool: str, word: str, **further: Any) -> dict[str, Any]:
        return {"name": name, "tool": tool, "params": {"word": word}, **further}

    nodes = [call("a", "hold", "pool"), call("b", "hold-alone", "job"), call("c", "act", "after", dependsOn=["a", "b"])]
    doomed.apply_run("r", nodes, session="s")
    doomed.apply_run("waits", [call("a", "act", "second")], session="s")
    site.until(lambda: {"pool", "job"} <= set(site.ask("counts")["did"]), within=PULLED_AND_STARTED)
    assert "runs" in held_for_ever(ledger_keys(doomed)), "or this test would see nothing in the ledger"
    doomed.remove()
    doomed.until(lambda: "deletionTimestamp" in doomed.get("namespace", doomed.namespace).get("metadata", {}))
    # As long as its run is there it goes on: the server deletes what is in a namespace one kind after another.
    doomed.until(lambda: not doomed.find_all("agentruns"))
    for word in ("pool", "job"):
        site.ask(f"release/{word}")
    doomed.until(lambda: not doomed.find_all("pods"))
    # The server looks again after half of the longest grace that a pod had, here a little more than a minute.
    doomed.until(
        lambda: not doomed.get("namespace", doomed.namespace),
        within=180,
        say=lambda: str(doomed.get("namespace", doomed.namespace).get("status")),
    )
    doomed.until(lambda: not held_for_ever(ledger_keys(doomed)), within=90, say=lambda: json.dumps(ledger_keys(doomed)))
    assert objects_of_release(release) == before
    assert [site.did(word) for word in ("pool", "job", "after", "second")] == [1, 1, 0, 0]
    # Whoever else is served is served on.
    site.apply_tool("act")
    site.apply_run("next", [call("a", "act", "next")])
    assert site.wait_ended("next", within=PULLED_AND_STARTED)["phase"] == "Succeeded"
