"""The key that decisions are sealed with, and the engine's verifier, which has the same key.

Decisions are given by people, so the key is read anew for each: deleting the Secret makes every seal so far worthless,
at once and for every replica.
"""

from __future__ import annotations

import secrets

import structlog

from agentrun.contract.approval import AgentApproval
from agentrun.controller.webhook.decision_seal import is_sealed
from agentrun.controller.webhook.stored_secrets import StoredSecrets

_FIELD = "key"
_BYTES = 32
_log = structlog.get_logger("agentrun.controller")


class UnusableKeyError(Exception):
    """The Secret holds no key; delete it, and a new one is made."""


class SealKey:
    """The key in its Secret."""

    def __init__(self, stored: StoredSecrets, name: str) -> None:
        self._stored = stored
        self._name = name

    async def fetch(self) -> bytes:
        """Return the key; make it where there is none yet.

        Raises :class:`UnusableKeyError`, and what :meth:`ApiClient.request` raises.
        """
        found = await self._stored.find(self._name)
        if found is None:
            found = await self._stored.create_if_absent(self._name, {_FIELD: secrets.token_bytes(_BYTES)})
        key = found.data.get(_FIELD, b"")
        if len(key) < _BYTES:
            raise UnusableKeyError(f"Secret {self._name} holds no {_FIELD} of {_BYTES} bytes: delete it")
        return key


class SealVerifier:
    """Behind the engine's port: a decision is verified by its seal."""

    def __init__(self, key: SealKey) -> None:
        self._key = key

    def can_verify(self) -> bool:
        """Tell that decisions may come with a seal."""
        return True

    async def is_verified(self, approval: AgentApproval, params_digest: str) -> bool:
        """Tell whether the approval's decision was sealed as it stands, on the params of this digest."""
        decision = approval.spec.decision
        request = approval.status.request if approval.status else None
        if decision is None or request is None or not decision.seal:
            return False
        try:
            key = await self._key.fetch()
        except UnusableKeyError as error:
            _log.error("seal_key_unusable", cause=str(error))
            return False
        return is_sealed(key, approval.metadata.uid, request, params_digest, decision)
