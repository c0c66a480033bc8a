"""The Python tool of the stock transfer example: one function, its params in, its result out."""

from __future__ import annotations


def compare_stock(left: dict[str, int], right: dict[str, int], at_least: int) -> dict[str, object]:
    """Say what the left warehouse can give the right one, where they differ by at least ``at_least`` pieces."""
    items = [
        {"item": item, "quantity": (left[item] - right[item]) // 2}
        for item in sorted(left.keys() & right.keys())
        if left[item] - right[item] >= at_least
    ]
    return {"items": items, "total": sum(int(str(line["quantity"])) for line in items)}
