{{/* Names and labels. Every template asks here, so that an object and whoever refers to it agree. */}}

{{- define "agentrun.name" -}}
{{- default .Chart.Name .Values.nameOverride -}}
{{- end }}

{{/*
Objects in the release's namespace begin with this: short enough for every suffix, and for the hashes that Kubernetes
appends, within 63 characters; begun with a letter, as a Service's name must. What is cut off is told apart by a hash.
*/}}
{{- define "agentrun.fullname" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
{{- $name = ternary .Release.Name (printf "%s-%s" .Release.Name (include "agentrun.name" .)) (contains (include "agentrun.name" .) .Release.Name) -}}
{{- end -}}
{{- if not (regexMatch "^[a-z]" $name) -}}
{{- $name = printf "agentrun-%s" $name -}}
{{- end -}}
{{- $name = replace "." "-" $name -}}
{{- if gt (len $name) 44 -}}
{{- $name = printf "%s-%s" ($name | trunc 35 | trimSuffix "-") ($name | sha256sum | trunc 8) -}}
{{- end -}}
{{- $name -}}
{{- end }}

{{/* Objects of the whole cluster begin with this. Neither part has a dot, so two releases never meet. */}}
{{- define "agentrun.clusterName" -}}
{{- printf "%s.%s" .Release.Namespace (include "agentrun.fullname" .) -}}
{{- end }}

{{- define "agentrun.serviceAccount" -}}
{{- if .Values.serviceAccount.name -}}
{{- .Values.serviceAccount.name -}}
{{- else -}}
{{- ternary (include "agentrun.fullname" .) "default" .Values.serviceAccount.create -}}
{{- end -}}
{{- end }}

{{- define "agentrun.webhookService" -}}
{{- printf "%s-webhook" (include "agentrun.fullname" .) -}}
{{- end }}

{{- define "agentrun.ledgerService" -}}
{{- printf "%s-valkey" (include "agentrun.fullname" .) -}}
{{- end }}

{{- define "agentrun.ledgerSecret" -}}
{{- if eq .Values.ledger.mode "External" -}}
{{- .Values.ledger.existingSecret.name -}}
{{- else -}}
{{- default (printf "%s-ledger" (include "agentrun.fullname" .)) .Values.valkey.existingSecret -}}
{{- end -}}
{{- end }}

{{/* Whether the operator itself makes the ledger's password. */}}
{{- define "agentrun.makesLedgerSecret" -}}
{{- if and (eq .Values.ledger.mode "Bundled") (not .Values.valkey.existingSecret) -}}true{{- end -}}
{{- end }}

{{- define "agentrun.image" -}}
{{- $image := .image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default .appVersion $image.tag) -}}
{{- end -}}
{{- end }}

{{/* A map as name=value,name=value. */}}
{{- define "agentrun.pairs" -}}
{{- $pairs := list -}}
{{- range $name, $value := . -}}
{{- $pairs = append $pairs (printf "%s=%s" $name (toString $value)) -}}
{{- end -}}
{{- join "," $pairs -}}
{{- end }}

{{- define "agentrun.selectorLabels" -}}
app.kubernetes.io/name: {{ include "agentrun.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "agentrun.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "agentrun.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The served namespaces as a JSON list; empty in mode Cluster, where all are served. */}}
{{- define "agentrun.namespaces" -}}
{{- if eq .Values.scope.mode "Cluster" -}}
[]
{{- else -}}
{{- default (list .Release.Namespace) .Values.scope.namespaces | toJson -}}
{{- end -}}
{{- end }}
