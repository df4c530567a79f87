package deadline

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// never is the deadline of a paused sandbox. The store lists objects with a deadline only.
const never = math.MaxInt32 * 1000

// What happens to a sandbox at its deadline.
const (
	OnTimeoutKill  = "kill"
	OnTimeoutPause = "pause"
)

// A Record is what a sandbox has beside its container. Its object expires at the deadline.
type Record struct {
	Template   string            `json:"template"`
	Alias      string            `json:"alias,omitempty"`   // the name of the template
	Timeout    int64             `json:"timeout,omitempty"` // seconds, of the request that created it
	Metadata   map[string]string `json:"metadata,omitempty"`
	StartedAt  int64             `json:"started_at"` // Unix milliseconds
	OnTimeout  string            `json:"on_timeout"` // kill or pause
	AutoResume bool              `json:"auto_resume,omitempty"`
	Paused     bool              `json:"paused,omitempty"`
	FilesOnly  bool              `json:"files_only,omitempty"` // it was paused without its memory

	KeepAtTimeout Kept `json:"keep_at_timeout,omitempty"` // by a pause at its deadline

	Contexts []Context `json:"contexts,omitempty"` // of the code interpreter
	Ports    Ports     `json:"ports,omitzero"`
	Outward  Outward   `json:"outward,omitzero"`

	Events     int     `json:"events,omitempty"`      // number of its events so far
	Outbox     []event `json:"outbox,omitempty"`      // events that are not saved on their own yet
	Executions int     `json:"executions,omitempty"`  // number of its pauses that have ended
	ExecutedAt int64   `json:"executed_at,omitempty"` // when it was created or last resumed, in Unix milliseconds
	MemoryMB   int64   `json:"memory_mb,omitempty"`

	// Of its template:
	Build string   `json:"build,omitempty"` // a build, or the digest of a template of the server
	User  string   `json:"user,omitempty"`
	Dir   string   `json:"dir,omitempty"`
	Env   []string `json:"env,omitempty"` // NAME=value
	Start *Start   `json:"start,omitempty"`

	Deadline int64 `json:"-"` // Unix seconds; never while it is paused
}

// A Start is the start command of a template.
type Start struct {
	Command string `json:"command"`
	User    string `json:"user,omitempty"`
	Dir     string `json:"dir,omitempty"`
}

func keyOf(id berth.ContainerID) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindSandbox, ID: string(id)}
}

func decode(o *store.Object) (*Record, error) {
	rec := &Record{Deadline: o.ExpiresAt}
	if err := json.Unmarshal(o.Body, rec); err != nil {
		return nil, fmt.Errorf("decode sandbox %s: %w", o.ID, err)
	}
	return rec, nil
}

// Over reports whether a sandbox is past a deadline that kills it. Its end may not be saved yet, but its clients see
// it as ended everywhere immediately.
func (rec *Record) Over(now time.Time) bool {
	return rec.Deadline <= now.Unix() && rec.OnTimeout != OnTimeoutPause
}

// A Context is a kernel of a sandbox with its own variables.
type Context struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Dir      string `json:"cwd"`
	Default  bool   `json:"default,omitempty"` // for code of its language that names no context
}

// Ports are the settings of a sandbox for requests to the ports of servers in it.
type Ports struct {
	Private bool   `json:"private,omitempty"` // requests need the traffic token
	Host    string `json:"host,omitempty"`    // Host header that servers get; ${PORT} is the port
	TLS     []int  `json:"tls,omitempty"`     // ports whose servers expect TLS
}

// An Outward is what a sandbox may reach, as its client wants it.
type Outward struct {
	Internet *bool                   `json:"allow_internet_access,omitempty"` // nil means true
	AllowOut []string                `json:"allowOut,omitempty"`
	DenyOut  []string                `json:"denyOut,omitempty"`
	Rules    map[string][]HeaderRule `json:"rules,omitempty"`

	Proxy *EgressProxy `json:"egressProxy,omitempty"` // without its secrets
}

// An EgressProxy is a SOCKS5 proxy of the client, as the client names it.
type EgressProxy struct {
	Address  string    `json:"address"`
	Username string    `json:"username,omitempty"`
	Password string    `json:"password,omitempty"` // only in requests
	TLS      *ProxyTLS `json:"tls,omitempty"`
}

// A ProxyTLS secures the connection to a proxy.
type ProxyTLS struct {
	Enabled    bool   `json:"enabled"`
	ServerName string `json:"serverName,omitempty"`
	CA         string `json:"caCert,omitempty"` // only in requests
}

// Shown returns the proxy without the fields that only requests have.
func (p *EgressProxy) Shown() *EgressProxy {
	if p == nil {
		return nil
	}
	shown := *p
	shown.Password = ""
	if p.TLS != nil {
		shown.TLS = &ProxyTLS{Enabled: p.TLS.Enabled, ServerName: p.TLS.ServerName}
	}
	return &shown
}

// A HeaderRule sets header fields of requests to a host.
type HeaderRule struct {
	Transform *struct {
		Headers map[string]string `json:"headers,omitempty"`
	} `json:"transform,omitempty"`
}

// Name returns the id of the sandbox of a container.
func Name(id berth.ContainerID) string { return strings.TrimPrefix(string(id), berth.PrefixContainer) }

func notFound(id berth.ContainerID) error {
	return berth.Errorf(berth.CodeNotFound, "Sandbox '%s' not found.", Name(id))
}
