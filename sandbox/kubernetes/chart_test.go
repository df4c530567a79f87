package kubernetes

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/kubetest"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// chartEnv names the program of module e2e/testdata/helm, which renders and checks charts.
const chartEnv = "BERTH_TEST_CHART"

const chart = "../../packaging/helm/berth"

// renderText renders the chart. Each line is an object.
func renderText(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program := os.Getenv(chartEnv)
	if program == "" {
		t.Skip("skipped: make test-cluster builds the program that " + chartEnv + " names")
	}
	cmd := exec.Command(program, append(append([]string{"-namespace", "berth"}, args...), chart)...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%q: %w: %s", args, err, complaint.String())
	}
	return string(out), err
}

// least are the values that have no default.
var least = []string{"-set", "blobs=s3://b?region=eu-central-1", "-set", "sandboxes.registry=127.0.0.1:5000/berth"}

// most are values that use everything.
const most = `
image: {repository: registry.example.com/berth, tag: 1.2.3, pullSecrets: [pull]}
store: {url: "postgres://berth@db/berth"}
blobs: s3://b?region=eu-central-1
sandboxes:
  registry: registry.example.com/berth
  runtimeClass: gvisor
  pullSecrets: [nodes]
  nodeSelector: {pool: sandboxes}
  tolerations: [{key: pool, operator: Equal, value: sandboxes, effect: NoSchedule, seconds: 5}]
  root: true
  agentSandbox: true
registryCredentials: registry
config:
  log: {level: debug}
  models: [{match: "*", upstream: up}]
  upstreams: {up: {provider: chat, base_url: "http://vllm:8000/v1"}}
env: [{name: HTTPS_PROXY, value: "http://proxy:3128"}]
envFrom: [{secretRef: {name: berth-environment}}]
service: {type: LoadBalancer, port: 443, annotations: {a: b}}
tls: {secret: berth-tls}
serviceAccount: {annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::1:role/berth"}}
persistence: {size: 5Gi, storageClass: fast}
metrics: {serviceMonitor: {enabled: true, interval: 15s, labels: {release: prometheus}}}
autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 9, responses: 5}
podDisruptionBudget: {enabled: true, maxUnavailable: 2}
networkPolicy:
  enabled: true
  from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress}}}]
  metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
nodeSelector: {pool: servers}
tolerations: [{key: pool, operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
topologySpreadConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}]
podAnnotations: {c: d}
podLabels: {e: f}
priorityClassName: high
`

// An anyObject is a rendered object.
type anyObject struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Data     map[string]string
	Spec     json.RawMessage

	raw string
}

// render renders the chart, which must be valid.
func render(t *testing.T, args ...string) (all []anyObject) {
	t.Helper()
	text, err := renderText(t, append([]string{"-release", "prod"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		o := anyObject{raw: line}
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

// find returns an object.
func find(t *testing.T, all []anyObject, kind, name string) anyObject {
	t.Helper()
	i := slices.IndexFunc(all, func(o anyObject) bool { return o.Kind == kind && o.Metadata.Name == name })
	if i < 0 {
		t.Fatalf("no %s %s", kind, name)
	}
	return all[i]
}

// The chart is valid with the least and the most values, and complains about values that are missing or
// misspelled.
func TestChart(t *testing.T) {
	values := filepath.Join(t.TempDir(), "most.yaml")
	if err := os.WriteFile(values, []byte(most), 0o600); err != nil {
		t.Fatal(err)
	}
	all := render(t, least...)
	var kinds []string
	for _, o := range all {
		kinds = append(kinds, o.Kind)
	}
	slices.Sort(kinds)
	if got, want := strings.Join(kinds,
		" "), "ConfigMap Job Namespace NetworkPolicy NetworkPolicy PodDisruptionBudget Role RoleBinding Service Service ServiceAccount StatefulSet"; got != want {
		t.Errorf("with the least values: got %s, want %s", got, want)
	}
	config := find(t, all, "ConfigMap", "prod-berth").Data["berth.yaml"]
	for _, want := range []string{"driver: kubernetes", "namespace: sandboxes", "registry: 127.0.0.1:5000/berth",
		"blobs: s3://b?region=eu-central-1", "listen: 0.0.0.0:7443"} {
		if !strings.Contains(config, want) {
			t.Errorf("berth.yaml lacks %q:\n%s", want, config)
		}
	}
	set := string(find(t, all, "StatefulSet", "prod-berth").Spec)
	for _, want := range []string{`"name":"BERTH_CLUSTER_ADDRESS","value":"$(POD_IP):7443"`, `"path":"/readyz"`,
		`"path":"/healthz"`, `"mountPath":"/var/lib/berth/seal.key"`,
		`"readOnlyRootFilesystem":true`, `"drop":["ALL"]`, `"replicas":2`} {
		if !strings.Contains(set, want) {
			t.Errorf("the StatefulSet lacks %s:\n%s", want, set)
		}
	}
	all = render(t, "-values", values)
	if find(t, all, "HorizontalPodAutoscaler", "prod-berth"); !strings.Contains(string(find(t, all,
		"HorizontalPodAutoscaler", "prod-berth").Spec), "berth_responses_running") {
		t.Error("the autoscaler does not use berth_responses_running")
	}
	find(t, all, "ServiceMonitor", "prod-berth")
	find(t, all, "ClusterRole", "berth-prod-berth-runtimeclass")
	config = find(t, all, "ConfigMap", "prod-berth").Data["berth.yaml"]
	for _, want := range []string{"runtime_class: gvisor", "level: debug", "format: json", "root: true",
		"cert_file: /etc/berth/tls/tls.crt", "http://vllm:8000/v1"} {
		if !strings.Contains(config, want) {
			t.Errorf("berth.yaml lacks %q:\n%s", want, config)
		}
	}
	if strings.Contains(string(find(t, all, "StatefulSet", "prod-berth").Spec), `"replicas"`) {
		t.Error("the StatefulSet fixes the number of servers, which the autoscaler sets")
	}
	const rule, key = `{"apiGroups":["agents.x-k8s.io"],"resources":["sandboxes"],"verbs":["create","get","list","patch","delete"]}`,
		"agent_sandbox: "
	for _, x := range []struct {
		args     []string
		rule     bool
		key, not string
	}{
		{nil, false, "", key},
		{[]string{"-api-version", "agents.x-k8s.io/v1beta1"}, true, "", key},
		{[]string{"-set", "sandboxes.agentSandbox=true"}, true, key + "true", key + "false"},
		{[]string{"-api-version", "agents.x-k8s.io/v1beta1", "-set", "sandboxes.agentSandbox=false"}, false,
			key + "false", key + "true"},
	} {
		all := render(t, append(slices.Clone(least), x.args...)...)
		if got := strings.Contains(find(t, all, "Role", "prod-berth").raw, "agents.x-k8s.io"); got != x.rule {
			t.Errorf("%q: the Role has rights to Sandboxes: %v", x.args, got)
		}
		if x.rule && !strings.Contains(find(t, all, "Role", "prod-berth").raw, rule) {
			t.Errorf("%q: the Role lacks %s", x.args, rule)
		}
		if config := find(t, all, "ConfigMap", "prod-berth").Data["berth.yaml"]; !strings.Contains(config, x.key) ||
			strings.Contains(config, x.not) {
			t.Errorf("%q: berth.yaml lacks %q or has %q:\n%s", x.args, x.key, x.not, config)
		}
	}
	for words, args := range map[string][]string{
		"sandboxes.agentSandbox":   append(slices.Clone(least), "-set", "sandboxes.agentSandbox=perhaps"),
		"blobs: name a bucket":     {"-set", "sandboxes.registry=r/b"},
		"sandboxes.registry: name": {"-set", "blobs=s3://b"},
		"replica":                  append(slices.Clone(least), "-set", "replica=3"),
		"a namespace of their own": append(slices.Clone(least), "-set", "sandboxes.namespace=berth"),
		"autoscaling.responses":    append(slices.Clone(least), "-set", "autoscaling.responses=many"),
	} {
		if _, err := renderText(t, args...); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "/", "."),
			words) {
			t.Errorf("%q: got %v, want %q", args, err, words)
		}
	}
}

// The cluster accepts the chart, and the rights of its service account suffice for the driver, and
// for nothing else.
func TestInstall(t *testing.T) {
	c := kubetest.Start(t)
	text, err := renderText(t, append([]string{"-release", "berth", "-set", "replicas=0", "-set",
		"sandboxes.namespace=chart"}, least...)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Request(http.MethodPost, "/api/v1/namespaces",
		map[string]any{"metadata": map[string]any{"name": "berth"}}, nil); err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(strings.Lines(text))
	slices.SortStableFunc(lines, func(a, b string) int { // the namespace comes first
		return cmp.Compare(btoi(!strings.Contains(a, `"kind":"Namespace"`)),
			btoi(!strings.Contains(b, `"kind":"Namespace"`)))
	})
	for _, line := range lines {
		var o anyObject
		var body map[string]any
		if err := errors.Join(json.Unmarshal([]byte(line), &o), json.Unmarshal([]byte(line), &body)); err != nil {
			t.Fatal(err)
		}
		path := apiPath(o)
		if o.Kind == "Job" { // it would start a Pod
			path += "&dryRun=All"
		}
		if err := c.Request(http.MethodPost, path, body, nil); err != nil {
			t.Errorf("%s %s: %v", o.Kind, o.Metadata.Name, err)
		}
	}
	var answer struct{ Status struct{ Token string } }
	if err := c.Request(http.MethodPost, "/api/v1/namespaces/berth/serviceaccounts/berth/token",
		map[string]any{"apiVersion": "authentication.k8s.io/v1",
			"kind": "TokenRequest", "spec": map[string]any{"expirationSeconds": 3600}}, &answer); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text = fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "chart"}}],
		"clusters": [{"name": "c", "cluster": {"server": "https://10.99.0.1:6443", "certificate-authority": %q}}], "users": [{"name": "u", "user": {"token": %q}}]}`,
		filepath.Join(filepath.Dir(c.Kubeconfig), "ca.crt"), answer.Status.Token)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"", "default", "berth"} {
		review := map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
			"spec": map[string]any{
				"user":               "system:serviceaccount:berth:berth",
				"resourceAttributes": map[string]any{"namespace": namespace, "verb": "get", "resource": "secrets"}}}
		var verdict struct{ Status struct{ Allowed bool } }
		if err := c.Request(http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", review,
			&verdict); err != nil {
			t.Fatal(err)
		}
		if verdict.Status.Allowed {
			t.Errorf("the service account may read Secrets in namespace %q", namespace)
		}
	}
	d := openTest(t, &kubetest.Cluster{Kubeconfig: kubeconfig}, drivertest.StateDir(t), Options{Namespace: "chart"})
	b := drivertest.Start(t, d, sandbox.Spec{ID: "chart", Template: drivertest.Template(t)})
	if got := strings.TrimSpace(b.Sh("echo installed").Stdout); got != "installed" {
		t.Errorf("got %q", got)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// apiPath returns the path at which an object is created strictly.
func apiPath(o anyObject) string {
	group := map[string]string{"StatefulSet": "apps/v1", "Job": "batch/v1", "Role": "rbac.authorization.k8s.io/v1",
		"RoleBinding":   "rbac.authorization.k8s.io/v1",
		"NetworkPolicy": "networking.k8s.io/v1", "PodDisruptionBudget": "policy/v1"}[o.Kind]
	root := "/apis/" + group
	if group == "" {
		root = "/api/v1"
	}
	plural := strings.ToLower(o.Kind) + "s"
	if o.Kind == "NetworkPolicy" {
		plural = "networkpolicies"
	}
	if o.Kind != "Namespace" {
		root += "/namespaces/" + cmp.Or(o.Metadata.Namespace, "berth")
	}
	return root + "/" + plural + "?fieldValidation=Strict"
}
