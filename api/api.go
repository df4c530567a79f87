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
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/preview"
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
var routes = []route{
	{"POST", "/v1/responses", (*server).createResponse, exchange.AsksModel | exchange.StoresLittle | exchange.NamesResponse},
	{"GET", "/v1/responses", (*server).connectSocket, 0},
	{"POST", "/v1/responses/input_tokens", (*server).countInputTokens, exchange.StoresNothing | exchange.StoresLittle},
	{"POST", "/v1/responses/compact", (*server).compactResponse, exchange.AsksModel | exchange.StoresNothing | exchange.StoresLittle},
	{"GET", "/v1/responses/{response}", (*server).getResponse, 0},
	{"DELETE", "/v1/responses/{response}", (*server).deleteResponse, 0},
	{"POST", "/v1/responses/{response}/cancel", (*server).cancelResponse, exchange.StoresNothing | exchange.StoresLittle},
	{"GET", "/v1/responses/{response}/bundle", (*server).exportBundle, 0},
	{"POST", "/v1/responses/{response}/replay", (*server).replayResponse, exchange.AsksModel},
	{"POST", "/v1/bundles", (*server).importBundle, exchange.StoresAsItComes},
	{"GET", "/v1/responses/{response}/input_items", (*server).listInputItems, 0},

	{"POST", "/v1/conversations", (*server).createConversation, 0},
	{"GET", "/v1/conversations/{conversation}", (*server).getConversation, 0},
	{"POST", "/v1/conversations/{conversation}", (*server).updateConversation, 0},
	{"DELETE", "/v1/conversations/{conversation}", (*server).deleteConversation, 0},
	{"POST", "/v1/conversations/{conversation}/items", (*server).createConversationItems, 0},
	{"GET", "/v1/conversations/{conversation}/items", (*server).listConversationItems, 0},
	{"GET", "/v1/conversations/{conversation}/items/{item}", (*server).getConversationItem, 0},
	{"DELETE", "/v1/conversations/{conversation}/items/{item}", (*server).deleteConversationItem, 0},

	{"POST", "/v1/chat/completions", (*server).createCompletion, exchange.AsksModel | exchange.StoresLittle},
	{"GET", "/v1/chat/completions", (*server).listCompletions, 0},
	{"GET", "/v1/chat/completions/{completion}", (*server).getCompletion, 0},
	{"POST", "/v1/chat/completions/{completion}", (*server).updateCompletion, 0},
	{"DELETE", "/v1/chat/completions/{completion}", (*server).deleteCompletion, 0},
	{"GET", "/v1/chat/completions/{completion}/messages", (*server).listCompletionMessages, 0},

	{"POST", "/v1/files", (*server).createFile, 0},
	{"GET", "/v1/files", (*server).listFiles, 0},
	{"GET", "/v1/files/{file}", (*server).getFile, 0},
	{"GET", "/v1/files/{file}/content", (*server).getFileContent, 0},
	{"DELETE", "/v1/files/{file}", (*server).deleteFile, 0},

	{"POST", "/v1/containers", (*server).createContainer, 0},
	{"GET", "/v1/containers", (*server).listContainers, 0},
	{"GET", "/v1/containers/{container}", (*server).getContainer, 0},
	{"DELETE", "/v1/containers/{container}", (*server).deleteContainer, 0},
	{"GET", "/v1/containers/{container}/audit", (*server).auditContainer, 0},
	{"POST", "/v1/containers/{container}/files", (*server).createContainerFile, 0},
	{"GET", "/v1/containers/{container}/files", (*server).listContainerFiles, 0},
	{"GET", "/v1/containers/{container}/watch", (*server).watchContainerFiles, 0},
	{"GET", "/v1/containers/{container}/archive", (*server).archiveContainerFiles, 0},
	{"GET", "/v1/containers/{container}/files/{file}", (*server).getContainerFile, 0},
	{"GET", "/v1/containers/{container}/files/{file}/content", (*server).getContainerFileContent, 0},
	{"DELETE", "/v1/containers/{container}/files/{file}", (*server).deleteContainerFile, 0},
	{"POST", "/v1/containers/{container}/snapshots", (*server).createSnapshot, 0},
	{"POST", "/v1/containers/{container}/fork", (*server).forkContainer, 0},
	{"POST", "/v1/containers/{container}/pause", (*server).pauseContainer, exchange.StoresNothing | exchange.StoresLittle},
	{"POST", "/v1/containers/{container}/resume", (*server).resumeContainer, exchange.StoresNothing | exchange.StoresLittle},
	{"", "/v1/containers/{container}/guest/{path...}", (*server).guest, exchange.ThroughContainer},
	{"GET", "/v1/containers/{container}/logs", (*server).listLogs, 0},
	{"GET", "/v1/containers/{container}/stats", (*server).containerStats, 0},
	{"GET", "/v1/containers/{container}/ports/{port}", (*server).connectPort, 0},
	{"POST", "/v1/containers/{container}/ports/{port}", (*server).createLink, exchange.StoresNothing | exchange.StoresLittle},
	{"", "/v1/containers/{container}/ports/{port}/{path...}", (*server).port, exchange.ThroughContainer},

	{"POST", "/v1/volumes", (*server).createVolume, 0},
	{"GET", "/v1/volumes", (*server).listVolumes, 0},
	{"GET", "/v1/volumes/{volume}", (*server).getVolume, 0},
	{"DELETE", "/v1/volumes/{volume}", (*server).deleteVolume, 0},
	{"GET", "/v1/snapshots", (*server).listSnapshots, 0},
	{"GET", "/v1/snapshots/{snapshot}", (*server).getSnapshot, 0},
	{"DELETE", "/v1/snapshots/{snapshot}", (*server).deleteSnapshot, 0},

	{"GET", "/v1/templates", (*server).listTemplates, 0},
	{"GET", "/v1/templates/{template}", (*server).getTemplate, 0},

	{"POST", "/v1/prompts", (*server).createPrompt, 0},
	{"GET", "/v1/prompts", (*server).listPrompts, 0},
	{"GET", "/v1/prompts/{prompt}", (*server).getPrompt, 0},
	{"POST", "/v1/prompts/{prompt}", (*server).updatePrompt, 0},
	{"DELETE", "/v1/prompts/{prompt}", (*server).deletePrompt, 0},
	{"GET", "/v1/prompts/{prompt}/versions", (*server).listPromptVersions, 0},

	{"POST", "/v1/assistants", beta((*server).createAssistant), 0},
	{"GET", "/v1/assistants", beta((*server).listAssistants), 0},
	{"GET", "/v1/assistants/{assistant}", beta((*server).getAssistant), 0},
	{"POST", "/v1/assistants/{assistant}", beta((*server).updateAssistant), 0},
	{"DELETE", "/v1/assistants/{assistant}", beta((*server).deleteAssistant), 0},
	{"POST", "/v1/threads", beta((*server).createThread), 0},
	{"POST", "/v1/threads/runs", beta((*server).createThreadAndRun), exchange.AsksModel},
	{"GET", "/v1/threads/{thread}", beta((*server).getThread), 0},
	{"POST", "/v1/threads/{thread}", beta((*server).updateThread), 0},
	{"DELETE", "/v1/threads/{thread}", beta((*server).deleteThread), 0},
	{"POST", "/v1/threads/{thread}/messages", beta((*server).createMessage), 0},
	{"GET", "/v1/threads/{thread}/messages", beta((*server).listMessages), 0},
	{"GET", "/v1/threads/{thread}/messages/{message}", beta((*server).getMessage), 0},
	{"POST", "/v1/threads/{thread}/messages/{message}", beta((*server).updateMessage), 0},
	{"DELETE", "/v1/threads/{thread}/messages/{message}", beta((*server).deleteMessage), 0},
	{"POST", "/v1/threads/{thread}/runs", beta((*server).createRun), exchange.AsksModel},
	{"GET", "/v1/threads/{thread}/runs", beta((*server).listRuns), 0},
	{"GET", "/v1/threads/{thread}/runs/{run}", beta((*server).getRun), 0},
	{"POST", "/v1/threads/{thread}/runs/{run}", beta((*server).updateRun), 0},
	{"POST", "/v1/threads/{thread}/runs/{run}/cancel", beta((*server).cancelRun), exchange.StoresNothing | exchange.StoresLittle},
	{"POST", "/v1/threads/{thread}/runs/{run}/submit_tool_outputs", beta((*server).submitToolOutputs), exchange.AsksModel},
	{"GET", "/v1/threads/{thread}/runs/{run}/steps", beta((*server).listRunSteps), 0},
	{"GET", "/v1/threads/{thread}/runs/{run}/steps/{step}", beta((*server).getRunStep), 0},

	{"POST", "/v1/traces/ingest", (*server).ingestTraces, exchange.StoresNothing},

	{"POST", "/v1/webhook_endpoints", (*server).createWebhookEndpoint, 0},
	{"GET", "/v1/webhook_endpoints", (*server).listWebhookEndpoints, 0},
	{"GET", "/v1/webhook_endpoints/{webhook}", (*server).getWebhookEndpoint, 0},
	{"POST", "/v1/webhook_endpoints/{webhook}", (*server).updateWebhookEndpoint, 0},
	{"DELETE", "/v1/webhook_endpoints/{webhook}", (*server).deleteWebhookEndpoint, 0},
	{"POST", "/v1/webhook_endpoints/{webhook}/rotate_secret", (*server).rotateWebhookSecret, exchange.StoresNothing},
	{"POST", "/v1/webhook_endpoints/{webhook}/test", (*server).testWebhook, 0},
	{"GET", "/v1/webhook_event_types", (*server).listWebhookEventTypes, 0},

	{"GET", "/v1/organization/costs", (*server).costs, 0},
	{"GET", "/v1/organization/usage/completions", (*server).completionsUsage, 0},
	{"GET", "/v1/organization/usage/code_interpreter_sessions", (*server).sessionsUsage, 0},

	{"GET", "/v1/upstreams", (*server).upstreams, 0},
	{"GET", "/v1/models", (*server).listModels, 0},
	{"GET", "/v1/models/{model...}", (*server).getModel, 0},
	{"DELETE", "/v1/models/{model...}", (*server).deleteModel, 0},
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
	assistants *assistants.Service
	previews   *preview.Proxy
}

// A handler is an exchange.Handler of a server.
type handler func(s *server, x *exchange.Exchange, r *http.Request, c berth.Caller) error

// A route is one line of the table of contents. Method "" is any.
type route struct {
	method, path string
	handle       handler
	traits       exchange.Traits
}

func (rt route) of(s *server) exchange.Route {
	return exchange.Route{Method: rt.method, Path: rt.path, Traits: rt.traits,
		Handle: func(x *exchange.Exchange, r *http.Request, c berth.Caller) error { return rt.handle(s, x, r, c) }}
}

// New returns the handler. It is safe for concurrent use and holds nothing that
// must be closed.
//
// Its http.Server must not limit the time of reading or writing a whole request:
// streams and uploads last as long as they need. Orderly ending is: close the
// engine, which leaves runs for the next start, then end the server's base
// context, which ends the streams that follow them.
func New(opts Options) http.Handler {
	if opts.SocketLife == 0 {
		opts.SocketLife = time.Hour
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	ex := exchange.New(exchange.Options{Keys: opts.Keys, Closed: opts.Closed, Quota: opts.Quota, Space: opts.Space, Objects: opts.Objects,
		Observer: opts.Observer, Log: opts.Log, Memory: opts.Memory, Limits: opts.Limits, Secret: linkPath})
	s := &server{Options: opts, ex: ex}
	s.previews = preview.New(opts.Log)
	s.assistants = assistants.New(assistants.Options{Objects: opts.Objects, Responses: opts.Responses, Engine: opts.Engine,
		Journal: opts.Journal, Files: opts.Files, Log: opts.Log, Now: opts.Now})
	mux := http.NewServeMux()
	for _, rt := range routes {
		served := rt.of(s)
		mux.HandleFunc(served.Pattern(), ex.Route(served))
	}
	mux.HandleFunc(linkPath+"{link}/{path...}", s.showLink)
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("/", exchange.Fallback(mux))
	return ex.Handler(func(x *exchange.Exchange, r *http.Request) {
		if !s.atHost(x, r) {
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
