{{/* What the schema cannot say: values that do not go together. Each message names the value and the remedy. */}}
{{- define "agentrun.check" -}}
{{- $ledger := .Values.ledger -}}
{{- if eq $ledger.mode "External" -}}
{{- if and (not $ledger.url) (not $ledger.existingSecret.name) -}}
{{- fail "ledger.mode External needs ledger.url or ledger.existingSecret.name" -}}
{{- end -}}
{{- if and $ledger.url $ledger.existingSecret.name -}}
{{- fail "give ledger.url or ledger.existingSecret.name, not both" -}}
{{- end -}}
{{- else if or $ledger.url $ledger.existingSecret.name $ledger.tls.secretName -}}
{{- fail "ledger.url, ledger.existingSecret and ledger.tls go with ledger.mode External" -}}
{{- end -}}
{{- if and (eq .Values.scope.mode "Cluster") .Values.scope.namespaces -}}
{{- fail "scope.namespaces goes with scope.mode Namespaces" -}}
{{- end -}}
{{- $certificates := .Values.webhook.certificates -}}
{{- if .Values.webhook.enabled -}}
{{- if and (eq $certificates.mode "Secret") (not $certificates.secretName) -}}
{{- fail "webhook.certificates.mode Secret needs webhook.certificates.secretName" -}}
{{- end -}}
{{- if and (eq $certificates.mode "CertManager") (not (.Capabilities.APIVersions.Has "cert-manager.io/v1")) -}}
{{- fail "webhook.certificates.mode CertManager needs cert-manager.io/v1: install cert-manager first (helm template: --api-versions cert-manager.io/v1)" -}}
{{- end -}}
{{- end -}}
{{- if eq (int .Values.webhook.port) (int .Values.metrics.port) -}}
{{- fail "webhook.port and metrics.port must differ" -}}
{{- end -}}
{{- if and (or .Values.metrics.serviceMonitor.enabled .Values.metrics.rules.enabled) (not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}
{{- fail "metrics.serviceMonitor and metrics.rules need monitoring.coreos.com/v1: install the Prometheus operator first (helm template: --api-versions monitoring.coreos.com/v1)" -}}
{{- end -}}
{{- if not (lt (int .Values.pod.preStopSeconds) (sub (int .Values.pod.terminationGracePeriodSeconds) 20)) -}}
{{- fail "pod.terminationGracePeriodSeconds must be more than pod.preStopSeconds and 20 seconds together" -}}
{{- end -}}
{{- end }}
