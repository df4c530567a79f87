package kubetest

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"time"
)

func logger(w io.Writer) *log.Logger { return log.New(w, "", 0) }

// client returns an HTTP client with the certificate of a user.
func (a *authority) client(name string) (*http.Client, error) {
	pair, err := tls.LoadX509KeyPair(a.path(name+".crt"), a.path(name+".key"))
	if err != nil {
		return nil, fmt.Errorf("load certificate of %s: %w", name, err)
	}
	ca, err := os.ReadFile(a.path("ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &http.Client{Timeout: 30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair},
			RootCAs: roots}}}, nil
}

// Request sends a request of the cluster's administrator. in and out are JSON, and may be nil.
func (c *Cluster) Request(method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
	}
	r, err := http.NewRequest(method, server+path, &body)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	}
	resp, err := c.admin.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode > 299 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, raw)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("decode answer to %s: %w", path, err)
	}
	return nil
}

type object map[string]any

// Rules are the permissions that the driver needs in its namespace, as docs/kubernetes.md shows
// them.
var Rules = []any{
	object{"apiGroups": []string{""}, "resources": []string{"pods"},
		"verbs": []string{"create", "get", "list", "watch", "patch", "delete"}},
	object{"apiGroups": []string{""}, "resources": []string{"pods/exec"}, "verbs": []string{"create", "get"}},
	object{"apiGroups": []string{"networking.k8s.io"}, "resources": []string{"networkpolicies"},
		"verbs": []string{"create", "get", "patch", "delete"}},
}

// AgentRules are the permissions that the driver needs beside Rules to use agent-sandbox.
var AgentRules = []any{
	object{"apiGroups": []string{"agents.x-k8s.io"}, "resources": []string{"sandboxes"},
		"verbs": []string{"create", "get", "list", "patch", "delete"}},
}

// authorize creates the namespaces, and gives the user berth the driver's permissions in them.
func (c *Cluster) authorize() error {
	for name, level := range map[string]string{Namespace: "restricted", Agents: "restricted", Baseline: "baseline"} {
		rules := Rules
		if name == Agents {
			rules = slices.Concat(Rules, AgentRules)
		}
		role := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + name
		for _, o := range []struct {
			path string
			body object
		}{
			{"/api/v1/namespaces", object{"apiVersion": "v1", "kind": "Namespace",
				"metadata": object{"name": name, "labels": object{"pod-security.kubernetes.io/enforce": level}}}},
			{role + "/roles", object{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
				"metadata": object{"name": "berth"}, "rules": rules}},
			{role + "/rolebindings", object{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
				"metadata": object{"name": "berth"},
				"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "berth"},
				"subjects": []any{object{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "berth"}}}},
		} {
			if err := c.Request(http.MethodPost, o.path, o.body, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
