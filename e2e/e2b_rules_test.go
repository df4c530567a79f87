package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/audit"
)

// A secureSite is an HTTPS server on this machine that echoes the Authorization of requests.
type secureSite struct {
	host      string // its name
	at        string // with its port
	places    string // it and its addresses with the port, as JSON
	authority string // file with the certificate of its authority
	got       chan string
}

func newSecureSite(t *testing.T) *secureSite {
	t.Helper()
	var s *secureSite
	s = secureSiteOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.got <- r.Header.Get("Authorization")
		_, _ = io.WriteString(w, "you sent "+r.Header.Get("Authorization"))
	}))
	return s
}

// secureSiteOf returns an HTTPS server on this machine with a handler.
func secureSiteOf(t *testing.T, h http.Handler) *secureSite {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", ":0",
		&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
			MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	s := &secureSite{host: host, at: net.JoinHostPort(host, port), authority: filepath.Join(t.TempDir(),
		"authority.pem"), got: make(chan string, 100)}
	if err := os.WriteFile(s.authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		0o600); err != nil {
		t.Fatal(err)
	}
	addresses, err := net.LookupHost(host)
	if err != nil {
		t.Fatal(err)
	}
	places := []string{s.at} // a name that leads to this machine needs the address as well
	for _, address := range addresses {
		places = append(places, net.JoinHostPort(address, port))
	}
	list, err := json.Marshal(places)
	if err != nil {
		t.Fatal(err)
	}
	s.places = string(list)
	site := &http.Server{ReadHeaderTimeout: time.Minute, Handler: h}
	go func() { _ = site.Serve(l) }()
	t.Cleanup(func() { site.Close() })
	return s
}

// TestE2BRules has the server send a stored secret to the host of a rule. The sandbox never sees it: neither in its
// environment nor in the echo of the host, with whatever it sends, after the secret was replaced and after the server
// was killed.
func TestE2BRules(t *testing.T) {
	site := newSecureSite(t)
	s := newServerWith(t, fmt.Sprintf("containers: {network: {private: %s}}\n", site.places),
		"SSL_CERT_FILE="+site.authority)
	send := func(method, path, body string, status int) (answer string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != status {
			t.Fatalf("%s %s %s: got %d %s, %v, want %d", method, path, body, resp.StatusCode, b, err, status)
		}
		return string(b)
	}
	const first, second = "first-value-of-the-secret", "second-value-of-the-secret"
	send("POST", "/secrets", `{"name":"Vendor","value":"`+first+`"}`, http.StatusCreated)
	network := fmt.Sprintf(`"allowOut":%s,"denyOut":["0.0.0.0/0"]`, site.places)
	rules := fmt.Sprintf(`,"rules":{"%s":[{"transform":{"headers":{"authorization":"Bearer ${e2b.secrets.vendor}"}}}]}`,
		site.host)
	var made struct{ SandboxID string }
	if err := json.Unmarshal([]byte(send("POST", "/v2/sandboxes", `{"templateID":"base","network":{`+network+rules+`}}`,
		http.StatusCreated)), &made); err != nil {
		t.Fatal(err)
	}
	id, path := "cntr_"+made.SandboxID, "/sandboxes/"+made.SandboxID+"/network"
	get := fmt.Sprintf(`python3 -c 'import urllib.request as u
try: print(u.urlopen(u.Request("https://%s/", headers={"Authorization": "mine ${e2b.secrets.vendor}"}), timeout=30).read().decode())
except Exception as e: print(e, getattr(e, "read", lambda: b"")().decode())' 2>&1`, site.at)
	// asks checks what the host got and what the sandbox saw. An empty want means that the host was not asked.
	asks := func(when, want, seen string) {
		t.Helper()
		shown := s.in(id, get)
		var got string
		select {
		case got = <-site.got:
		default:
		}
		if got != want || !strings.Contains(shown, seen) || strings.Contains(shown, first) || strings.Contains(shown,
			second) {
			t.Errorf("%s: the host got %q, want %q; the sandbox saw %q, want %q", when, got, want, shown, seen)
		}
	}
	asks("at first", "Bearer "+first, "you sent Bearer ${e2b.secrets.vendor}")
	if env := s.in(id, "env; cat /proc/1/environ /proc/mounts | tr '\\0' '\\n'"); strings.Contains(env, first) {
		t.Errorf("the sandbox has the secret: %s", env)
	}
	send("POST", "/secrets/vendor", `{"value":"`+second+`"}`, http.StatusOK)
	asks("after a change of the secret", "Bearer "+second, "you sent Bearer ${e2b.secrets.vendor}")
	s.kill()
	s.start()
	asks("after a restart", "Bearer "+second, "you sent Bearer ${e2b.secrets.vendor}")
	send("DELETE", "/secrets/vendor", "", http.StatusNoContent)
	asks("without the secret", "", `names the secret "vendor", which does not exist`)

	send("PUT", path, `{`+network+`}`, http.StatusNoContent)
	// it is not intercepted: the sandbox sees the host's own certificate
	asks("without rules", "", "self-signed certificate")
	send("POST", "/secrets", `{"name":"vendor","value":"`+first+`"}`, http.StatusCreated)
	send("PUT", path, `{`+network+rules+`}`, http.StatusNoContent)
	asks("with rules again", "Bearer "+first, "you sent Bearer ${e2b.secrets.vendor}")
	s.kill()
	s.start()
	asks("with rules again, after a restart", "Bearer "+first, "you sent Bearer ${e2b.secrets.vendor}")

	var fork []struct {
		Sandbox struct{ SandboxID string }
	}
	if err := json.Unmarshal([]byte(send("POST", "/sandboxes/"+made.SandboxID+"/fork", `{}`, http.StatusCreated)),
		&fork); err != nil || len(fork) != 1 || fork[0].Sandbox.SandboxID == "" {
		t.Fatalf("fork: %+v, %v", fork, err)
	}
	original := id
	id = "cntr_" + fork[0].Sandbox.SandboxID
	asks("in a fork", "Bearer "+first, "you sent Bearer ${e2b.secrets.vendor}")
	id = original

	var record struct{ Data []audit.Entry }
	text := send("GET", "/v1/containers/"+id+"/audit", "", http.StatusOK)
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		t.Fatal(err)
	}
	var bound, used int
	for _, e := range record.Data {
		switch {
		case e.Action == audit.SecretBound && e.Name == "vendor" && e.Host == site.host:
			bound++
		case e.Action == audit.SecretUsed && e.Name == "vendor" && e.Host == site.host:
			used++
		}
	}
	if bound != 2 || used == 0 {
		t.Errorf("the audit record binds the secret %d times and uses it %d times: %s", bound, used, text)
	}
	if log := s.log.String() + text; strings.Contains(log, first) || strings.Contains(log, second) {
		t.Error("the log or the audit record has the secret")
	}
}
