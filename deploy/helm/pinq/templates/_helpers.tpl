{{- define "pinq.labels" -}}
app.kubernetes.io/name: pinq
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "pinq.selector" -}}
app.kubernetes.io/name: pinq
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
