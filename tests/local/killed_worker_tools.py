"""What the killed workers were doing: functions whose only traces are files."""

import time
from pathlib import Path


def act(folder: str, case: str) -> dict[str, int]:
    """Have an effect before or after the moment in which the worker is killed; at the second call at once."""
    root = Path(folder)
    again = (root / f"{case}.began").exists()
    (root / f"{case}.began").touch()
    if case.startswith("after") or again:
        with (root / f"{case}.effects").open("a") as file:
            file.write("x\n")
    if not again:
        (root / f"{case}.waiting").touch()
        time.sleep(60)
    return {"id": 2}


def look(folder: str, case: str) -> object:
    """Answer what the case is named after."""
    asked = Path(folder) / f"{case}.asked"
    with asked.open("a") as file:
        file.write("x\n")
    times = len(asked.read_text().splitlines())
    answer = case.split("-", 1)[1]
    if answer == "hangs":
        time.sleep(60)
    if answer == "fails":
        raise ValueError("the provider is away")
    if answer == "running" and times < 3:
        return {"state": "running"}
    return {
        "completed": {"state": "done", "payment": {"id": 1}},
        "running": {"state": "done", "payment": {"id": 1}},
        "none": {"state": "none"},
        "unknown": {"state": "huh"},
        "nonsense": [1, 2],
    }[answer]
