package forward

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/internal/freeport"
)

// certificate writes a certificate of localhost that signs itself, and its key, and returns who trusts it.
func certificate(t *testing.T) (cert, key string, roots *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for path, text := range map[string][]byte{cert: public,
		key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(public)
	return cert, key, roots
}

// rsyslog starts a real collector that writes messages to a file, "NUMBER ACTION CONTENT" in a line.
func rsyslog(t *testing.T, port, cert, key, out string) (kill func()) {
	t.Helper()
	path, err := exec.LookPath("rsyslogd")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/rsyslogd"); err != nil {
			t.Skip("skipped: rsyslog is not installed")
		}
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "rsyslog.conf")
	text := fmt.Sprintf(`global(workDirectory=%q defaultNetstreamDriver="ossl" defaultNetstreamDriverCAFile=%[2]q
 defaultNetstreamDriverCertFile=%[2]q defaultNetstreamDriverKeyFile=%q maxMessageSize="64k")
module(load="imtcp" streamDriver.name="ossl" streamDriver.mode="1" streamDriver.authMode="anon")
template(name="line" type="string" string="%%syslogfacility-text%% %%app-name%% %%msgid%% %%structured-data%% %%msg%%\n")
ruleset(name="keep") { action(type="omfile" file=%q template="line") }
input(type="imtcp" port=%q address="127.0.0.1" ruleset="keep")
`, dir, cert, key, out, port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "-n", "-f", config, "-i", filepath.Join(dir, "pid"))
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	kill = func() { _ = cmd.Process.Kill(); <-ended }
	t.Cleanup(kill)
	return kill
}

// A real collector gets all entries, also those of while it was killed, and none is lost when it ends in between.
func TestSyslog(t *testing.T) {
	cert, key, roots := certificate(t)
	port, out := freeport.Port(t), filepath.Join(t.TempDir(), "messages")
	kill := rsyslog(t, port, cert, key, out)
	b := newBench(t)
	s := &Syslog{Address: net.JoinHostPort("localhost", port), TLS: &tls.Config{RootCAs: roots},
		Format: ECS, Host: "host with spaces", Clock: clock.System}
	f := b.start(s)
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(b.log.String())
		}
	}()
	// has waits until the file has all entries, and checks their order: an entry may come twice.
	has := func() {
		t.Helper()
		want := b.record.Size()
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			text, _ := os.ReadFile(out)
			seen := map[int64]bool{}
			for line := range strings.Lines(string(text)) {
				fields := strings.Fields(line)
				if len(fields) < 5 || fields[1] != "berth" || !strings.Contains(line, `"ecs":{"version":"8.11.0"}`) {
					continue
				}
				n, err := strconv.ParseInt(strings.Trim(strings.TrimPrefix(fields[4], "sequenceId="), `"]`), 10, 64)
				if err != nil {
					t.Fatalf("%q has no number", line)
				}
				seen[n-1] = true
			}
			if int64(len(seen)) == want && seen[0] && seen[want-1] {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the collector has %d of %d entries:\n%.2000s", len(seen), want, text)
			}
		}
	}
	b.add(3)
	has()
	kill()
	b.add(400)
	rsyslog(t, port, cert, key, out)
	has()
	text, err := os.ReadFile(out)
	if err != nil || !strings.Contains(string(text), `berth key.created [meta sequenceId="2"] {"@timestamp"`) {
		t.Errorf("got %.500s, %v", text, err)
	}
}

// collector is a fake one whose connections are handed over after the handshake.
func collector(t *testing.T, cert, key string, each func(n int, conn net.Conn)) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for n := 0; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go each(n, conn)
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return net.JoinHostPort("localhost", port)
}

// frame reads a message with its length before it.
func frame(in *bufio.Reader) (string, error) {
	length, err := in.ReadString(' ')
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(strings.TrimSuffix(length, " "))
	if err != nil || n > 1<<20 {
		return "", fmt.Errorf("length %q: %w", length, err)
	}
	text := make([]byte, n)
	_, err = io.ReadFull(in, text)
	return string(text), err
}

// What a broken connection may have lost is sent again over the next one. Frames have exact lengths.
func TestSyslogRepeats(t *testing.T) {
	cert, key, roots := certificate(t)
	got, sent := make(chan string, 10), make(chan struct{})
	address := collector(t, cert, key, func(n int, conn net.Conn) {
		defer conn.Close()
		in := bufio.NewReader(conn)
		for {
			text, err := frame(in)
			if err != nil {
				return
			}
			got <- text
			if n == 0 && strings.Contains(text, `sequenceId="9"`) {
				<-sent
				return
			}
		}
	})
	s := &Syslog{Address: address, TLS: &tls.Config{RootCAs: roots}, Format: Berth, Host: "h", Clock: clock.System}
	defer s.Close()
	if err := s.Send(t.Context(), some); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<110>1 1970-01-01T00:00:01.000000Z h berth ", "<109>1 1970-01-01T00:00:02.000000Z h berth "} {
		if text := <-got; !strings.HasPrefix(text, want) || !strings.HasSuffix(text, `"}`) {
			t.Errorf("got %q, want a message that begins with %q", text, want)
		}
	}
	close(sent)
	<-s.over
	if err := s.Send(t.Context(), some[:1]); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`sequenceId="8"`, `sequenceId="9"`, `sequenceId="8"`} {
		if text := <-got; !strings.Contains(text, want) {
			t.Errorf("got %q, want the entry %s", text, want)
		}
	}
}

// A collector that reads nothing holds nobody longer than the caller waits; one that nobody vouches for gets nothing.
func TestSyslogHostile(t *testing.T) {
	cert, key, roots := certificate(t)
	hold, shaken := make(chan struct{}), make(chan struct{}, 2)
	defer close(hold)
	address := collector(t, cert, key, func(_ int, conn net.Conn) {
		if conn.(*tls.Conn).Handshake() == nil {
			shaken <- struct{}{}
		}
		<-hold
		conn.Close()
	})
	s := &Syslog{Address: address, TLS: &tls.Config{RootCAs: roots}, Format: Berth, Host: "h", Clock: clock.System}
	large := *some[0]
	large.Name = strings.Repeat("x", 32<<20) // more than all buffers between the two
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-shaken
		cancel()
	}()
	if err := s.Send(ctx, []*audit.Entry{&large}); err == nil {
		t.Error("a collector that reads nothing: no error")
	}
	_, _, others := certificate(t)
	s = &Syslog{Address: address, TLS: &tls.Config{RootCAs: others}, Format: Berth, Host: "h", Clock: clock.System}
	if err := s.Send(t.Context(), some); err == nil || !strings.Contains(err.Error(), "TLS with the syslog collector") {
		t.Errorf("an unknown certificate: got %v", err)
	}
}
