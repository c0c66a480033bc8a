{{/* The operator's rights. tests/chart/test_rights.py holds them against the requests that the code makes. */}}

{{/* In each namespace that it serves. */}}
{{- define "agentrun.servedRules" -}}
- apiGroups: [agentrun.dev]
  resources: [agenttools]
  verbs: [list, watch]
- apiGroups: [agentrun.dev]
  resources: [agentruns]
  verbs: [get, list, watch, create, delete]
- apiGroups: [agentrun.dev]
  resources: [agentnodes, agentapprovals]
  verbs: [get, list, watch, create, delete]
- apiGroups: [agentrun.dev]
  resources: [agentruns/status, agentnodes/status, agentapprovals/status]
  verbs: [update]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, create, update, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
{{- if .Values.pools.enabled }}
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [list, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, create, update, delete]
{{- end }}
{{- if .Values.jobs.enabled }}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [list]
{{- end }}
{{- if or .Values.pools.enabled .Values.jobs.enabled }}
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, create, update]
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [agentrun-{{ .Values.install }}-worker-ledger]
  verbs: [get, update]
{{- end }}
{{- end }}

{{/* In its own namespace: the leader's Lease and its Secrets, by name wherever RBAC can name one. */}}
{{- define "agentrun.ownRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ .Values.install }}-operator]
  verbs: [get, update]
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [{{ .Release.Namespace | quote }}]
  verbs: [get]
{{- $seals := or .Values.webhook.enabled (eq (default "" .Values.approvals.unverified) "Refuse") }}
{{- $made := include "agentrun.makesLedgerSecret" . }}
{{- if or $seals $made }}
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [secrets]
  resourceNames:
    {{- if $seals }}
    - {{ .Values.install }}-decision-seal
    {{- end }}
    {{- if $made }}
    - {{ include "agentrun.ledgerSecret" . | quote }}
    {{- end }}
  verbs: [get]
{{- end }}
{{- if and .Values.webhook.enabled (eq .Values.webhook.certificates.mode "Operator") }}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ .Values.install }}-webhook-tls]
  verbs: [get, update]
{{- end }}
{{- end }}

{{/* The uid of this namespace is the cluster's identity, under which the ledger binds what one install serves. */}}
{{- define "agentrun.identityRules" -}}
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
{{- end }}

{{/* In the whole cluster, for the webhook alone. */}}
{{- define "agentrun.admissionRules" -}}
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- if eq .Values.webhook.certificates.mode "Operator" }}
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]
  resourceNames: [{{ include "agentrun.clusterName" . }}]
  verbs: [get, patch]
{{- end }}
{{- end }}
