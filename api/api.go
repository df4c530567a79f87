// Package api is the HTTP door: routes, identity, decode, SSE, errors → status.
//
// It serves the paths of OpenAI's API that Berth has, for OpenAI's own clients,
// and below /v1/containers/{container}/guest the services of a container's guest.
// Every handler is three steps long: decode, call, encode. Its errors become
// answers in one table (errors.go).
package api

import (
	"context"
	"crypto/cipher"
	"log/slog"
	"net/http"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/assistants"
	"github.com/berth-run/berth/api/preview"
	"github.com/berth-run/berth/bundle"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/internal/nofile"
	"github.com/berth-run/berth/internal/ration"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/webhook"
)

// routes is the table of contents. To add an endpoint, add a line and write its
// handler in the file of its noun.
var routes = []route{
	{"POST", "/v1/responses", (*server).createResponse},
	{"GET", "/v1/responses", (*server).connectSocket},
	{"POST", "/v1/responses/input_tokens", (*server).countInputTokens},
	{"POST", "/v1/responses/compact", (*server).compactResponse},
	{"GET", "/v1/responses/{response}", (*server).getResponse},
	{"DELETE", "/v1/responses/{response}", (*server).deleteResponse},
	{"POST", "/v1/responses/{response}/cancel", (*server).cancelResponse},
	{"GET", "/v1/responses/{response}/bundle", (*server).exportBundle},
	{"POST", "/v1/responses/{response}/replay", (*server).replayResponse},
	{"POST", "/v1/bundles", (*server).importBundle},
	{"GET", "/v1/responses/{response}/input_items", (*server).listInputItems},

	{"POST", "/v1/conversations", (*server).createConversation},
	{"GET", "/v1/conversations/{conversation}", (*server).getConversation},
	{"POST", "/v1/conversations/{conversation}", (*server).updateConversation},
	{"DELETE", "/v1/conversations/{conversation}", (*server).deleteConversation},
	{"POST", "/v1/conversations/{conversation}/items", (*server).createConversationItems},
	{"GET", "/v1/conversations/{conversation}/items", (*server).listConversationItems},
	{"GET", "/v1/conversations/{conversation}/items/{item}", (*server).getConversationItem},
	{"DELETE", "/v1/conversations/{conversation}/items/{item}", (*server).deleteConversationItem},

	{"POST", "/v1/chat/completions", (*server).createCompletion},
	{"GET", "/v1/chat/completions", (*server).listCompletions},
	{"GET", "/v1/chat/completions/{completion}", (*server).getCompletion},
	{"POST", "/v1/chat/completions/{completion}", (*server).updateCompletion},
	{"DELETE", "/v1/chat/completions/{completion}", (*server).deleteCompletion},
	{"GET", "/v1/chat/completions/{completion}/messages", (*server).listCompletionMessages},

	{"POST", "/v1/files", (*server).createFile},
	{"GET", "/v1/files", (*server).listFiles},
	{"GET", "/v1/files/{file}", (*server).getFile},
	{"GET", "/v1/files/{file}/content", (*server).getFileContent},
	{"DELETE", "/v1/files/{file}", (*server).deleteFile},

	{"POST", "/v1/containers", (*server).createContainer},
	{"GET", "/v1/containers", (*server).listContainers},
	{"GET", "/v1/containers/{container}", (*server).getContainer},
	{"DELETE", "/v1/containers/{container}", (*server).deleteContainer},
	{"GET", "/v1/containers/{container}/audit", (*server).auditContainer},
	{"POST", "/v1/containers/{container}/files", (*server).createContainerFile},
	{"GET", "/v1/containers/{container}/files", (*server).listContainerFiles},
	{"GET", "/v1/containers/{container}/watch", (*server).watchContainerFiles},
	{"GET", "/v1/containers/{container}/archive", (*server).archiveContainerFiles},
	{"GET", "/v1/containers/{container}/files/{file}", (*server).getContainerFile},
	{"GET", "/v1/containers/{container}/files/{file}/content", (*server).getContainerFileContent},
	{"DELETE", "/v1/containers/{container}/files/{file}", (*server).deleteContainerFile},
	{"POST", "/v1/containers/{container}/snapshots", (*server).createSnapshot},
	{"POST", "/v1/containers/{container}/fork", (*server).forkContainer},
	{"POST", "/v1/containers/{container}/pause", (*server).pauseContainer},
	{"POST", "/v1/containers/{container}/resume", (*server).resumeContainer},
	{"", "/v1/containers/{container}/guest/{path...}", (*server).guest},
	{"GET", "/v1/containers/{container}/logs", (*server).listLogs},
	{"GET", "/v1/containers/{container}/stats", (*server).containerStats},
	{"GET", "/v1/containers/{container}/ports/{port}", (*server).connectPort},
	{"POST", "/v1/containers/{container}/ports/{port}", (*server).createLink},
	{"", "/v1/containers/{container}/ports/{port}/{path...}", (*server).port},

	{"POST", "/v1/volumes", (*server).createVolume},
	{"GET", "/v1/volumes", (*server).listVolumes},
	{"GET", "/v1/volumes/{volume}", (*server).getVolume},
	{"DELETE", "/v1/volumes/{volume}", (*server).deleteVolume},
	{"GET", "/v1/snapshots", (*server).listSnapshots},
	{"GET", "/v1/snapshots/{snapshot}", (*server).getSnapshot},
	{"DELETE", "/v1/snapshots/{snapshot}", (*server).deleteSnapshot},

	{"GET", "/v1/templates", (*server).listTemplates},
	{"GET", "/v1/templates/{template}", (*server).getTemplate},

	{"POST", "/v1/prompts", (*server).createPrompt},
	{"GET", "/v1/prompts", (*server).listPrompts},
	{"GET", "/v1/prompts/{prompt}", (*server).getPrompt},
	{"POST", "/v1/prompts/{prompt}", (*server).updatePrompt},
	{"DELETE", "/v1/prompts/{prompt}", (*server).deletePrompt},
	{"GET", "/v1/prompts/{prompt}/versions", (*server).listPromptVersions},

	{"POST", "/v1/assistants", beta((*server).createAssistant)},
	{"GET", "/v1/assistants", beta((*server).listAssistants)},
	{"GET", "/v1/assistants/{assistant}", beta((*server).getAssistant)},
	{"POST", "/v1/assistants/{assistant}", beta((*server).updateAssistant)},
	{"DELETE", "/v1/assistants/{assistant}", beta((*server).deleteAssistant)},
	{"POST", "/v1/threads", beta((*server).createThread)},
	{"POST", "/v1/threads/runs", beta((*server).createThreadAndRun)},
	{"GET", "/v1/threads/{thread}", beta((*server).getThread)},
	{"POST", "/v1/threads/{thread}", beta((*server).updateThread)},
	{"DELETE", "/v1/threads/{thread}", beta((*server).deleteThread)},
	{"POST", "/v1/threads/{thread}/messages", beta((*server).createMessage)},
	{"GET", "/v1/threads/{thread}/messages", beta((*server).listMessages)},
	{"GET", "/v1/threads/{thread}/messages/{message}", beta((*server).getMessage)},
	{"POST", "/v1/threads/{thread}/messages/{message}", beta((*server).updateMessage)},
	{"DELETE", "/v1/threads/{thread}/messages/{message}", beta((*server).deleteMessage)},
	{"POST", "/v1/threads/{thread}/runs", beta((*server).createRun)},
	{"GET", "/v1/threads/{thread}/runs", beta((*server).listRuns)},
	{"GET", "/v1/threads/{thread}/runs/{run}", beta((*server).getRun)},
	{"POST", "/v1/threads/{thread}/runs/{run}", beta((*server).updateRun)},
	{"POST", "/v1/threads/{thread}/runs/{run}/cancel", beta((*server).cancelRun)},
	{"POST", "/v1/threads/{thread}/runs/{run}/submit_tool_outputs", beta((*server).submitToolOutputs)},
	{"GET", "/v1/threads/{thread}/runs/{run}/steps", beta((*server).listRunSteps)},
	{"GET", "/v1/threads/{thread}/runs/{run}/steps/{step}", beta((*server).getRunStep)},

	{"POST", "/v1/traces/ingest", (*server).ingestTraces},

	{"POST", "/v1/webhook_endpoints", (*server).createWebhookEndpoint},
	{"GET", "/v1/webhook_endpoints", (*server).listWebhookEndpoints},
	{"GET", "/v1/webhook_endpoints/{webhook}", (*server).getWebhookEndpoint},
	{"POST", "/v1/webhook_endpoints/{webhook}", (*server).updateWebhookEndpoint},
	{"DELETE", "/v1/webhook_endpoints/{webhook}", (*server).deleteWebhookEndpoint},
	{"POST", "/v1/webhook_endpoints/{webhook}/rotate_secret", (*server).rotateWebhookSecret},
	{"POST", "/v1/webhook_endpoints/{webhook}/test", (*server).testWebhook},
	{"GET", "/v1/webhook_event_types", (*server).listWebhookEventTypes},

	{"GET", "/v1/organization/costs", (*server).costs},
	{"GET", "/v1/organization/usage/completions", (*server).completionsUsage},
	{"GET", "/v1/organization/usage/code_interpreter_sessions", (*server).sessionsUsage},

	{"GET", "/v1/upstreams", (*server).upstreams},
	{"GET", "/v1/models", (*server).listModels},
	{"GET", "/v1/models/{model...}", (*server).getModel},
	{"DELETE", "/v1/models/{model...}", (*server).deleteModel},
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
	Space      *diskspace.Guard // of the volumes of the state; default none
	Observer   Observer         // default none
	Seal       cipher.AEAD      // for links to ports; as seal.New returns it
	Log        *slog.Logger
	Version    string // told by /healthz

	// Ready returns what /readyz reports. Default: nothing is checked.
	Ready func(context.Context) []ReadyCheck

	// PreviewDomain is a domain below which each port of a container has a host of its
	// own: PORT-CONTAINER.DOMAIN. Default: there are none.
	PreviewDomain string

	// The memory of requests; a nil pool has no bound.
	Readers  *ration.Pool // what is read to be sent; also of Journal
	Bodies   *ration.Pool // bodies, from before they are read until the answer has been sent
	Decoding *ration.Pool // what is made of them

	MaxBody   int64         // of a JSON body, in bytes; default 64 MiB
	Patience  time.Duration // with a client that neither sends nor reads when it should; default 1 min
	KeepAlive time.Duration // the silence after which a stream sends a comment, a socket a ping; default 15 s

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
	mux  *http.ServeMux
	open openness

	attempts   attempts
	assistants *assistants.Service
	previews   *preview.Proxy
}

// New returns the handler. It is safe for concurrent use and holds nothing that
// must be closed.
//
// Its http.Server must not limit the time of reading or writing a whole request:
// streams and uploads last as long as they need. Orderly ending is: close the
// engine, which leaves runs for the next start, then end the server's base
// context, which ends the streams that follow them.
func New(opts Options) http.Handler {
	if opts.MaxBody == 0 {
		opts.MaxBody = 64 << 20
	}
	if opts.Patience == 0 {
		opts.Patience = time.Minute
	}
	if opts.KeepAlive == 0 {
		opts.KeepAlive = 15 * time.Second
	}
	if opts.SocketLife == 0 {
		opts.SocketLife = time.Hour
	}
	if opts.Observer == nil {
		opts.Observer = noObserver{}
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s := &server{Options: opts, mux: http.NewServeMux(), open: openness{keys: opts.Keys, closed: opts.Closed}}
	s.previews = preview.New(opts.Log)
	s.assistants = assistants.New(assistants.Options{Objects: opts.Objects, Responses: opts.Responses, Engine: opts.Engine,
		Journal: opts.Journal, Files: opts.Files, Log: opts.Log, Now: opts.Now})
	for _, rt := range routes {
		s.mux.HandleFunc(rt.pattern(), func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, rt.handle) })
	}
	s.mux.HandleFunc(linkPath+"{link}/{path...}", s.showLink)
	s.mux.HandleFunc("GET /healthz", s.healthz)
	s.mux.HandleFunc("GET /readyz", s.readyz)
	s.mux.HandleFunc("/", s.fallback)
	return s
}

// healthz says that the process serves, to anybody. Without a file to open it does not.
func (s *server) healthz(w http.ResponseWriter, _ *http.Request) {
	if err := nofile.Available(); err != nil {
		_ = writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "the server has no file descriptors left", "version": s.Version})
		return
	}
	_ = writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "version": s.Version})
}
