package build

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// Limits of the templates of a project.
const (
	maxTemplates = 4000
	maxBuilds    = 20 // of one template; older ones without a tag are deleted
	MaxTags      = 100
)

// DefaultTag is the tag of a build without another, and of a name without one.
const DefaultTag = "default"

// The states of a build.
const (
	StatusWaiting  = "waiting"
	StatusBuilding = "building"
	StatusReady    = "ready"
	StatusError    = "error"
)

// A Template is what sandboxes of a project start from: builds, each a snapshot, which tags name. A
// template with a source sandbox is a snapshot of E2B's API.
type Template struct {
	ID        string            `json:"id"`
	Names     []string          `json:"names,omitempty"`
	Sandbox   string            `json:"sandbox,omitempty"` // the source of a snapshot
	CreatedAt int64             `json:"created_at"`        // Unix milliseconds
	UpdatedAt int64             `json:"updated_at"`
	Tags      map[string]string `json:"tags,omitempty"`   // build ids
	Builds    []string          `json:"builds,omitempty"` // ids, oldest first
	Spawned   int64             `json:"spawned,omitempty"`
	SpawnedAt int64             `json:"spawned_at,omitempty"`
	UsedAt    int64             `json:"used_at,omitempty"` // when a build started from it
}

// Newest returns the tag of the newest build that has one.
func (t *Template) Newest() string {
	for _, id := range slices.Backward(t.Builds) {
		for _, tag := range slices.Sorted(maps.Keys(t.Tags)) {
			if t.Tags[tag] == id {
				return tag
			}
		}
	}
	return DefaultTag
}

// Named reports whether a name, with or without a tag, is one of the template.
func (t *Template) Named(ref string) bool {
	name, _, _ := strings.Cut(ref, ":")
	return slices.Contains(t.Names, name)
}

// A Build is one result of building a template.
type Build struct {
	ID         string            `json:"id"`
	Template   string            `json:"template"`
	Status     string            `json:"status"`
	Tags       []string          `json:"tags,omitempty"` // that it gets when it is ready
	CreatedAt  int64             `json:"created_at"`     // Unix milliseconds
	EndedAt    int64             `json:"ended_at,omitempty"`
	BeatAt     int64             `json:"beat_at,omitempty"`   // when its server saved it last while it ran
	Server     string            `json:"server,omitempty"`    // that builds it, or has built it
	Container  berth.ContainerID `json:"container,omitempty"` // in which it is built; empty when that is deleted
	Snapshot   berth.SnapshotID  `json:"snapshot,omitempty"`
	Memory     bool              `json:"memory,omitempty"`       // the snapshot has the memory
	MemorySize string            `json:"memory_limit,omitempty"` // of its sandboxes
	CPUCount   int               `json:"cpu_count,omitempty"`
	MemoryMB   int64             `json:"memory_mb,omitempty"`
	Env        []string          `json:"env,omitempty"`
	User       string            `json:"user,omitempty"`
	Dir        string            `json:"dir,omitempty"`
	// that runs in the memory of the snapshot, or that sandboxes must start themselves
	Start  *StartCommand `json:"start,omitempty"`
	Reason *Reason       `json:"reason,omitempty"`
	Logs   []LogEntry    `json:"logs,omitempty"`
}

// A StartCommand is the start command of a template.
type StartCommand struct {
	Command string `json:"command,omitempty"`
	Ready   string `json:"ready,omitempty"` // succeeds when the template is ready
	User    string `json:"user,omitempty"`
	Dir     string `json:"dir,omitempty"`
}

// A Reason is why a build failed.
type Reason struct {
	Message string     `json:"message"`
	Step    string     `json:"step,omitempty"`
	Logs    []LogEntry `json:"logEntries"`
}

// A LogEntry is a line of the log of a build.
type LogEntry struct {
	Timestamp string `json:"timestamp"` // RFC 3339
	Level     string `json:"level"`     // debug, info, warn or error
	Message   string `json:"message"`
	Step      string `json:"step,omitempty"`
}

// NewID returns an id that can be part of a host name.
func NewID() string { return berth.NewID("") }

// NewBuildID returns a random UUID, the form that E2B's OpenAPI document gives the ids of builds.
func NewBuildID() string { return uuid.NewString() }

func templateKey(id string) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindE2BTemplate, ID: "tmpl_" + id}
}

func buildKey(template, id string) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindE2BBuild, Parent: "tmpl_" + template, ID: "tmplb_" + id}
}

var (
	idPattern   = regexp.MustCompile(`^[0-9a-f]{48}$`)
	namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,127}$`)
	tagPattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
)

// IsTag reports whether a text can be a tag.
func IsTag(text string) bool { return tagPattern.MatchString(text) }

// SplitRef splits the name, or the id, of a template from its tag. The name may be empty.
func SplitRef(at, ref string) (name, tag string, err error) {
	name, tag, tagged := strings.Cut(ref, ":")
	if !tagged {
		tag = DefaultTag
	}
	name = strings.ToLower(name)
	if name != "" && !namePattern.MatchString(name) {
		return "", "",
			berth.Invalid(at,
				"Invalid '%s': '%s' is not the name of a template. Expected letters, digits, '-', '_' and '.'.", at,
				rule.Clip(name))
	}
	if !tagPattern.MatchString(tag) {
		return "", "", berth.Invalid(at, "Invalid '%s': '%s' is not a tag.", at, rule.Clip(tag))
	}
	return name, tag, nil
}

// NotFound returns the error for the client about a template that a project does not have.
func NotFound(ref string) error {
	return berth.Errorf(berth.CodeNotFound, "Template '%s' not found.", rule.Clip(ref))
}

// decodeInto decodes the body of an object.
func decodeInto[T any](o *store.Object) (*T, error) {
	out := new(T)
	if err := json.Unmarshal(o.Body, out); err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", o.Kind, o.ID, err)
	}
	return out, nil
}

// ServerTemplate returns the template of this server that a template of E2B's API names. It has one tag, the default.
func ServerTemplate(ref string) (string, error) {
	name, tag, tagged := strings.Cut(ref, ":")
	switch {
	case name == "sha256":
		return ref, nil
	case tagged && tag != DefaultTag:
		return "", noTag(name, tag)
	case name == "base" || name == "code-interpreter-v1":
		return "", nil // the server's default
	}
	return name, nil
}

// IsDefault reports whether a template of E2B's API names the server's default one.
func IsDefault(ref string) bool {
	name, err := ServerTemplate(ref)
	return err == nil && name == ""
}

func noTag(name, tag string) error {
	return berth.Errorf(berth.CodeNotFound, "Template '%s' has no build with the tag '%s'.", rule.Clip(name),
		rule.Clip(tag))
}

// rfc3339 formats Unix milliseconds.
func rfc3339(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
