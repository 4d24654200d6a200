{{- define "reprieve.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "reprieve.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "reprieve.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "reprieve.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* Cluster-wide objects carry the namespace, so that two releases do not collide. */}}
{{- define "reprieve.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "reprieve.fullname" .) }}
{{- end }}

{{- define "reprieve.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "reprieve.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is required when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "reprieve.selectorLabels" -}}
app.kubernetes.io/name: {{ include "reprieve.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* The web page has names and labels of its own: no selector of the operator takes its pods. */}}
{{- define "reprieve.webName" -}}
{{- printf "%s-web" (include "reprieve.fullname" . | trunc 59 | trimSuffix "-") }}
{{- end }}

{{- define "reprieve.webSelectorLabels" -}}
app.kubernetes.io/name: {{ printf "%s-web" (include "reprieve.name" . | trunc 59 | trimSuffix "-") }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "reprieve.webLabels" -}}
{{ include "reprieve.webSelectorLabels" . }}
app.kubernetes.io/component: web
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: reprieve
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "reprieve.labels" -}}
{{ include "reprieve.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: reprieve
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* The configuration file: the Helm values that have no variable. */}}
{{- define "reprieve.configuration" -}}
gpuPreemption:
  {{- pick .Values.gpuPreemption "fit" "irreducible" "profile" "victimOrder" "vendors" "notice" "preemptionDelay" "literal" | toYaml | nindent 2 }}
{{- with .Values.governor }}
governor:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if has "scheduling" .Values.controllers }}
scheduling:
  {{- omit .Values.scheduling "schedulerNames" "sharedNodes" "strictDisruptionMode" (ternary "" "configuration" (not (empty .Values.scheduling.configuration))) | toYaml | nindent 2 }}
{{- end }}
{{- if has "quota" .Values.controllers }}
quota:
  {{- include "reprieve.quota" . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The section of the quota plane: the values but those that are empty, and where webhooks are. */}}
{{- define "reprieve.quota" -}}
{{- $given := .Values.quota }}
{{- $file := $given.configuration }}
{{- if and $file $given.preemptionPolicy }}
{{- $sharing := get $file "fairSharing" }}
{{- $old := hasSuffix "/v1beta1" (get $file "apiVersion") }}
{{- $fair := ternary (eq (toString (dig "enable" false ($sharing | default dict))) "true") (kindIs "map" $sharing) $old }}
{{- $said := ternary "FairSharing" "Classical" $fair }}
{{- if ne $said $given.preemptionPolicy }}
{{- fail (printf "quota.preemptionPolicy is %s, but quota.configuration says %s" $given.preemptionPolicy $said) }}
{{- end }}
{{- end }}
{{- if and $file $given.configurationMap }}
{{- fail "quota.configuration and quota.configurationMap: give one of them" }}
{{- end }}
{{- $own := dig "internalCertManagement" "enable" true ($file | default dict) }}
{{- if and (not $own) (not $given.webhooks.certManager.enabled) }}
{{- fail "quota.configuration turns internalCertManagement off: say with quota.webhooks.certManager.enabled who makes the certificate" }}
{{- end }}
{{- range $key := list "preemptionPolicy" "configuration" "configurationMap" "jobKinds" }}
{{- with get $given $key }}
{{ dict $key . | toYaml }}
{{- end }}
{{- end }}
{{ $options := omit $given "preemptionPolicy" "configuration" "configurationMap" "jobKinds" "webhooks" }}
{{- if eq $given.profile "best" }}
{{- /* What is not switched on by itself is as the profile has it. */}}
{{- range $key := list "idleFirst" "harmOrder" }}
{{- if not (get $options $key) }}
{{- $options = omit $options $key }}
{{- end }}
{{- end }}
{{- end }}
{{ $options | toYaml }}
webhooks:
  service: {{ include "reprieve.webhookName" . }}
  port: {{ $given.webhooks.port }}
  jobFailurePolicy: {{ $given.webhooks.jobFailurePolicy }}
  {{- with $given.webhooks.namespaceSelector }}
  namespaceSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $given.webhooks.clientCertificate }}
  {{- if .configMap }}
  clientAuthority: /etc/reprieve-webhook-clients/{{ .key }}
  {{- with .names }}
  clientNames:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- end }}
  {{- if $given.webhooks.certManager.enabled }}
  certificateFolder: /etc/reprieve-webhook
  annotations:
    cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/{{ include "reprieve.webhookName" . }}
  {{- end }}
{{- end }}

{{- /* The Secret of the certificates that the operator makes. */}}
{{- define "reprieve.webhookSecret" -}}
{{- dig "internalCertManagement" "webhookSecretName" "" .Values.quota.configuration | default "reprieve-webhook-certificates" }}
{{- end }}

{{- define "reprieve.webhookName" -}}
{{- printf "%s-webhook" (include "reprieve.fullname" . | trunc 55 | trimSuffix "-") }}
{{- end }}

{{- /* Kinds of jobs that are suspended, by their group: of the built-in table, then of the values. */}}
{{- define "reprieve.queuedKinds" -}}
{{- $kinds := dict
  "batch" (list "jobs")
  "jobset.x-k8s.io" (list "jobsets")
  "trainer.kubeflow.org" (list "trainjobs")
  "kubeflow.org" (list "jaxjobs" "mpijobs" "paddlejobs" "pytorchjobs" "tfjobs" "xgboostjobs")
  "ray.io" (list "rayclusters" "rayjobs" "rayservices")
  "workload.codeflare.dev" (list "appwrappers")
  "sparkoperator.k8s.io" (list "sparkapplications") }}
{{- range .Values.quota.jobKinds }}
{{- $parts := splitList "/" .apiVersion }}
{{- $group := ternary (first $parts) "" (gt (len $parts) 1) }}
{{- $_ := set $kinds $group (append (get $kinds $group | default list) .plural | uniq) }}
{{- end }}
{{- toYaml $kinds }}
{{- end }}

{{- /* The planes that run, separated by commas; empty when there is none. */}}
{{- define "reprieve.controllers" -}}
{{- $running := list }}
{{- if and (has "idle" .Values.controllers) .Values.gpuPreemption.enabled }}{{ $running = append $running "idle" }}{{ end }}
{{- if has "scheduling" .Values.controllers }}{{ $running = append $running "scheduling" }}{{ end }}
{{- if has "quota" .Values.controllers }}{{ $running = append $running "quota" }}{{ end }}
{{- join "," $running }}
{{- end }}

{{- /* "true" when the CustomResourceDefinition is to be rendered: none is there, or it is ours. With
Never nothing is read, which not every user who installs may. */}}
{{- define "reprieve.installsCrd" -}}
{{- if eq .root.Values.crds.install "IfAbsent" }}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" .name }}
{{- if or (not $found) (include "reprieve.owns" (dict "root" .root "object" $found)) }}true{{ end }}
{{- end }}
{{- end }}

{{- /* "true" when an object that was found in the cluster is of this release. */}}
{{- define "reprieve.owns" -}}
{{- $annotations := dig "metadata" "annotations" dict (.object | default dict) | default dict }}
{{- if and (eq (get $annotations "meta.helm.sh/release-name") .root.Release.Name) (eq (get $annotations "meta.helm.sh/release-namespace") .root.Release.Namespace) }}true{{ end }}
{{- end }}

{{- /* Peers of a NetworkPolicy: CIDRs, then namespaces by name. */}}
{{- define "reprieve.peers" }}
{{- range .cidrs }}
- ipBlock:
    cidr: {{ . | quote }}
{{- end }}
{{- range .namespaces }}
- namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ . | quote }}
{{- end }}
{{- end }}

{{- /* The ConfigMaps of the ledger of harm, as a list: parts 0 to 7 of each month. */}}
{{- define "reprieve.harmLedger" -}}
{{- $names := list }}
{{- range $month := untilStep 1 13 1 }}
{{- range $part := until 8 }}
{{- $names = append $names (printf "reprieve-harm-%02d-%d" (int $month) (int $part)) }}
{{- end }}
{{- end }}
{{- toJson $names }}
{{- end }}
