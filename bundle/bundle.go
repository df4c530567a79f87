// Package bundle carries a chain of responses with its container from server to
// server, as one file.
//
// The file is a tar: manifest.json, then what it names with digests, in its order.
// Identifiers in it are those of the server that it comes from; who reads it gets
// others.
package bundle

import (
	"context"
	"encoding/json"
	"regexp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/internal/ration"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/store"
)

// Format is what the manifest of a bundle says that it is.
const Format = "berth.session/1"

// ContentType is a bundle's.
const ContentType = "application/x-tar"

// Bounds on a bundle that is read.
const (
	maxManifest  = 4 << 20
	maxResponse  = 32 << 20
	maxResponses = 10_000
	maxDocuments = 2 << 30 // all responses together
	maxLayer     = 64 << 30

	// JSON values, which take much more memory than their text.
	maxManifestValues = 200_000
	maxResponseValues = 4_000_000
	maxPartValues     = 500_000 // of an event, the object or the input of a response
	maxDepth          = 512
)

// A Manifest is what a bundle has.
type Manifest struct {
	Format    string             `json:"format"`
	CreatedAt int64              `json:"created_at"`
	Server    string             `json:"server"`    // its version
	Responses []ManifestEntry    `json:"responses"` // the oldest first
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

// A ManifestFile is an uploaded file that the responses name.
type ManifestFile struct {
	ManifestEntry
	Filename string `json:"filename"`
	Purpose  string `json:"purpose"`
}

// A ManifestContainer is the container of the chain, and a snapshot of it: a layer,
// compressed with zstd. Without a Path its content was not there any more.
type ManifestContainer struct {
	ManifestEntry
	Template     string                 `json:"template"` // digest of what the layer lies above
	Layer        string                 `json:"layer"`    // its own digest, uncompressed
	MemoryLimit  string                 `json:"memory_limit"`
	ExpiresAfter berth.ExpiresAfter     `json:"expires_after"`
	Network      berth.NetworkPolicy    `json:"network_policy"`
	Files        []*berth.ContainerFile `json:"files,omitempty"` // that users put in
}

// A response is one of the chain, as a bundle has it.
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
	Templates        func(ctx context.Context, p berth.ProjectID, digest string) bool // whether a project's containers can start from it here
	// Quota returns an error for the client if a project may not store so many more
	// bytes; nil is no bound.
	Quota    func(ctx context.Context, p berth.ProjectID, bytes int64) error
	Decoding *ration.Pool // what is made of bundles; nil is no bound
	SpoolDir string       // for what must be whole before it is passed on; default os.TempDir()
	Version  string       // of this server
}

// A Service writes and reads bundles. It is safe for concurrent use. Errors that a
// client may see are *berth.Error.
type Service struct {
	opts Options
	one  chan struct{} // of the bundles that are written into the store
}

// New returns a carrier.
func New(opts Options) *Service { return &Service{opts, make(chan struct{}, 1)} }

// madeID is an identifier that a server has made; what else looks like one is a
// client's.
var madeID = regexp.MustCompile(`^([a-z]{1,8}[_-])[0-9a-f]{48}$`)
