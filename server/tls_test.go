package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/berth-run/berth/internal/conns"
	"github.com/berth-run/berth/internal/freeport"
	"github.com/berth-run/berth/server/config"
)

// certificate writes a certificate for names that signs itself, and its key, and returns it.
func certificate(t *testing.T, cert, key string, names ...string) *x509.Certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	body := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, body, body, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// serveTLS serves a server with HTTPS, and returns its address.
func serveTLS(t *testing.T, s *Server, c *config.Config, state, address string) string {
	t.Helper()
	var err error
	if s.tls, err = s.startTLS(c.Server.TLS, state); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// visit requests /healthz of a server at an address under a host's name, and returns the
// certificate that the server has shown.
func visit(t *testing.T, address, host string, roots *x509.CertPool) (*x509.Certificate, error) {
	t.Helper()
	client := &http.Client{Timeout: time.Minute,
		Transport: &http.Transport{DisableKeepAlives: true, ForceAttemptHTTP2: true,
			TLSClientConfig: &tls.Config{RootCAs: roots},
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}}}
	resp, err := client.Get("https://" + host + "/healthz")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || resp.ProtoMajor != 1 {
		t.Errorf("got %s %s %s, %v", resp.Status, resp.Proto, body, err)
	}
	return resp.TLS.PeerCertificates[0], nil
}

// A server with a certificate speaks HTTPS only, and a reload replaces the certificate.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	first := certificate(t, cert, key, "berth.test")
	config := "driver: unsafe-local\ncontainers: {pool: 0}\nserver: {tls: {cert_file: '" + cert + "', key_file: '" +
		key + "'}}\n"
	s, _ := testServer(t, filepath.Join(dir, "state"), config)
	c := s.reloader.started
	address := serveTLS(t, s, c, dir, "127.0.0.1:0")
	trust := func(c *x509.Certificate) *x509.CertPool {
		pool := x509.NewCertPool()
		pool.AddCert(c)
		return pool
	}
	if got, err := visit(t, address, "berth.test", trust(first)); err != nil || !got.Equal(first) {
		t.Errorf("got %v", err)
	}
	resp, err := http.Get("http://" + address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("plain HTTP: got %s", resp.Status)
	}

	if err := os.WriteFile(key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(c); err == nil || !strings.Contains(err.Error(), "berth.yaml:3: server.tls.cert_file: ") {
		t.Errorf("a wrong key: got %v", err)
	}
	if _, err := visit(t, address, "berth.test", trust(first)); err != nil {
		t.Errorf("after a wrong key: got %v", err)
	}
	second := certificate(t, cert, key, "berth.test")
	if err := s.Reload(c); err != nil {
		t.Fatal(err)
	}
	if got, err := visit(t, address, "berth.test", trust(second)); err != nil || !got.Equal(second) {
		t.Errorf("after a reload: got %v", err)
	}
}

// The limits of connections know connections below TLS.
func TestTLSConnections(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	root := x509.NewCertPool()
	root.AddCert(certificate(t, cert, key, "berth.test"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bounded := conns.Limit(l, conns.Limits{Total: 8, PerAddress: 8, WithoutKey: 8, WithoutKeyAddress: 8},
		slog.New(slog.DiscardHandler))
	hs := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conns.Known(r.Context())
	})}
	bounded.Attach(hs)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = hs.Serve(tls.NewListener(bounded, &tls.Config{Certificates: []tls.Certificate{pair}})) }()
	defer hs.Close()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: root}}}
	resp, err := client.Get("https://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if n := bounded.Counts(); n.WithKey != 1 || n.WithoutKey != 0 {
		t.Errorf("got %+v", n)
	}
}

// A server obtains a certificate from Pebble, a test authority that really validates domains, by
// either kind of challenge, and uses the stored certificate after a restart.
func TestACME(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	pebble := filepath.Join(cache, "berth-test", "bin", "pebble")
	if _, err := os.Stat(pebble); err != nil {
		t.Skip("no pebble: run scripts/setup test")
	}
	for _, kind := range []string{"tls-alpn-01", "http-01"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			listen, challenges, closed := freeport.Port(t), freeport.Port(t), freeport.Port(t)
			a := &authority{program: pebble, dir: dir, tls: listen, http: closed}
			if kind == "http-01" {
				a.tls, a.http = closed, challenges
			}
			a.start(t)
			config := "driver: unsafe-local\ncontainers: {pool: 0}\nserver: {tls: {acme: {domains: [berth.test], email: ops@berth.test, listen: '127.0.0.1:" + challenges +
				"', directory: '" + a.directory + "', ca_file: '" + filepath.Join(dir, "ca.pem") + "'}}}\n"
			s, _ := testServer(t, filepath.Join(dir, "state"), config)
			address := serveTLS(t, s, s.reloader.started, filepath.Join(dir, "state"), "127.0.0.1:"+listen)
			got, err := visit(t, address, "berth.test", a.roots(t))
			if err != nil {
				t.Fatalf("%v\n%s", err, a.log.String())
			}
			if got.VerifyHostname("berth.test") != nil {
				t.Errorf("got a certificate for %v", got.DNSNames)
			}
			if _, err := visit(t, address, "other.test", a.roots(t)); err == nil {
				t.Error("a name that is not configured got a certificate")
			}
			resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			}}).Get("http://127.0.0.1:" + challenges + "/v1/models")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusFound || !strings.HasPrefix(to,
				"https://") {
				t.Errorf("plain HTTP: got %s to %s", resp.Status, to)
			}
			m, err := acmeManager(s.reloader.started.Server.TLS.ACME, filepath.Join(dir, "state"), nil)
			if err != nil {
				t.Fatal(err)
			}
			m.Client.DirectoryURL = "http://127.0.0.1:1" // the stored certificate needs no authority
			pair, err := m.GetCertificate(&tls.ClientHelloInfo{ServerName: "berth.test",
				SupportedVersions: []uint16{tls.VersionTLS13},
				SignatureSchemes:  []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256},
				CipherSuites:      []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
				SupportedCurves:   []tls.CurveID{tls.CurveP256}})
			if err != nil || !pair.Leaf.Equal(got) {
				t.Errorf("after a restart: got %v", err)
			}
		})
	}
}

// An authority is a running Pebble.
type authority struct {
	program, dir string
	tls, http    string // ports that it connects to for challenges
	directory    string // its URL
	management   string
	ca           *x509.CertPool
	log          bytes.Buffer
}

func (a *authority) start(t *testing.T) {
	t.Helper()
	cert, key := filepath.Join(a.dir, "ca.pem"), filepath.Join(a.dir, "ca.key")
	a.ca = x509.NewCertPool()
	a.ca.AddCert(certificate(t, cert, key, "localhost"))
	listen, management := "127.0.0.1:"+freeport.Port(t), "127.0.0.1:"+freeport.Port(t)
	a.directory, a.management = "https://"+listen+"/dir", "https://"+management
	port := func(text string) json.Number { return json.Number(text) }
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{"listenAddress": listen,
		"managementListenAddress": management,
		"certificate":             cert, "privateKey": key, "httpPort": port(a.http), "tlsPort": port(a.tls),
		"profiles": map[string]any{"default": map[string]any{"description": "default", "validityPeriod": 7776000}}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(a.dir, "pebble.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(a.program, "-config", file, "-dnsserver", nameServer(t))
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0")
	cmd.Stdout, cmd.Stderr = &a.log, &a.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for end := time.Now().Add(30 * time.Second); ; {
		c, err := net.DialTimeout("tcp", management, time.Second)
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatal("pebble does not start")
		}
	}
}

// roots returns the authority's root certificate.
func (a *authority) roots(t *testing.T) *x509.CertPool {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.ca}}}
	resp, err := client.Get(a.management + "/roots/0")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(text) {
		t.Fatalf("got roots %q, %v", text, err)
	}
	return pool
}

// nameServer serves DNS over TCP in which every name has the address 127.0.0.1, and returns its
// address.
func nameServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for answerQuery(c) == nil {
				}
			}()
		}
	}()
	return l.Addr().String()
}

// answerQuery reads and answers one query of a connection.
func answerQuery(c net.Conn) error {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	query := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, query); err != nil {
		return err
	}
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return err
	}
	m.Response, m.Additionals = true, nil
	if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1},
			Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
	}
	answer, err := m.Pack()
	if err != nil {
		return err
	}
	_, err = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
	return err
}

// A domain of previews that shares its site with a name of the server's certificate is warned of.
func TestPreviewSharesSiteOfCertificate(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certificate(t, cert, key, "berth.example.com", "*.sandboxes.example.com", "other.example.org")
	for domain, warns := range map[string]bool{"sandboxes.example.com": true, "sandboxes.example.net": false} {
		c, err := configure(t, fmt.Sprintf("preview: {domain: %s}\nserver: {tls: {cert_file: %s, key_file: %s}}\n",
			domain, cert, key))
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(c.Warnings(), "\n")
		if want := "berth.yaml:1: preview.domain shares the site example.com with this server's name berth.example.com,"; strings.Contains(got, want) != warns {
			t.Errorf("%s: got %q", domain, got)
		}
	}
}
