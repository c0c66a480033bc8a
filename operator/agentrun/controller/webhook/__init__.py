"""The admission webhook: who may decide an AgentApproval, the proof that they did, its certificates and its server."""
