{{- define "callboard.labels" -}}
app.kubernetes.io/name: callboard
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "callboard.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{/* The pod's fields that all processes have. */}}
{{- define "callboard.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end }}

{{/* The container's fields that all processes have. Only /data and /tmp are writable. */}}
{{- define "callboard.container" -}}
{{ include "callboard.image" . }}
envFrom:
  - secretRef: {name: {{ .Values.secret | quote }}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "callboard.mounts" -}}
- {name: data, mountPath: /data}
- {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "callboard.volumes" -}}
- {name: data, emptyDir: {}}
- {name: tmp, emptyDir: {}}
{{- end }}

{{/* A probe of the container's own check. */}}
{{- define "callboard.check" -}}
exec: {command: [python, /opt/callboard/healthcheck.py]}
timeoutSeconds: 10
periodSeconds: 20
{{- end }}
