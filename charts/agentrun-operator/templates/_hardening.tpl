{{/* What PodSecurity "restricted" asks for, in one place for every pod of this chart. */}}

{{/* Takes runAsUser, runAsGroup and fsGroup; what is null is for the cluster to assign. */}}
{{- define "agentrun.podSecurity" -}}
runAsNonRoot: true
{{- with .runAsUser }}
runAsUser: {{ int64 . }}
{{- end }}
{{- with .runAsGroup }}
runAsGroup: {{ int64 . }}
{{- end }}
{{- with .fsGroup }}
fsGroup: {{ int64 . }}
fsGroupChangePolicy: OnRootMismatch
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "agentrun.containerSecurity" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}
