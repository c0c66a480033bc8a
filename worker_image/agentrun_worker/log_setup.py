"""Log setup of a worker's process: key-value lines to standard error, past tense, never a local variable's value."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum

import structlog


class LogLevel(StrEnum):
    """How much is logged. ``debug`` adds what Python tools print."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def set_up_logs(level: LogLevel, *, as_json: bool) -> None:
    """Send log lines of this level and above to standard error, as ``key=value`` pairs or as JSON.

    Tracebacks are plain: the renderers that show local variables would show params and secrets as well.
    """
    pairs = structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"], drop_missing=True)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer() if as_json else pairs,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
