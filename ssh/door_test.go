package ssh

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/sshkeys"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

// A house is a door with its surroundings: keys of two projects, each with a container of the name box.
type house struct {
	t    *testing.T
	door *Door
	db   store.Store
	keys *sshkeys.Service
	now  *clock.Manual
	at   string

	mu      sync.Mutex
	callers map[string]berth.Caller // by token
	entries []audit.Entry
	news    chan audit.Entry
	served  []string // paths of the API
	policy  string
}

func (h *house) Admit(_ context.Context, token string, needed berth.Permission, _ string) (berth.Caller, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, ok := h.callers[token]
	if !ok {
		return c, berth.Errorf(berth.CodeUnauthorized, "wrong")
	}
	if !c.May(needed) {
		return c, berth.Forbidden(needed)
	}
	return c, nil
}

func (h *house) Readmit(_ context.Context, c berth.Caller, needed berth.Permission, _ string) (berth.Caller, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.Key == "" {
		return c, nil
	}
	for _, now := range h.callers {
		if now.Key == c.Key && now.Project == c.Project {
			if !now.May(needed) {
				return c, berth.Forbidden(needed)
			}
			return now, nil
		}
	}
	return c, berth.Errorf(berth.CodeUnauthorized, "deleted")
}

func (h *house) Get(_ context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error) {
	if id != boxOf(p) {
		return nil, berth.Errorf(berth.CodeNotFound, "not found")
	}
	return &berth.Container{ID: id, Status: berth.ContainerRunning, NetworkPolicy: berth.NetworkPolicy{Type: h.policy}}, nil
}

func (h *house) List(_ context.Context, p berth.ProjectID, name string, _ store.Page) ([]*berth.Container, bool, error) {
	if name != "box" && name != "box-"+string(p) {
		return nil, false, nil
	}
	return []*berth.Container{{ID: boxOf(p), Status: berth.ContainerRunning}}, false, nil
}

func boxOf(p berth.ProjectID) berth.ContainerID {
	return berth.ContainerID(berth.PrefixContainer + strings.TrimPrefix(string(p), "proj_"))
}

func (h *house) Record(entries ...audit.Entry) {
	h.mu.Lock()
	h.entries = append(h.entries, entries...)
	h.mu.Unlock()
	for _, e := range entries {
		h.news <- e
	}
}

// await returns the next entry with an action.
func (h *house) await(action audit.Action) audit.Entry {
	h.t.Helper()
	for {
		select {
		case e := <-h.news:
			if e.Action == action {
				return e
			}
		case <-h.t.Context().Done():
			h.t.Fatalf("no entry %s", action)
		}
	}
}

// pass lets time pass until there is an entry with an action.
func (h *house) pass(d time.Duration, action audit.Action) audit.Entry {
	h.t.Helper()
	for h.t.Context().Err() == nil {
		h.now.Advance(d)
		select {
		case e := <-h.news:
			if e.Action == action {
				return e
			}
		default:
			runtime.Gosched()
		}
	}
	h.t.Fatalf("no entry %s", action)
	return audit.Entry{}
}

func newHouse(t *testing.T, limits Limits, authorities ...Authority) *house {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	h := &house{t: t, db: db, now: clock.NewManual(time.Now()), policy: "none", news: make(chan audit.Entry, 1000),
		callers: map[string]berth.Caller{
			"sk-a": {Project: "proj_a", Key: "key_a", Person: "ann@example.com",
				Permissions: berth.AllPermissions("proj_a")},
			"sk-b":      {Project: "proj_b", Key: "key_b", Permissions: berth.AllPermissions("proj_b")},
			"sk-viewer": {Project: "proj_a", Key: "key_v", Permissions: berth.RoleViewer.Permissions("proj_a")},
		}}
	h.keys = sshkeys.New(sshkeys.Options{Objects: db, Now: h.now.Now})
	host, err := sshkeys.HostKey(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	h.door = New(Options{HostKey: host, Keys: h.keys, Authorities: authorities, Containers: h, Audit: h,
		Log: slog.New(slog.DiscardHandler), Limits: limits, Clock: h.now})
	h.door.Connect(h, berth.MayAttach, func(berth.Caller) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.mu.Lock()
			h.served = append(h.served, r.URL.Path)
			h.mu.Unlock()
			http.Error(w, "no container here", http.StatusBadGateway)
		})
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.at = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- h.door.Serve(l) }()
	t.Cleanup(func() {
		l.Close()
		if err := h.door.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return h
}

// dial signs in.
func (h *house) dial(user string, methods ...ssh.AuthMethod) (*ssh.Client, error) {
	return ssh.Dial("tcp", h.at, &ssh.ClientConfig{User: user, Auth: methods,
		HostKeyCallback: ssh.FixedHostKey(h.door.HostKey())})
}

func (h *house) mustDial(user string, methods ...ssh.AuthMethod) *ssh.Client {
	h.t.Helper()
	c, err := h.dial(user, methods...)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	return c
}

func newSigner(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (h *house) addKey(token string, s ssh.Signer) *sshkeys.Key {
	h.t.Helper()
	k, err := h.keys.Create(h.t.Context(), h.callers[token], sshkeys.Request{Name: "mine",
		PublicKey: string(ssh.MarshalAuthorizedKey(s.PublicKey()))})
	if err != nil {
		h.t.Fatal(err)
	}
	return k
}

// A user name is a container of the caller's own project, whatever it is called.
func TestSignIn(t *testing.T) {
	h := newHouse(t, Limits{})
	a, b, shared := newSigner(t), newSigner(t), newSigner(t)
	h.addKey("sk-a", a)
	h.addKey("sk-b", b)
	h.addKey("sk-a", shared)
	h.addKey("sk-b", shared)
	for _, test := range []struct {
		user string
		auth ssh.AuthMethod
		want berth.ContainerID // "" means that the project has none
	}{
		{"box", ssh.Password("sk-a"), "cntr_a"},
		{"cntr_b", ssh.Password("sk-b"), "cntr_b"},
		{"cntr_b", ssh.Password("sk-a"), ""},
		{"box-proj_b", ssh.PublicKeys(a), ""},
		{"box-proj_b", ssh.PublicKeys(b), "cntr_b"},
		{"box-proj_b", ssh.PublicKeys(shared), "cntr_b"},
		{"box-proj_a", ssh.PublicKeys(shared), "cntr_a"},
		{"../box", ssh.Password("sk-a"), ""},
		{"", ssh.Password("sk-a"), ""},
	} {
		c := h.mustDial(test.user, test.auth)
		if got := h.await(audit.SSHConnected); got.Container != test.want || got.Address == "" || got.Key == "" ||
			got.Key == "key_a" && got.Person != "ann@example.com" {
			t.Errorf("%s: %+v, want the container %q", test.user, got, test.want)
		}
		c.Close()
		h.await(audit.SSHEnded)
	}
	for user, auth := range map[string]ssh.AuthMethod{"box": ssh.Password("sk-viewer"), "cntr_a": ssh.Password("wrong"),
		"cntr_b": ssh.PublicKeys(newSigner(t))} {
		if c, err := h.dial(user, auth); err == nil {
			c.Close()
			t.Errorf("%s was admitted", user)
		}
		h.await(audit.SSHRefused)
		h.now.Advance(11 * time.Minute) // the next failure is the first of its time
	}
}

// A connection ends when its key does: the API key, the public key, or what it may do.
func TestRevoked(t *testing.T) {
	h := newHouse(t, Limits{KeepAlive: 1000 * time.Hour})
	s := newSigner(t)
	k := h.addKey("sk-a", s)
	for what, revoke := range map[string]func(){
		"public key": func() {
			if err := h.keys.Delete(t.Context(), h.callers["sk-a"], k.ID); err != nil {
				t.Fatal(err)
			}
		},
		"role": func() {
			c := h.callers["sk-b"]
			c.Permissions = berth.MayRead
			h.callers["sk-b"] = c
		},
	} {
		auth := ssh.PublicKeys(s)
		if what == "role" {
			auth = ssh.Password("sk-b")
		}
		c := h.mustDial("box", auth)
		h.await(audit.SSHConnected)
		h.mu.Lock()
		if what == "role" {
			revoke()
		}
		h.mu.Unlock()
		if what != "role" {
			revoke()
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		e := h.pass(time.Second, audit.SSHEnded)
		<-ended
		if e.Reason != "the key is not valid any more" {
			t.Errorf("%s: %+v", what, e)
		}
	}
}

// An address that guesses has to wait, also with the right key.
func TestGuesses(t *testing.T) {
	h := newHouse(t, Limits{Failures: 6})
	for range 3 {
		if c, err := h.dial("box", ssh.Password("guess")); err == nil {
			c.Close()
			t.Fatal("admitted")
		}
	}
	h.await(audit.SSHRefused)
	if e := h.await(audit.SSHRefused); e.Count < 6 {
		t.Errorf("%+v, want the sum of failures", e)
	}
	if c, err := h.dial("box", ssh.Password("sk-a")); err == nil {
		c.Close()
		t.Error("admitted after too many failures")
	}
	h.now.Advance(10 * time.Minute)
	h.mustDial("box", ssh.Password("sk-a"))
}

// Connections that do not sign in hold no room for long, and too many are refused.
func TestHalfOpen(t *testing.T) {
	h := newHouse(t, Limits{Handshakes: 4, PerAddress: 16})
	var open []net.Conn
	for range 8 {
		c, err := net.Dial("tcp", h.at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
	}
	waiting, closed := 0, 0 // the server greets those whose handshake it has begun
	for _, c := range open {
		if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
			closed++
		} else {
			waiting++
		}
	}
	if waiting > 4 || waiting == 0 {
		t.Errorf("%d handshakes at a time and %d refused, want at most 4", waiting, closed)
	}
	h.now.Advance(20 * time.Second)
	for _, c := range open {
		_, _ = io.Copy(io.Discard, c) // ends when the server closes it
	}
	h.await(audit.SSHRefused)
	for { // the rest of the handshakes may be ending
		c, err := h.dial("box", ssh.Password("sk-a"))
		if err == nil {
			c.Close()
			return
		}
	}
}

// A connection has a number of channels at a time, and what is not served is refused by name.
func TestChannels(t *testing.T) {
	h := newHouse(t, Limits{Channels: 3})
	c := h.mustDial("box", ssh.Password("sk-a"))
	for range 3 {
		if _, _, err := c.OpenChannel("session", nil); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(kind string, payload []byte, want ssh.RejectionReason) {
		t.Helper()
		_, _, err := c.OpenChannel(kind, payload)
		if e, ok := errors.AsType[*ssh.OpenChannelError](err); !ok || e.Reason != want {
			t.Errorf("%s: got %v, want %v", kind, err, want)
		}
	}
	refused("session", nil, ssh.ResourceShortage)
	refused("x11", nil, ssh.UnknownChannelType)
	refused("auth-agent@openssh.com", nil, ssh.UnknownChannelType)
	refused("direct-streamlocal@openssh.com", nil, ssh.UnknownChannelType)
	other := h.mustDial("box", ssh.Password("sk-a"))
	s, err := other.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"x11-req", "auth-agent-req@openssh.com", "subsystem"} {
		if ok, err := s.SendRequest(kind, true, nil); ok || err != nil {
			t.Errorf("%s: %v, %v", kind, ok, err)
		}
	}
	for name, value := range map[string]string{"": "a", "A=B": "c", "A": "b\x00c", "LARGE": strings.Repeat("x", 33<<10)} {
		if s.Setenv(name, value) == nil {
			t.Errorf("the variable %q was accepted", name)
		}
	}
	for i := range 100 {
		if err := s.Setenv("N"+strings.Repeat("x", i), ""); (err != nil) != (i >= maxVariables) {
			t.Errorf("variable %d: %v", i, err)
		}
	}
	if err := s.RequestPty("xterm\x1b]0;", 1<<31-1, 1<<31-1, nil); err != nil {
		t.Errorf("a giant window: %v", err)
	}
	if ok, _, err := other.SendRequest("tcpip-forward", true, ssh.Marshal(listenRequest{"127.0.0.1", 80})); ok || err != nil {
		t.Errorf("a container without network: %v, %v", ok, err)
	}
}

// Only ports of the container itself are reached.
func TestForwardTargets(t *testing.T) {
	h := newHouse(t, Limits{})
	c := h.mustDial("box", ssh.Password("sk-a"))
	for host, want := range map[string]ssh.RejectionReason{"169.254.169.254": ssh.Prohibited, "127.0.0.2": ssh.Prohibited,
		"cntr_b": ssh.Prohibited, "localhost": ssh.ConnectionFailed, "box": ssh.ConnectionFailed, "::1": ssh.ConnectionFailed} {
		_, _, err := c.OpenChannel("direct-tcpip", ssh.Marshal(forwardRequest{host, 8000, "127.0.0.1", 1}))
		if e, ok := errors.AsType[*ssh.OpenChannelError](err); !ok || e.Reason != want {
			t.Errorf("%s: got %v, want %v", host, err, want)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if want := "/v1/containers/cntr_a/ports/8000"; len(h.served) != 3 || slices.ContainsFunc(h.served, func(p string) bool {
		return p != want
	}) {
		t.Errorf("the API served %q, want three times %s", h.served, want)
	}
}

// A client that is silent for long is gone.
func TestSilentClient(t *testing.T) {
	h := newHouse(t, Limits{KeepAlive: time.Minute})
	raw, err := net.Dial("tcp", h.at)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_, _, requests, err := ssh.NewClientConn(raw, h.at, &ssh.ClientConfig{User: "box",
		Auth: []ssh.AuthMethod{ssh.Password("sk-a")}, HostKeyCallback: ssh.FixedHostKey(h.door.HostKey())})
	if err != nil {
		t.Fatal(err)
	}
	h.await(audit.SSHConnected)
	go func() {
		for range requests { // the questions, which stay without an answer
		}
	}()
	if e := h.pass(time.Minute, audit.SSHEnded); e.Reason != "the client does not answer" {
		t.Errorf("%+v", e)
	}
}

// The host's key stays.
func TestHostKey(t *testing.T) {
	h := newHouse(t, Limits{})
	again, err := sshkeys.HostKey(t.Context(), h.db)
	if err != nil || ssh.FingerprintSHA256(again.PublicKey()) != ssh.FingerprintSHA256(h.door.HostKey()) {
		t.Errorf("the second key differs: %v", err)
	}
}

// Certificates of an authority are for their principals, for a time, and with what their extensions permit.
func TestCertificates(t *testing.T) {
	ca, user := newSigner(t), newSigner(t)
	h := newHouse(t, Limits{Failures: 1000, KeepAlive: 1000 * time.Hour}, Authority{Key: ca.PublicKey(), Projects: []berth.ProjectID{"proj_a"},
		Revoked: []string{"mallory"}})
	now := uint64(h.now.Now().Unix())
	good := ssh.Certificate{CertType: ssh.UserCert, KeyId: "alice", ValidPrincipals: []string{"proj_a"}, ValidAfter: now - 60,
		ValidBefore: now + 3600, Key: user.PublicKey(), Permissions: ssh.Permissions{Extensions: map[string]string{"permit-pty": ""}}}
	try := func(by ssh.Signer, change func(*ssh.Certificate)) (*ssh.Client, error) {
		t.Helper()
		cert := good
		change(&cert)
		if err := cert.SignCert(rand.Reader, by); err != nil {
			t.Fatal(err)
		}
		s, err := ssh.NewCertSigner(&cert, user)
		if err != nil {
			t.Fatal(err)
		}
		return h.dial("box", ssh.PublicKeys(s))
	}
	c, err := try(ca, func(*ssh.Certificate) {})
	if err != nil {
		t.Fatal(err)
	}
	if e := h.await(audit.SSHConnected); e.Name != "alice" || e.Reason != "certificate" || e.Project != "proj_a" {
		t.Errorf("%+v", e)
	}
	_, _, err = c.OpenChannel("direct-tcpip", ssh.Marshal(forwardRequest{"localhost", 80, "", 0}))
	if e, ok := errors.AsType[*ssh.OpenChannelError](err); !ok || e.Reason != ssh.Prohibited {
		t.Errorf("forwarding without permit-port-forwarding: %v", err)
	}
	for what, change := range map[string]func(*ssh.Certificate){
		"another project": func(c *ssh.Certificate) { c.ValidPrincipals = []string{"proj_b"} },
		"no principals":   func(c *ssh.Certificate) { c.ValidPrincipals = nil },
		"expired":         func(c *ssh.Certificate) { c.ValidBefore = now - 1 },
		"not yet valid":   func(c *ssh.Certificate) { c.ValidAfter = now + 60 },
		"endless":         func(c *ssh.Certificate) { c.ValidBefore = ssh.CertTimeInfinity },
		"too long":        func(c *ssh.Certificate) { c.ValidBefore = now + 40*24*3600 },
		"revoked":         func(c *ssh.Certificate) { c.KeyId = "mallory" },
		"of a host":       func(c *ssh.Certificate) { c.CertType = ssh.HostCert },
		"forced command":  func(c *ssh.Certificate) { c.CriticalOptions = map[string]string{"force-command": "id"} },
		"elsewhere":       func(c *ssh.Certificate) { c.CriticalOptions = map[string]string{"source-address": "192.0.2.0/24"} },
	} {
		if c, err := try(ca, change); err == nil {
			c.Close()
			t.Errorf("%s: admitted", what)
		}
	}
	if c, err := try(newSigner(t), func(*ssh.Certificate) {}); err == nil {
		c.Close()
		t.Error("another authority: admitted")
	}
	h.now.Advance(time.Hour)
	if e := h.pass(time.Second, audit.SSHEnded); e.Name != "alice" {
		t.Errorf("%+v", e)
	}
}
