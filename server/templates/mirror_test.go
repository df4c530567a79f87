package templates

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/server/config"
)

// A mirroring is a puller with a registry and a mirror of it, both on loopback, and how often each was asked.
type mirroring struct {
	*pulling
	mirror           *pulling
	asked, mirrorAsk atomic.Int64
}

func newMirroring(t *testing.T, change func(*config.Mirror)) *mirroring {
	t.Helper()
	m := &mirroring{}
	m.pulling = newPulling(t, 1<<40, func(http.ResponseWriter, *http.Request) { m.asked.Add(1) })
	m.mirror = newPulling(t, 1<<40, func(w http.ResponseWriter, r *http.Request) {
		m.mirrorAsk.Add(1)
		if user, password, ok := r.BasicAuth(); r.Method == http.MethodGet && r.URL.Path != "/v2/" &&
			ok && (user != "berth" || password != "mirror-password") {
			t.Errorf("the mirror got the credentials %s:%s", user, password)
		}
	})
	c := config.Mirror{URL: "http://" + m.mirror.host + "/hub", Registries: []string{m.host}}
	change(&c)
	var err error
	if m.Mirror, err = NewMirror(c); err != nil {
		t.Fatal(err)
	}
	return m
}

// pull pulls an image and returns what was logged.
func (m *mirroring) pull(t *testing.T, ref, user, password string) (log string, err error) {
	t.Helper()
	m.asked.Store(0)
	m.mirrorAsk.Store(0)
	var lines []string
	_, release, err := m.Pull(t.Context(), "proj_a", ref, user, password, func(line string) { lines = append(lines, line) })
	if err == nil {
		release()
	}
	return strings.Join(lines, "\n"), err
}

// An image that the mirror has is not fetched from its registry, and others are.
func TestMirror(t *testing.T) {
	m := newMirroring(t, func(*config.Mirror) {})
	m.mirror.push(t, "hub/both", 10)
	there := m.host + "/both:1"
	if log, err := m.pull(t, there, "", ""); err != nil || m.asked.Load() != 0 || !strings.Contains(log, "mirror") {
		t.Errorf("an image of the mirror: %v, the registry was asked %d times, log: %s", err, m.asked.Load(), log)
	}
	only := m.push(t, "only", 20)
	if _, err := m.pull(t, only, "", ""); err != nil || m.asked.Load() == 0 || m.mirrorAsk.Load() == 0 {
		t.Errorf("an image of the registry: %v, asked %d times, the mirror %d", err, m.asked.Load(),
			m.mirrorAsk.Load())
	}
	if _, err := m.pull(t, only, "someone", "something"); err != nil || m.mirrorAsk.Load() != 0 {
		t.Errorf("with credentials of the request: %v, the mirror was asked %d times", err, m.mirrorAsk.Load())
	}
	m.Mirror.registries = []string{"ghcr.io"}
	if _, err := m.pull(t, only, "", ""); err != nil || m.mirrorAsk.Load() != 0 {
		t.Errorf("an image of another registry: %v, the mirror was asked %d times", err, m.mirrorAsk.Load())
	}
}

// A server that pulls only from its mirror never asks a registry, and does not show the mirror to its clients.
func TestMirrorOnly(t *testing.T) {
	m := newMirroring(t, func(c *config.Mirror) { c.Only, c.Registries = true, []string{"*"} })
	ref := m.push(t, "only", 10)
	if _, err := m.pull(t, ref, "", ""); berth.ErrorCode(err) != berth.CodeInvalid || m.asked.Load() != 0 ||
		strings.Contains(messageOf(err), m.mirror.host) {
		t.Errorf("an image that the mirror lacks: %v, the registry was asked %d times", err, m.asked.Load())
	}
	if _, err := m.pull(t, ref, "someone", "something"); berth.ErrorCode(err) != berth.CodeInvalid ||
		m.mirrorAsk.Load()+m.asked.Load() != 0 {
		t.Errorf("with credentials of the request: %v", err)
	}
	m.mirror.push(t, "hub/only", 10)
	if _, err := m.pull(t, ref, "", ""); err != nil || m.asked.Load() != 0 {
		t.Errorf("an image of the mirror: %v, the registry was asked %d times", err, m.asked.Load())
	}
	m.Mirror.registries = []string{"ghcr.io"}
	if _, err := m.pull(t, ref, "", ""); berth.ErrorCode(err) != berth.CodeInvalid || m.asked.Load() != 0 {
		t.Errorf("an image of a registry that is not mirrored: %v", err)
	}
}

// The mirror gets the operator's credentials.
func TestMirrorCredentials(t *testing.T) {
	t.Setenv("TEST_MIRROR_PASSWORD", "mirror-password")
	m := newMirroring(t, func(c *config.Mirror) { c.Username, c.PasswordEnv = "berth", "TEST_MIRROR_PASSWORD" })
	m.mirror.push(t, "hub/both", 10)
	locked := m.mirror.deny.Swap(true)
	if locked {
		t.Fatal("the mirror was locked")
	}
	if log, err := m.pull(t, m.host+"/both:1", "", ""); err != nil || m.asked.Load() != 0 {
		t.Errorf("got %v, the registry was asked %d times, log: %s", err, m.asked.Load(), log)
	}
	m.Mirror.username = ""
	m.Mirror.password = ""
	m.Mirror.only = true
	if _, err := m.pull(t, m.host+"/both:1", "", ""); err == nil {
		t.Error("the mirror gave its image without a password")
	}
}

// messageOf returns what a client sees of an error.
func messageOf(err error) string {
	if e, ok := errors.AsType[*berth.Error](err); ok {
		return e.Message
	}
	return ""
}
