"""Several writes at once, none of which may go on when something is made of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable


async def await_all(steps: Iterable[Awaitable[None]], passing: tuple[type[BaseException], ...] = ()) -> None:
    """Return once all have ended; raise what one failed with: the first that is not ``passing``, else the first."""
    ends = await asyncio.gather(*steps, return_exceptions=True)
    failures = [end for end in ends if isinstance(end, BaseException)]
    if failures:
        # What passes by itself comes last: that another leads, or a foreign object, does not.
        raise next((end for end in failures if not isinstance(end, passing)), failures[0])
