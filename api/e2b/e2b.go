// Package e2b serves E2B's API, for E2B's own clients: a sandbox is a container.
//
// Clients use two sets of requests. Those of the control plane create, list and end sandboxes with
// an API key; they are routes of the API. Those of the data plane use one sandbox, which a header or
// the signature of a URL names, with the sandbox's own access token; Data serves them.
package e2b

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/preview"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/secrets"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/webhook"
)

// envdVersion is the version of envd whose features the guest has. Clients check it.
const envdVersion = "0.6.4"

// Options are what the door needs.
type Options struct {
	Containers *container.Service
	// deletes a container of any server; nil: Containers.Delete
	Remove    func(context.Context, berth.ProjectID, berth.ContainerID) error
	Snapshots *snapshot.Service // of the containers
	Files     *files.Service    // for files of template builds
	Volumes   *volume.Service   // nil: the driver does not support volumes
	Secrets   *secrets.Service  // nil stores none
	Images    Images            // nil pulls no images
	Builds    BuildLimits
	Server    string            // this server's id, which survives a restart
	Placement cluster.Placement // default: cluster.Solo
	Memory    bool              // whether the driver can store the memory of containers
	MaxUpload int64             // bytes of the files of a step of a build; 0 means the limit of files
	Objects   store.Objects
	Webhooks  *webhook.Service // nil sends no events
	Secret    [32]byte         // from which access tokens are made
	MaxIdle   time.Duration    // the longest that a container may be idle
	CPU       float64          // cores of a container
	Disk      int64            // bytes that a container may write
	// parent domain of the host names of ports; empty serves them below localhost
	Domain string
	Keys   store.Keys                                   // keys of the API, which no sandbox may see
	Check  func(context.Context, berth.ProjectID) error // refuses archived projects
	Log    *slog.Logger
	Now    func() time.Time
}

// A Door serves sandboxes. It is safe for concurrent use.
type Door struct {
	Options

	proxy  *preview.Proxy // to ports
	builds *builds
	life   context.Context // ends when the server stops, which ends builds
	stop   context.CancelCauseFunc

	mu     sync.Mutex
	live   map[berth.ContainerID]live
	loaded time.Time // when live was read from the store
	// receives a value when an earlier deadline was set, or a container has ended
	changed chan struct{}
	ended   map[berth.ContainerID]berth.ProjectID // sandboxes whose containers have ended

	keyring     keyring
	discovery   discovery
	executions  executions
	connections connections
}

// live is what the data plane and the deadlines need of a sandbox.
type live struct {
	project  berth.ProjectID
	deadline int64     // Unix seconds; never if it is paused
	at       time.Time // when it was set
	ports    ports
	user     string // of commands that name none; empty is the guest's
	dir      string // of commands that name none; empty is the user's home
}

// New returns a door. Run must run for sandboxes to end at their deadlines; when it ends, so do the
// builds of templates.
func New(opts Options) *Door {
	life, stop := context.WithCancelCause(context.Background())
	opts.Builds = opts.Builds.withDefaults()
	if opts.Placement == nil {
		opts.Placement = cluster.Solo{}
	}
	if opts.Remove == nil {
		opts.Remove = opts.Containers.Delete
	}
	d := &Door{Options: opts, builds: newBuilds(opts.Builds), life: life, stop: stop, proxy: preview.New(opts.Log),
		live: map[berth.ContainerID]live{}, changed: make(chan struct{}, 1),
		discovery: newDiscovery(), ended: map[berth.ContainerID]berth.ProjectID{}}
	opts.Containers.OnEnded(d.containerEnded)
	return d
}

// Routes returns the routes of the control plane.
func (d *Door) Routes() []exchange.Route {
	const noBody = exchange.StoresNothing | exchange.StoresLittle
	routes := []exchange.Route{
		exchange.On("POST /sandboxes", d.createOld),
		exchange.On("POST /v2/sandboxes", d.create),
		exchange.On("GET /sandboxes", d.list, exchange.ReadsQuery),
		exchange.On("GET /v2/sandboxes", d.list, exchange.ReadsQuery),
		exchange.On("GET /sandboxes/{sandbox}", d.get),
		exchange.On("DELETE /sandboxes/{sandbox}", d.kill),
		exchange.On("GET /sandboxes/{sandbox}/metrics", d.metrics, exchange.ReadsQuery),
		exchange.On("POST /sandboxes/{sandbox}/timeout", d.setTimeout, noBody),
		exchange.On("PUT /sandboxes/{sandbox}/network", d.setNetwork, exchange.StoresNothing),
		exchange.On("POST /sandboxes/{sandbox}/refreshes", d.refresh, noBody),
		exchange.On("POST /sandboxes/{sandbox}/pause", d.pause, noBody),
		exchange.On("POST /sandboxes/{sandbox}/resume", d.connect, noBody),
		exchange.On("POST /sandboxes/{sandbox}/connect", d.connect, noBody),
		exchange.On("POST /v2/sandboxes/{sandbox}/connect", d.connect, noBody),
		exchange.On("POST /sandboxes/{sandbox}/snapshots", d.snapshot),
		exchange.On("POST /sandboxes/{sandbox}/fork", d.fork),
		exchange.On("GET /sandboxes/metrics", d.allMetrics, exchange.ReadsQuery),
		exchange.On("GET /sandboxes/{sandbox}/logs", d.logs, exchange.ReadsQuery),
		exchange.On("GET /v2/sandboxes/{sandbox}/logs", d.logs, exchange.ReadsQuery),
		exchange.On("GET /snapshots", d.listSnapshots, exchange.ReadsQuery),

		exchange.On("GET /events/sandboxes", d.listEvents, exchange.ReadsQuery),
		exchange.On("GET /events/sandboxes/{sandbox}", d.listSandboxEvents, exchange.ReadsQuery),
		exchange.On("POST /events/webhooks", d.createWebhook),
		exchange.On("GET /events/webhooks", d.listWebhooks),
		exchange.On("GET /events/webhooks/{webhook}", d.getWebhook),
		exchange.On("PATCH /events/webhooks/{webhook}", d.patchWebhook, exchange.StoresNothing),
		exchange.On("DELETE /events/webhooks/{webhook}", d.deleteWebhook),

		exchange.On("POST /secrets", d.createSecret),
		exchange.On("GET /secrets", d.listSecrets, exchange.ReadsQuery),
		exchange.On("GET /secrets/{secret}", d.getSecret),
		exchange.On("POST /secrets/{secret}", d.updateSecret),
		exchange.On("DELETE /secrets/{secret}", d.deleteSecret),

		exchange.On("POST /volumes", d.createVolume),
		exchange.On("GET /volumes", d.listVolumes),
		exchange.On("GET /volumes/{volume}", d.getVolume),
		exchange.On("DELETE /volumes/{volume}", d.deleteVolume),

		exchange.On("POST /v3/templates", d.createTemplate),
		exchange.On("POST /v2/templates", d.createTemplate),
		exchange.On("GET /v2/templates", d.listTemplates, exchange.ReadsQuery),
		exchange.On("GET /templates", d.listTemplates, exchange.ReadsQuery),
		exchange.On("GET /templates/{template}", d.getTemplate, exchange.ReadsQuery),
		exchange.On("PATCH /v2/templates/{template}", d.patchTemplate, exchange.StoresNothing),
		exchange.On("DELETE /templates/{template}", d.deleteTemplate),
		exchange.On("GET /templates/{template}/{part}", d.underTemplate, exchange.ReadsQuery),
		exchange.On("POST /templates/tags", d.assignTags),
		exchange.On("DELETE /templates/tags", d.removeTags),
		exchange.On("GET /templates/{template}/files/{hash}", d.uploadLink),
		exchange.On("POST /v2/templates/{template}/builds/{build}", d.startBuild),
		exchange.On("GET /templates/{template}/builds/{build}/status", d.buildStatus, exchange.ReadsQuery),
		exchange.On("GET /templates/{template}/builds/{build}/logs", d.buildLogs, exchange.ReadsQuery),
	}
	for i := range routes {
		routes[i].WriteError = writeError
		routes[i].Traits |= exchange.KeyInHeader
	}
	return routes
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
	return strings.TrimPrefix(string(id), berth.PrefixContainer)
}

// sandboxOf returns the container id of a request's path.
func sandboxOf(r *http.Request) berth.ContainerID { return idOf(r.PathValue("sandbox")) }

func notFound(id berth.ContainerID) error {
	return berth.Errorf(berth.CodeNotFound, "Sandbox '%s' not found.", nameOf(id))
}
