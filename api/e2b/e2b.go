// Package e2b serves E2B's API, for E2B's own clients: a sandbox is a container.
//
// Clients use two sets of requests. Those of the control plane create, list and end sandboxes with
// an API key. Those of the data plane use one sandbox, which a host, a header or the signature of a URL names, with the
// sandbox's own access token.
package e2b

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/preview"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/build"
	"github.com/berth-run/berth/container/deadline"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/secrets"
	"github.com/berth-run/berth/webhook"
)

// envdVersion is the version of envd whose features the guest has. Clients check it.
const envdVersion = "0.6.4"

// Options are what the door needs.
type Options struct {
	Containers *container.Service
	Deadlines  *deadline.Service // of the containers
	Files      *files.Service    // for files of template builds
	Volumes    *volume.Service   // nil: the driver does not support volumes
	Secrets    *secrets.Service  // nil stores none
	Builds     *build.Service    // of templates
	Placement  cluster.Placement // default: cluster.Solo
	Memory     bool              // whether the driver can store the memory of containers
	MaxUpload  int64             // bytes of the files of a step of a build; 0 means the limit of files
	Webhooks   *webhook.Service  // nil sends no events
	Secret     func() [32]byte   // the key with which access tokens are made now
	MaxIdle    time.Duration     // the longest that a container may be idle
	CPU        float64           // cores of a container
	Disk       int64             // bytes that a container may write
	// parent domain of the host names of ports; empty serves them below localhost
	Domain string
	Keys   exchange.Keys // keys of the API, which no sandbox may see
	Log    *slog.Logger
	Now    func() time.Time
}

// A Door serves sandboxes. It is safe for concurrent use.
type Door struct {
	sandboxes sandboxes
	events    events
	secrets   secretStore
	volumes   volumes
	templates templates
	data      dataPlane
}

// New returns a door.
func New(o Options) *Door {
	if o.Placement == nil {
		o.Placement = cluster.Solo{}
	}
	tokens := &tokens{secret: o.Secret, keyring: keyring{keys: o.Keys, now: o.Now}}
	meter := &meter{o.Containers, o.CPU, o.Now}
	return &Door{
		sandboxes: sandboxes{containers: o.Containers, deadlines: o.Deadlines, builds: o.Builds, tokens: tokens,
			meter: meter, memory: o.Memory, maxIdle: o.MaxIdle, cpu: o.CPU, disk: o.Disk, domain: o.Domain, now: o.Now},
		events:  events{o.Deadlines, o.Webhooks},
		secrets: secretStore{o.Secrets},
		volumes: volumes{o.Volumes, tokens},
		templates: templates{builds: o.Builds, files: o.Files, tokens: tokens, maxUpload: o.MaxUpload, cpu: o.CPU,
			disk: o.Disk, now: o.Now},
		data: dataPlane{containers: o.Containers, deadlines: o.Deadlines, placement: o.Placement, tokens: tokens,
			interpreters: &interpreters{containers: o.Containers, deadlines: o.Deadlines, tokens: tokens}, meter: meter,
			proxy: preview.New(o.Log), domain: o.Domain, keys: o.Keys, log: o.Log, now: o.Now},
	}
}

// writeError answers with an error in E2B's form.
func writeError(x *exchange.Exchange, status int, e exchange.Error) {
	_ = x.JSON(status, failure{Code: status, Message: e.Message})
}

// A failure is an error in E2B's form.
type failure struct {
	Code    int    `json:"code"` // the HTTP status
	Message string `json:"message"`
}

// idOf returns the id of the container of a sandbox. Ids of sandboxes are parts of host names, so
// they have no prefix with an underscore.
//
// Former clients write SANDBOX-CLIENT. The second part has no meaning.
func idOf(sandbox string) berth.ContainerID {
	sandbox, _, _ = strings.Cut(sandbox, "-")
	return berth.ContainerID(berth.PrefixContainer + sandbox)
}

// nameOf returns the id of the sandbox of a container.
func nameOf(id berth.ContainerID) string {
	return deadline.Name(id)
}

// sandboxOf returns the container id of a request's path.
func sandboxOf(r *http.Request) berth.ContainerID { return idOf(r.PathValue("sandbox")) }
