{{/* null takes a default away, which most of the chart cannot do without; lists and maps may be null. */}}
{{- define "slipway.complete" -}}
{{- range list "clusterDomain" "crds.install" "gatewayApi.enabled" "hpa.enabled" "image.repository" "istio.enabled" "keda.enabled"
  "log.format" "log.level" "monitoring.interval" "monitoring.operator" "networkPolicy.apiServerPort" "networkPolicy.modelPorts"
  "networkPolicy.prometheusPort" "prometheusAccess.caConfigMap.key" "prometheusAccess.tokenSecret.key" "rateWindowSeconds"
  "rbac.create" "replicas" "resyncSeconds" "serviceAccount.create" "terminationGracePeriodSeconds" "tickSeconds"
  "web.enabled" "workers" -}}
{{- $found := $.Values -}}
{{- range splitList "." . }}{{ $found = get (default dict $found) . }}{{ end -}}
{{- if or (kindIs "invalid" $found) (and (kindIs "string" $found) (not $found)) }}
{{- fail (printf "value %s must not be null or empty; an upgrade from an older chart wants --reset-then-reuse-values" .) }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "slipway.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* Dots are no part of a Service's name, and before Kubernetes 1.34 it had to begin with a letter. */}}
{{- define "slipway.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $release := .Release.Name | replace "." "-" -}}
{{- $name := include "slipway.name" . -}}
{{- if regexMatch "^[0-9]" $release -}}
{{- printf "%s-%s" $name $release | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name $release -}}
{{- $release | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" $release $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "slipway.selector" -}}
{{- dict "app.kubernetes.io/name" (include "slipway.name" .) "app.kubernetes.io/instance" .Release.Name | toYaml -}}
{{- end -}}

{{- define "slipway.labels" -}}
{{- include "slipway.labelsWith" (list . dict) -}}
{{- end -}}

{{/* The chart's labels and the user's, which replace them: a list of the root and the user's. */}}
{{- define "slipway.labelsWith" -}}
{{- $root := index . 0 -}}
{{- $own := dict "app.kubernetes.io/component" "operator" "app.kubernetes.io/part-of" "slipway" -}}
{{- $_ := set $own "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $root.Chart.Name ($root.Chart.Version | replace "+" "_")) -}}
{{- merge (dict) (index . 1 | default dict) (include "slipway.selector" $root | fromYaml) $own | toYaml -}}
{{- end -}}

{{- define "slipway.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "slipway.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "slipway.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "slipway.apis" -}}
{{- $apis := list -}}
{{- if .Values.istio.enabled }}{{ $apis = append $apis "istio" }}{{ end -}}
{{- if .Values.istio.policies }}{{ $apis = append $apis "istio-policies" }}{{ end -}}
{{- if .Values.gatewayApi.enabled }}{{ $apis = append $apis "gateway-api" }}{{ end -}}
{{- if .Values.hpa.enabled }}{{ $apis = append $apis "hpa" }}{{ end -}}
{{- if .Values.keda.enabled }}{{ $apis = append $apis "keda" }}{{ end -}}
{{- join "," $apis | default "none" -}}
{{- end -}}

{{- define "slipway.prometheusHeaders" -}}
{{- $headers := list -}}
{{- range $name, $value := . }}{{ $headers = append $headers (printf "%s=%s" $name $value) }}{{ end -}}
{{- join "," $headers -}}
{{- end -}}

{{/* The receivers as the operator reads them: Secrets are files there. */}}
{{- define "slipway.receivers" -}}
{{- $receivers := list -}}
{{- $names := list -}}
{{- range .Values.notifications -}}
{{- if has .name $names }}{{ fail (printf "two of the notifications are named %s" .name) }}{{ end -}}
{{- $names = append $names .name -}}
{{- $receiver := omit . "urlSecret" "tokenSecret" -}}
{{- if .urlSecret }}{{ $receiver = set $receiver "urlFile" (printf "/etc/slipway/notifications/%s/url" .name) }}{{ end -}}
{{- if .tokenSecret }}{{ $receiver = set $receiver "tokenFile" (printf "/etc/slipway/notifications/%s/token" .name) }}{{ end -}}
{{- $receivers = append $receivers $receiver -}}
{{- end -}}
{{- toJson $receivers -}}
{{- end -}}

{{/* Sources of a projected volume. Optional, so that a Secret that is not there keeps no operator from starting. */}}
{{- define "slipway.receiverSecrets" -}}
{{- range .Values.notifications }}
{{- $name := .name }}
{{- range $file, $secret := dict "url" .urlSecret "token" .tokenSecret }}
{{- if $secret }}
- secret:
    name: {{ $secret.name | quote }}
    optional: true
    items:
      - key: {{ $secret.key | quote }}
        path: {{ printf "%s/%s" $name $file | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Rights in every namespace that is worked in. tests/chart compares them with what the operator calls. */}}
{{- define "slipway.rules" -}}
- apiGroups: [slipway.dev]
  resources: [modeldeployments]
  verbs: [get, list, watch]
- apiGroups: [slipway.dev]
  resources: [modeldeployments/status]
  verbs: [patch]
# Only asked for where the admission plugin OwnerReferencesPermissionEnforcement is on, as on OpenShift.
- apiGroups: [slipway.dev]
  resources: [modeldeployments/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments, controllerrevisions]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [get, create, patch]
{{- if .Values.istio.enabled }}
- apiGroups: [networking.istio.io]
  resources: [virtualservices, destinationrules]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- if .Values.istio.policies }}
- apiGroups: [networking.istio.io]
  resources: [envoyfilters]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [security.istio.io]
  resources: [requestauthentications, authorizationpolicies]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- if .Values.gatewayApi.enabled }}
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- if .Values.hpa.enabled }}
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- if .Values.keda.enabled }}
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [list, watch]
{{- end }}
{{- end -}}
