"""The seal of a decision: an HMAC over the question and everything that was answered to it.

Pure. The admission webhook makes seals, the engine's verifier checks them; both have the key, and nobody else.
"""

from __future__ import annotations

import hashlib
import hmac

from agentrun.contract.approval import ApprovalRequest, Decision
from agentrun.contract.exact_json import JsonObject, canonical_json

_FORM = "v1"


def make_seal(key: bytes, approval_uid: str, request: ApprovalRequest, params_digest: str, decision: Decision) -> str:
    """Return the seal of a decision, its user and moment included; a seal that it carries already is left aside.

    ``params_digest`` is given apart from ``request``: whoever checks takes it from the node.
    """
    answered = decision.to_wire()
    answered.pop("seal", None)
    sealed: JsonObject = {
        "form": _FORM,
        "approval": approval_uid,
        "question": request.inbox_id,
        "paramsDigest": params_digest,
        "decision": answered,
    }
    return f"{_FORM}:{hmac.new(key, canonical_json(sealed).encode(), hashlib.sha256).hexdigest()}"


def is_sealed(key: bytes, approval_uid: str, request: ApprovalRequest, params_digest: str, decision: Decision) -> bool:
    """Tell whether the decision carries the seal that this key makes; takes the same time for every wrong one."""
    want = make_seal(key, approval_uid, request, params_digest, decision)
    return hmac.compare_digest(want.encode(), decision.seal.encode())
