"""Tools of the bench: trivial functions, each of which leaves the moment at which it was called in the clock log."""

import os
import time

_CLOCK = os.open(os.environ["BENCH_CLOCK"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def stamp(word: str) -> dict[str, bool]:
    """Note the moment."""
    # One write to a file opened for appending: lines of different threads never mix.
    os.write(_CLOCK, f"{word}\t{time.time():.6f}\n".encode())
    return {"ok": True}


def nap(word: str, ms: int) -> dict[str, bool]:
    """Note the moment, then take this long."""
    stamp(word)
    time.sleep(ms / 1000)
    return {"ok": True}
