package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const clusterText = "clusters: [{name: c, cluster: {server: 'https://k.example:6443'}}]\ncontexts: [{name: x, context: {cluster: c, user: u, namespace: n}}]\ncurrent-context: x\n"

// A kubeconfig gives the server, the namespace and the token.
func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	id, err := parseKubeconfig([]byte(clusterText+"users: [{name: u, user: {tokenFile: token}}]"), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	token, err := id.token.get()
	if id.server.Host != "k.example:6443" || id.namespace != "n" || token != "secret" || err != nil {
		t.Errorf("got %v, %q, %q, %v", id.server, id.namespace, token, err)
	}
}

// Unsupported settings are refused with the reason, and no error quotes a secret.
func TestKubeconfigRefused(t *testing.T) {
	for words, text := range map[string]string{
		"credential plugins": clusterText +
			"users: [{name: u, user: {exec: {command: aws, args: [hunter2]}}}]",
		"(exec, auth-provider) are not supported": clusterText +
			"users: [{name: u, user: {auth-provider: {name: gcp}}}]",
		"a password is not supported": clusterText +
			"users: [{name: u, user: {username: a, password: hunter2}}]",
		"neither a token nor a client certificate": clusterText + "users: [{name: u, user: {}}]",
		"do not fit together": clusterText +
			"users: [{name: u, user: {client-certificate-data: aHVudGVyMg==, client-key-data: aHVudGVyMg==}}]",
		`it has no user "u"`:   clusterText,
		`it has no context ""`: "{}",
		"insecure-skip-tls-verify is not": strings.Replace(clusterText, "6443'",
			"6443', insecure-skip-tls-verify: true", 1),
		"is not an https URL": strings.Replace(clusterText, "https", "http", 1),
	} {
		_, err := parseKubeconfig([]byte(text), t.TempDir(), "")
		if err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v, want %q", err, words)
		}
	}
}

// A token's file is read again, and a file that cannot be read leaves the last token.
func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	tok := &token{file: file}
	if _, err := tok.get(); err == nil {
		t.Error("without a file: got no error")
	}
	for _, text := range []string{"one", "two", ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want := text
		if text == "" {
			want = "two"
		}
		tok.next = time.Time{}
		if got, err := tok.get(); got != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}
