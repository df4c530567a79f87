{{- define "berth.name" -}}
{{- if contains "berth" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-berth" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "berth.selector" -}}
app.kubernetes.io/name: berth
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "berth.labels" -}}
{{ include "berth.selector" . }}
app.kubernetes.io/component: server
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "berth.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* berth.yaml: what follows from the values, overridden by .Values.config. It has no secret. */}}
{{- define "berth.config" -}}
{{- $kubernetes := dict "namespace" .Values.sandboxes.namespace "registry" (required "sandboxes.registry: name a repository to which Berth may push, and from which the nodes pull" .Values.sandboxes.registry) -}}
{{- with .Values.sandboxes.pullSecrets }}{{ $_ := set $kubernetes "pull_secrets" . }}{{ end -}}
{{- with .Values.sandboxes.runtimeClass }}{{ $_ := set $kubernetes "runtime_class" . }}{{ end -}}
{{- with .Values.sandboxes.nodeSelector }}{{ $_ := set $kubernetes "node_selector" . }}{{ end -}}
{{- with .Values.sandboxes.tolerations }}{{ $_ := set $kubernetes "tolerations" . }}{{ end -}}
{{- if .Values.sandboxes.root }}{{ $_ := set $kubernetes "root" true }}{{ end -}}
{{- if ne (toString .Values.sandboxes.agentSandbox) "auto" }}{{ $_ := set $kubernetes "agent_sandbox" .Values.sandboxes.agentSandbox }}{{ end -}}
{{- $server := dict "listen" "0.0.0.0:8080" -}}
{{- if .Values.tls.secret }}{{ $_ := set $server "tls" (dict "cert_file" "/etc/berth/tls/tls.crt" "key_file" "/etc/berth/tls/tls.key") }}{{ end -}}
{{- $config := dict "driver" "kubernetes" "template" .Values.template.name "build_template" "never" "kubernetes" $kubernetes "server" $server
  "blobs" (required "blobs: name a bucket, such as s3://my-bucket?region=eu-central-1" .Values.blobs)
  "cluster" (dict "listen" "0.0.0.0:7443") "metrics" (dict "listen" "0.0.0.0:9090") "log" (dict "format" "json") -}}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.config)) -}}
{{- end }}

{{/* "true" if the servers may use agent-sandbox. */}}
{{- define "berth.agentSandbox" -}}
{{- if eq (toString .Values.sandboxes.agentSandbox) "auto" }}{{ .Capabilities.APIVersions.Has "agents.x-k8s.io/v1beta1" }}{{ else }}{{ .Values.sandboxes.agentSandbox }}{{ end -}}
{{- end }}

{{/* Variables of every container of Berth. */}}
{{- define "berth.env" -}}
- {name: BERTH_STATE, value: /var/lib/berth}
- name: BERTH_STORE
{{- if .Values.store.url }}
  value: {{ .Values.store.url | quote }}
{{- else }}
  valueFrom: {secretKeyRef: {name: {{ .Values.store.secret | quote }}, key: {{ .Values.store.key | quote }}}}
{{- end }}
{{- if .Values.registryCredentials }}
- {name: DOCKER_CONFIG, value: /etc/berth/registry}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The mounts of every container of Berth. */}}
{{- define "berth.mounts" -}}
- {name: state, mountPath: /var/lib/berth}
- {name: seal, mountPath: /var/lib/berth/seal.key, subPath: seal.key, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- if .Values.registryCredentials }}
- {name: registry, mountPath: /etc/berth/registry, readOnly: true}
{{- end }}
{{- end }}

{{- define "berth.volumes" -}}
- name: seal
  secret: {secretName: {{ .Values.sealKey.secret | quote }}, defaultMode: 0400, items: [{key: {{ .Values.sealKey.key | quote }}, path: seal.key}]}
- {name: tmp, emptyDir: {}}
{{- if .Values.registryCredentials }}
- name: registry
  secret: {secretName: {{ .Values.registryCredentials | quote }}, defaultMode: 0400, items: [{key: .dockerconfigjson, path: config.json}]}
{{- end }}
{{- end }}

{{/* Root without privileges: templates have files of several users. */}}
{{- define "berth.security" -}}
runAsUser: 0
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL], add: [CHOWN, DAC_OVERRIDE, FOWNER, FSETID, SETFCAP]}
seccompProfile: {type: RuntimeDefault}
{{- end }}
