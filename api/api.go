// Package api is the HTTP door: routes, identity, decode, SSE, errors → status.
//
// It serves the paths of OpenAI's API that Berth has, for OpenAI's own clients,
// and below /v1/containers/{container}/guest the services of a container's guest.
// Every handler is three steps long: decode, call, encode. Package exchange has what all
// requests share; its table turns errors into answers.
package api

import (
	"context"
	"crypto/cipher"
	"log/slog"
	"net/http"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/assistants"
	"github.com/berth-run/berth/api/chat"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/preview"
	"github.com/berth-run/berth/api/socket"
	"github.com/berth-run/berth/bundle"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/internal/nofile"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/webhook"
)

// routes is the table of contents. To add an endpoint, add a line and write its
// handler in the file of its noun.
func (s *server) routes() []exchange.Route {
	const (
		asksModel     = exchange.AsksModel
		storesNothing = exchange.StoresNothing
		storesLittle  = exchange.StoresLittle
	)
	on, beta := exchange.On, assistants.Beta
	return []exchange.Route{
		on("POST /v1/responses", s.createResponse, asksModel, storesLittle, exchange.NamesResponse),
		on("GET /v1/responses", s.socket.Connect),
		on("POST /v1/responses/input_tokens", s.countInputTokens, storesNothing, storesLittle),
		on("POST /v1/responses/compact", s.compactResponse, asksModel, storesNothing, storesLittle),
		on("GET /v1/responses/{response}", s.getResponse),
		on("DELETE /v1/responses/{response}", s.deleteResponse),
		on("POST /v1/responses/{response}/cancel", s.cancelResponse, storesNothing, storesLittle),
		on("GET /v1/responses/{response}/bundle", s.exportBundle),
		on("POST /v1/responses/{response}/replay", s.replayResponse, asksModel),
		on("POST /v1/bundles", s.importBundle, exchange.StoresAsItComes),
		on("GET /v1/responses/{response}/input_items", s.listInputItems),

		on("POST /v1/conversations", s.createConversation),
		on("GET /v1/conversations/{conversation}", s.getConversation),
		on("POST /v1/conversations/{conversation}", s.updateConversation),
		on("DELETE /v1/conversations/{conversation}", s.deleteConversation),
		on("POST /v1/conversations/{conversation}/items", s.createConversationItems),
		on("GET /v1/conversations/{conversation}/items", s.listConversationItems),
		on("GET /v1/conversations/{conversation}/items/{item}", s.getConversationItem),
		on("DELETE /v1/conversations/{conversation}/items/{item}", s.deleteConversationItem),

		on("POST /v1/chat/completions", s.chat.Create, asksModel, storesLittle),
		on("GET /v1/chat/completions", s.chat.List),
		on("GET /v1/chat/completions/{completion}", s.chat.Get),
		on("POST /v1/chat/completions/{completion}", s.chat.Update),
		on("DELETE /v1/chat/completions/{completion}", s.chat.Delete),
		on("GET /v1/chat/completions/{completion}/messages", s.chat.ListMessages),

		on("POST /v1/files", s.createFile),
		on("GET /v1/files", s.listFiles),
		on("GET /v1/files/{file}", s.getFile),
		on("GET /v1/files/{file}/content", s.getFileContent),
		on("DELETE /v1/files/{file}", s.deleteFile),

		on("POST /v1/containers", s.createContainer),
		on("GET /v1/containers", s.listContainers),
		on("GET /v1/containers/{container}", s.getContainer),
		on("DELETE /v1/containers/{container}", s.deleteContainer),
		on("GET /v1/containers/{container}/audit", s.auditContainer),
		on("POST /v1/containers/{container}/files", s.createContainerFile),
		on("GET /v1/containers/{container}/files", s.listContainerFiles),
		on("GET /v1/containers/{container}/watch", s.watchContainerFiles),
		on("GET /v1/containers/{container}/archive", s.archiveContainerFiles),
		on("GET /v1/containers/{container}/files/{file}", s.getContainerFile),
		on("GET /v1/containers/{container}/files/{file}/content", s.getContainerFileContent),
		on("DELETE /v1/containers/{container}/files/{file}", s.deleteContainerFile),
		on("POST /v1/containers/{container}/snapshots", s.createSnapshot),
		on("POST /v1/containers/{container}/fork", s.forkContainer),
		on("POST /v1/containers/{container}/pause", s.pauseContainer, storesNothing, storesLittle),
		on("POST /v1/containers/{container}/resume", s.resumeContainer, storesNothing, storesLittle),
		on("/v1/containers/{container}/guest/{path...}", s.guest, exchange.ThroughContainer),
		on("GET /v1/containers/{container}/logs", s.listLogs),
		on("GET /v1/containers/{container}/stats", s.containerStats),
		on("GET /v1/containers/{container}/ports/{port}", s.ports.Connect),
		on("POST /v1/containers/{container}/ports/{port}", s.ports.CreateLink, storesNothing, storesLittle),
		on("/v1/containers/{container}/ports/{port}/{path...}", s.ports.Port, exchange.ThroughContainer),

		on("POST /v1/volumes", s.createVolume),
		on("GET /v1/volumes", s.listVolumes),
		on("GET /v1/volumes/{volume}", s.getVolume),
		on("DELETE /v1/volumes/{volume}", s.deleteVolume),
		on("GET /v1/snapshots", s.listSnapshots),
		on("GET /v1/snapshots/{snapshot}", s.getSnapshot),
		on("DELETE /v1/snapshots/{snapshot}", s.deleteSnapshot),

		on("GET /v1/templates", s.listTemplates),
		on("GET /v1/templates/{template}", s.getTemplate),

		on("POST /v1/prompts", s.createPrompt),
		on("GET /v1/prompts", s.listPrompts),
		on("GET /v1/prompts/{prompt}", s.getPrompt),
		on("POST /v1/prompts/{prompt}", s.updatePrompt),
		on("DELETE /v1/prompts/{prompt}", s.deletePrompt),
		on("GET /v1/prompts/{prompt}/versions", s.listPromptVersions),

		on("POST /v1/assistants", beta(s.assistants.CreateAssistant)),
		on("GET /v1/assistants", beta(s.assistants.ListAssistants)),
		on("GET /v1/assistants/{assistant}", beta(s.assistants.GetAssistant)),
		on("POST /v1/assistants/{assistant}", beta(s.assistants.UpdateAssistant)),
		on("DELETE /v1/assistants/{assistant}", beta(s.assistants.DeleteAssistant)),
		on("POST /v1/threads", beta(s.assistants.CreateThread)),
		on("POST /v1/threads/runs", beta(s.assistants.CreateThreadAndRun), asksModel),
		on("GET /v1/threads/{thread}", beta(s.assistants.GetThread)),
		on("POST /v1/threads/{thread}", beta(s.assistants.UpdateThread)),
		on("DELETE /v1/threads/{thread}", beta(s.assistants.DeleteThread)),
		on("POST /v1/threads/{thread}/messages", beta(s.assistants.CreateMessage)),
		on("GET /v1/threads/{thread}/messages", beta(s.assistants.ListMessages)),
		on("GET /v1/threads/{thread}/messages/{message}", beta(s.assistants.GetMessage)),
		on("POST /v1/threads/{thread}/messages/{message}", beta(s.assistants.UpdateMessage)),
		on("DELETE /v1/threads/{thread}/messages/{message}", beta(s.assistants.DeleteMessage)),
		on("POST /v1/threads/{thread}/runs", beta(s.assistants.CreateRun), asksModel),
		on("GET /v1/threads/{thread}/runs", beta(s.assistants.ListRuns)),
		on("GET /v1/threads/{thread}/runs/{run}", beta(s.assistants.GetRun)),
		on("POST /v1/threads/{thread}/runs/{run}", beta(s.assistants.UpdateRun)),
		on("POST /v1/threads/{thread}/runs/{run}/cancel", beta(s.assistants.CancelRun), storesNothing, storesLittle),
		on("POST /v1/threads/{thread}/runs/{run}/submit_tool_outputs", beta(s.assistants.SubmitToolOutputs), asksModel),
		on("GET /v1/threads/{thread}/runs/{run}/steps", beta(s.assistants.ListRunSteps)),
		on("GET /v1/threads/{thread}/runs/{run}/steps/{step}", beta(s.assistants.GetRunStep)),

		on("POST /v1/traces/ingest", s.ingestTraces, storesNothing),

		on("POST /v1/webhook_endpoints", s.createWebhookEndpoint),
		on("GET /v1/webhook_endpoints", s.listWebhookEndpoints),
		on("GET /v1/webhook_endpoints/{webhook}", s.getWebhookEndpoint),
		on("POST /v1/webhook_endpoints/{webhook}", s.updateWebhookEndpoint),
		on("DELETE /v1/webhook_endpoints/{webhook}", s.deleteWebhookEndpoint),
		on("POST /v1/webhook_endpoints/{webhook}/rotate_secret", s.rotateWebhookSecret, storesNothing),
		on("POST /v1/webhook_endpoints/{webhook}/test", s.testWebhook),
		on("GET /v1/webhook_event_types", s.listWebhookEventTypes),

		on("GET /v1/organization/costs", s.costs),
		on("GET /v1/organization/usage/completions", s.completionsUsage),
		on("GET /v1/organization/usage/code_interpreter_sessions", s.sessionsUsage),

		on("GET /v1/upstreams", s.upstreams),
		on("GET /v1/models", s.listModels),
		on("GET /v1/models/{model...}", s.getModel),
		on("DELETE /v1/models/{model...}", s.deleteModel),
	}
}

// Options are a server's parts. Those without a default are needed.
type Options struct {
	Engine     *engine.Engine
	Journal    *journal.Journal // of the engine
	Responses  store.Responses
	Objects    store.Objects
	Keys       store.Keys
	Closed     bool // there were keys when the server started: it never serves without one
	Files      *files.Service
	Containers *container.Service
	Snapshots  *snapshot.Service // of the keeper
	Volumes    *volume.Service   // of the keeper; nil is none
	Templates  Templates         // default none
	Bundles    *bundle.Service
	Models     Models
	Upstreams  func() []berth.Upstream // of the models; default none
	Quota      *project.Quota          // of the engine; default none
	Usages     store.Usages
	Currency   string // of costs; default usd
	Webhooks   *webhook.Service
	Space      *diskspace.Guard  // of the volumes of the state; default none
	Observer   exchange.Observer // default none
	Seal       cipher.AEAD       // for links to ports; as seal.New returns it
	Log        *slog.Logger
	Version    string // told by /healthz

	// Ready returns what /readyz reports. Default: nothing is checked.
	Ready func(context.Context) []ReadyCheck

	// PreviewDomain is a domain below which each port of a container has a host of its
	// own: PORT-CONTAINER.DOMAIN. Default: there are none.
	PreviewDomain string

	Memory exchange.Memory
	Limits exchange.Limits

	SocketLife time.Duration // after which a socket takes no more events; default 60 min

	Now func() time.Time // by which runs of threads and links expire; default time.Now
}

// Models lists what may be asked for; *model.Router does.
type Models interface {
	Models(ctx context.Context) ([]berth.Model, error)
}

// server is the handler of all routes.
type server struct {
	Options
	ex         *exchange.Server
	assistants *assistants.Door
	ports      *preview.Door
	chat       *chat.Door
	socket     *socket.Door
}

// New returns the handler. It is safe for concurrent use and holds nothing that
// must be closed.
//
// Its http.Server must not limit the time of reading or writing a whole request:
// streams and uploads last as long as they need. Orderly ending is: close the
// engine, which leaves runs for the next start, then end the server's base
// context, which ends the streams that follow them.
func New(opts Options) http.Handler {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	ex := exchange.New(exchange.Options{Keys: opts.Keys, Closed: opts.Closed, Quota: opts.Quota, Space: opts.Space, Objects: opts.Objects,
		Observer: opts.Observer, Log: opts.Log, Memory: opts.Memory, Limits: opts.Limits, Secret: preview.LinkPath})
	s := &server{Options: opts, ex: ex}
	s.ports = preview.NewDoor(preview.Options{Exchange: ex, Containers: opts.Containers, Box: opts.Seal, Now: opts.Now, Domain: opts.PreviewDomain})
	s.assistants = assistants.NewDoor(assistants.New(assistants.Options{Objects: opts.Objects, Responses: opts.Responses, Engine: opts.Engine,
		Journal: opts.Journal, Files: opts.Files, Log: opts.Log, Now: opts.Now}))
	s.chat = chat.New(chat.Options{Engine: opts.Engine, Journal: opts.Journal, Objects: opts.Objects, Version: opts.Version})
	s.socket = socket.New(socket.Options{Exchange: ex, Journal: opts.Journal, Life: opts.SocketLife, Create: s.create})
	mux := http.NewServeMux()
	for _, rt := range s.routes() {
		mux.HandleFunc(rt.Pattern(), ex.Route(rt))
	}
	mux.HandleFunc(preview.LinkPath+"{link}/{path...}", s.ports.ShowLink)
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("/", exchange.Fallback(mux))
	return ex.Handler(func(x *exchange.Exchange, r *http.Request) {
		if !s.ports.AtHost(x, r) {
			mux.ServeHTTP(x, r)
		}
	})
}

// healthz answers that the process serves, also to a caller without a key. It fails when
// the process has no file descriptors left.
func (s *server) healthz(w http.ResponseWriter, _ *http.Request) {
	if err := nofile.Available(); err != nil {
		_ = exchange.WriteJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "the server has no file descriptors left", "version": s.Version})
		return
	}
	_ = exchange.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok", "version": s.Version})
}
