"""The process in which one call of a Python tool runs: ``python -m agentrun_worker.python_child <in> <out>``.

It talks with the worker in lines of JSON over two file descriptors of their own: the call comes in, secrets are asked
for, the word to stop may come, the ending goes out. What the function prints or reads touches none of that. The end of
the worker is the end of this process and of what it started: nobody may act on a claim whose worker is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import signal
import sys
import threading
import time

from agentrun.contract.exact_json import JsonObject, canonical_json, parse_json
from agentrun_worker.python_function import FunctionCall, call_function
from agentrun_worker.tool_api import SecretMissing, ToolContext

_PR_SET_PDEATHSIG = 1
_NO_ANSWER = 120.0


class WorkerLine:
    """The lines to and from the worker."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        for descriptor in (incoming, outgoing):
            # What the function starts must hold neither end.
            os.set_inheritable(descriptor, False)
        self._incoming = os.fdopen(incoming, "rb")
        self._outgoing = os.fdopen(outgoing, "wb")
        self._sending = threading.Lock()
        self._asking = threading.Lock()
        self._secrets: queue.SimpleQueue[JsonObject] = queue.SimpleQueue()
        self.stopped = threading.Event()

    def read_call(self) -> JsonObject:
        """Return the first line, and listen for the others from then on."""
        call = _object(self._incoming.readline())
        threading.Thread(target=self._listen, name="worker line", daemon=True).start()
        return call

    def fetch_secret(self, name: str, key: str) -> str:
        """Ask the worker for one key of a Secret. Raises :class:`SecretMissing`."""
        with self._asking:
            self.send({"secret": {"name": str(name), "key": str(key)}})
            answer = self._secrets.get(timeout=_NO_ANSWER)
        if "value" not in answer:
            raise SecretMissing(str(answer["missing"]), reason="SecretMissing")
        return str(answer["value"])

    def send(self, message: JsonObject) -> None:
        """Write one line."""
        with self._sending:
            self._outgoing.write(canonical_json(message).encode() + b"\n")
            self._outgoing.flush()

    def _listen(self) -> None:
        for line in self._incoming:
            message = _object(line)
            if "stop" in message:
                self.stopped.set()
            else:
                self._secrets.put(message)
        # The other end is closed: the worker is done with this call, or gone.
        os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Run the one call."""
    incoming, outgoing, worker = (int(argument) for argument in sys.argv[1:])
    _die_with(worker)
    line = WorkerLine(incoming, outgoing)
    call = line.read_call()
    ends = time.monotonic() + call["leftMs"] / 1000
    context = ToolContext(
        request_id=call["requestId"],
        idempotency_key=call["idempotencyKey"],
        seconds_left=lambda: max(0.0, ends - time.monotonic()),
        is_cancelled=line.stopped.is_set,
        secret=line.fetch_secret,
    )
    ending = call_function(
        FunctionCall(call["entryPoint"], call["importPaths"], call["params"], call["resultLimit"]), context
    )
    line.send({"ending": ending})


def _die_with(worker: int) -> None:
    # The kernel's own watch, for a function that never lets the listening thread run. Linux alone has it.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:
        os.killpg(0, signal.SIGKILL)


def _object(line: bytes) -> JsonObject:
    message = parse_json(line)
    if not isinstance(message, dict):
        raise TypeError("a message is an object")
    return message


if __name__ == "__main__":
    main()
