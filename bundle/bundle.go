// Package bundle exports a chain of responses with its container as one file, imports such
// files, and replays chains.
//
// The file is a tar: manifest.json, then the files that it lists with their digests, in
// the same order. Its identifiers are those of the exporting server. An import replaces
// them with new ones.
package bundle

import (
	"context"
	"encoding/json"
	"regexp"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/internal/ration"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/store"
)

// Format is the format in the manifest of a bundle.
const Format = "berth.session/1"

// ContentType is the media type of a bundle.
const ContentType = "application/x-tar"

// Limits of an imported bundle.
const (
	maxManifest  = 4 << 20
	maxResponse  = 32 << 20
	maxResponses = 10_000
	maxDocuments = 2 << 30 // all responses together
	maxLayer     = 64 << 30

	// Numbers of JSON values, which take much more memory than their text.
	maxManifestValues = 200_000
	maxResponseValues = 4_000_000
	maxPartValues     = 500_000 // in an event, or in the body or the input of a response
	maxDepth          = 512
)

// A Manifest lists the content of a bundle.
type Manifest struct {
	Format    string             `json:"format"`
	CreatedAt int64              `json:"created_at"` // Unix seconds
	Server    string             `json:"server"`     // version of the exporting server
	Responses []ManifestEntry    `json:"responses"`  // the oldest first
	Files     []ManifestFile     `json:"files,omitempty"`
	Container *ManifestContainer `json:"container,omitempty"`
}

// A ManifestEntry is a file of the bundle.
type ManifestEntry struct {
	Path   string `json:"path"`
	ID     string `json:"id"`
	Digest string `json:"digest"` // sha256:…
	Bytes  int64  `json:"bytes"`
}

// A ManifestFile is an uploaded file that the responses refer to.
type ManifestFile struct {
	ManifestEntry
	Filename string `json:"filename"`
	Purpose  string `json:"purpose"`
}

// A ManifestContainer is the container of the chain with a snapshot, which is a layer
// compressed with zstd. Path is empty if the container had no content any more.
type ManifestContainer struct {
	ManifestEntry
	Template     string                 `json:"template"` // digest of the template below the layer
	Layer        string                 `json:"layer"`    // digest of the uncompressed layer
	MemoryLimit  string                 `json:"memory_limit"`
	ExpiresAfter berth.ExpiresAfter     `json:"expires_after"`
	Network      berth.NetworkPolicy    `json:"network_policy"`
	Files        []*berth.ContainerFile `json:"files,omitempty"`  // of users
	Skills       []berth.ContainerSkill `json:"skills,omitempty"` // whose files are in the layer
}

// A response is the document of one response in a bundle.
type response struct {
	Body    json.RawMessage   `json:"body"`
	Request json.RawMessage   `json:"request"`
	Input   []berth.Item      `json:"input"`
	Events  []json.RawMessage `json:"events"`
}

// Options are a Service's parts.
type Options struct {
	Responses        store.Responses
	Containers       store.Containers
	Objects          store.Objects
	Engine           *engine.Engine
	Journal          *journal.Journal // of the engine
	ContainerService *container.Service
	Snapshots        *snapshot.Service // nil: containers are left out
	Files            *files.Service
	// Templates reports whether containers of a project can start from a template here.
	Templates func(ctx context.Context, p berth.ProjectID, digest string) bool
	// Quota returns an error for the client if a project may not store this number of
	// further bytes; nil means no limit.
	Quota    func(ctx context.Context, p berth.ProjectID, bytes int64) error
	Decoding *ration.Pool // bounds the memory for decoded bundles; nil means no limit
	SpoolDir string       // of temporary files; default os.TempDir()
	// of an import, after which Recover takes it for interrupted; default 0: Recover runs before imports only
	Longest time.Duration
	Version string // of this server
}

// A Service exports, imports and replays chains. It is safe for concurrent use. Errors for
// the client are *berth.Error.
type Service struct {
	opts   Options
	saving chan struct{} // held by the import that writes into the store
}

// New returns a Service.
func New(opts Options) *Service { return &Service{opts, make(chan struct{}, 1)} }

// madeID matches identifiers that a server has made. Others may be a client's text.
var madeID = regexp.MustCompile(`^([a-z]{1,8}[_-])[0-9a-f]{48}$`)
