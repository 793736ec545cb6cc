{{- define "stele.name" -}}
{{- if contains "stele" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-stele" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "stele.selector" -}}
app.kubernetes.io/name: stele
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "stele.labels" -}}
{{ include "stele.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
