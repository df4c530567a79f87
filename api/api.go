// Package api serves OpenAI's HTTP API, for OpenAI's own clients, and Berth's additions
// to it, such as the services of a container's guest.
//
// routes is the table of all endpoints. Every handler has three steps: decode, call,
// encode. Package exchange contains the parts that all requests share, including the
// mapping of errors to HTTP statuses.
package api

import (
	"context"
	"crypto/cipher"
	"net/http"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/assistants"
	"github.com/berth-run/berth/api/chat"
	"github.com/berth-run/berth/api/e2b"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/librechat"
	"github.com/berth-run/berth/api/mcp"
	"github.com/berth-run/berth/api/messages"
	"github.com/berth-run/berth/api/openterminal"
	"github.com/berth-run/berth/api/preview"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/api/scim"
	"github.com/berth-run/berth/api/signin"
	"github.com/berth-run/berth/api/socket"
	"github.com/berth-run/berth/api/swerex"
	"github.com/berth-run/berth/approvals"
	"github.com/berth-run/berth/batch"
	"github.com/berth-run/berth/bundle"
	"github.com/berth-run/berth/completions"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/conversations"
	"github.com/berth-run/berth/enduser"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/files/uploads"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/prompts"
	"github.com/berth-run/berth/responses"
	"github.com/berth-run/berth/retention"
	"github.com/berth-run/berth/schedules"
	"github.com/berth-run/berth/skills"
	"github.com/berth-run/berth/threads"
	"github.com/berth-run/berth/traces"
	"github.com/berth-run/berth/usage"
	"github.com/berth-run/berth/vectorstore"
	"github.com/berth-run/berth/webhook"
)

// routes returns the table of all endpoints. To add an endpoint, add a line here, write its
// handler in the file of its noun, give it a permission in permissions.go, and describe it in reference_table_test.go.
func (h *handlers) routes() []exchange.Route {
	const (
		callsModel    = exchange.CallsModel
		storesNothing = exchange.StoresNothing
		storesLittle  = exchange.StoresLittle
		readsQuery    = exchange.ReadsQuery
		readsContent  = exchange.ReadsContent

		throughContainer = exchange.ThroughContainer | exchange.NoCORS
	)
	on, beta := exchange.On, assistants.Beta
	return append([]exchange.Route{
		on("POST /v1/responses", h.responses.create, callsModel, storesLittle, exchange.NamesResponse),
		on("GET /v1/responses", h.listOrConnect, readsQuery),
		on("POST /v1/responses/input_tokens", h.responses.countTokens, storesNothing, storesLittle),
		on("POST /v1/responses/compact", h.responses.compact, callsModel, storesNothing, storesLittle),
		on("GET /v1/responses/{response}", h.responses.get, readsQuery),
		on("DELETE /v1/responses/{response}", h.responses.delete),
		on("POST /v1/responses/{response}/cancel", h.responses.cancel, storesNothing, storesLittle),
		on("GET /v1/responses/{response}/bundle", h.bundles.export, readsQuery, readsContent),
		on("POST /v1/responses/{response}/replay", h.bundles.replay, callsModel),
		on("POST /v1/bundles", h.bundles.load, exchange.StoresAsItComes),
		on("GET /v1/responses/{response}/input_items", h.responses.listInput, readsQuery),

		on("POST /v1/conversations", h.conversations.create),
		on("GET /v1/conversations", h.conversations.list, readsQuery),
		on("GET /v1/conversations/{conversation}", h.conversations.get),
		on("POST /v1/conversations/{conversation}", h.conversations.update),
		on("DELETE /v1/conversations/{conversation}", h.conversations.delete),
		on("POST /v1/conversations/{conversation}/items", h.conversations.createItems, readsQuery),
		on("GET /v1/conversations/{conversation}/items", h.conversations.listItems, readsQuery),
		on("GET /v1/conversations/{conversation}/items/{item}", h.conversations.getItem, readsQuery),
		on("DELETE /v1/conversations/{conversation}/items/{item}", h.conversations.deleteItem),

		on("POST /v1/chat/completions", h.chat.Create, callsModel, storesLittle),
		on("GET /v1/chat/completions", h.chat.List, readsQuery),
		on("GET /v1/chat/completions/{completion}", h.chat.Get),
		on("POST /v1/chat/completions/{completion}", h.chat.Update),
		on("DELETE /v1/chat/completions/{completion}", h.chat.Delete),
		on("GET /v1/chat/completions/{completion}/messages", h.chat.ListMessages, readsQuery),

		on("POST /v1/embeddings", h.forwards.embeddings, callsModel, storesNothing, storesLittle),
		on("POST /v1/moderations", h.forwards.moderations, callsModel, storesNothing, storesLittle),

		on("POST /v1/files", h.files.create),
		on("GET /v1/files", h.files.list, readsQuery),
		on("GET /v1/files/{file}", h.files.get),
		on("GET /v1/files/{file}/content", h.files.content, readsContent),
		on("DELETE /v1/files/{file}", h.files.delete),
		on("POST /v1/uploads", h.uploads.create),
		on("POST /v1/uploads/{upload}/parts", h.uploads.addPart),
		on("POST /v1/uploads/{upload}/complete", h.uploads.complete, storesNothing),
		on("POST /v1/uploads/{upload}/cancel", h.uploads.cancel, storesNothing, storesLittle),

		on("POST /v1/skills", h.skills.create),
		on("GET /v1/skills", h.skills.list, readsQuery),
		on("GET /v1/skills/{skill}", h.skills.get),
		on("POST /v1/skills/{skill}", h.skills.update, storesNothing),
		on("DELETE /v1/skills/{skill}", h.skills.delete),
		on("GET /v1/skills/{skill}/content", h.skills.content, readsContent),
		on("POST /v1/skills/{skill}/versions", h.skills.createVersion),
		on("GET /v1/skills/{skill}/versions", h.skills.listVersions, readsQuery),
		on("GET /v1/skills/{skill}/versions/{version}", h.skills.getVersion),
		on("DELETE /v1/skills/{skill}/versions/{version}", h.skills.deleteVersion),
		on("GET /v1/skills/{skill}/versions/{version}/content", h.skills.content, readsContent),

		on("POST /v1/batches", h.batches.create),
		on("GET /v1/batches", h.batches.list, readsQuery),
		on("GET /v1/batches/{batch}", h.batches.get),
		on("POST /v1/batches/{batch}/cancel", h.batches.cancel, storesNothing, storesLittle),

		on("POST /v1/containers", h.containers.create),
		on("GET /v1/containers", h.containers.list, readsQuery),
		on("GET /v1/containers/{container}", h.containers.get, readsQuery),
		on("DELETE /v1/containers/{container}", h.containers.delete),
		on("GET /v1/containers/{container}/audit", h.containers.audit),
		on("POST /v1/containers/{container}/files", h.containers.createFile),
		on("GET /v1/containers/{container}/files", h.containers.listFiles, readsQuery),
		on("GET /v1/containers/{container}/watch", h.containers.watch),
		on("GET /v1/containers/{container}/archive", h.containers.archive, readsQuery, readsContent),
		on("GET /v1/containers/{container}/files/{file}", h.containers.getFile),
		on("GET /v1/containers/{container}/files/{file}/content", h.containers.fileContent, readsContent),
		on("DELETE /v1/containers/{container}/files/{file}", h.containers.deleteFile),
		on("POST /v1/containers/{container}/exec", h.containers.exec, storesNothing, storesLittle),
		on("POST /v1/containers/{container}/snapshots", h.containers.snapshot),
		on("POST /v1/containers/{container}/fork", h.containers.fork),
		on("POST /v1/containers/{container}/forks", h.containers.forks),
		on("POST /v1/containers/{container}/pause", h.containers.pause, storesNothing, storesLittle),
		on("POST /v1/containers/{container}/resume", h.containers.resume, storesNothing, storesLittle),
		guestRoute(h.containers.guest),
		on("GET /v1/containers/{container}/ssh", h.sshKeys.connect, exchange.NoCORS),
		on("GET /v1/containers/{container}/logs", h.containers.listLogs, readsQuery),
		on("GET /v1/containers/{container}/stats", h.containers.stats),
		on("GET /v1/containers/{container}/stats/history", h.containers.statsHistory),
		on("GET /v1/containers/{container}/ports/{port}", h.ports.Connect),
		on("POST /v1/containers/{container}/ports/{port}", h.ports.CreateLink, storesNothing, storesLittle),
		on("/v1/containers/{container}/ports/{port}/{path...}", h.ports.Port, throughContainer),
		on("GET /v1/approvals", h.approvals.list, readsQuery),
		on("GET /v1/approvals/{approval}", h.approvals.get),
		on("POST /v1/approvals/{approval}", h.approvals.answer),
		on("POST /v1/ssh_keys", h.sshKeys.create),
		on("GET /v1/ssh_keys", h.sshKeys.list, readsQuery),
		on("GET /v1/ssh_keys/{ssh_key}", h.sshKeys.get),
		on("DELETE /v1/ssh_keys/{ssh_key}", h.sshKeys.delete),

		on("POST /v1/volumes", h.volumes.create),
		on("GET /v1/volumes", h.volumes.list, readsQuery),
		on("GET /v1/volumes/{volume}", h.volumes.get),
		on("DELETE /v1/volumes/{volume}", h.volumes.delete),
		on("GET /v1/snapshots", h.snapshots.list, readsQuery),
		on("GET /v1/snapshots/{snapshot}", h.snapshots.get),
		on("DELETE /v1/snapshots/{snapshot}", h.snapshots.delete),

		on("GET /v1/templates", h.templates.list),
		on("GET /v1/templates/{template}", h.templates.get),

		on("POST /v1/vector_stores", h.vectorStores.create),
		on("GET /v1/vector_stores", h.vectorStores.list, readsQuery),
		on("GET /v1/vector_stores/{vector_store}", h.vectorStores.get),
		on("POST /v1/vector_stores/{vector_store}", h.vectorStores.update),
		on("DELETE /v1/vector_stores/{vector_store}", h.vectorStores.delete),
		on("POST /v1/vector_stores/{vector_store}/search", h.vectorStores.search, storesNothing, storesLittle),
		on("POST /v1/vector_stores/{vector_store}/files", h.vectorStores.createFile),
		on("GET /v1/vector_stores/{vector_store}/files", h.vectorStores.listFiles, readsQuery),
		on("GET /v1/vector_stores/{vector_store}/files/{file}", h.vectorStores.getFile),
		on("POST /v1/vector_stores/{vector_store}/files/{file}", h.vectorStores.updateFile),
		on("DELETE /v1/vector_stores/{vector_store}/files/{file}", h.vectorStores.deleteFile),
		on("GET /v1/vector_stores/{vector_store}/files/{file}/content", h.vectorStores.fileContent, readsContent),
		on("POST /v1/vector_stores/{vector_store}/file_batches", h.vectorStores.createBatch),
		on("GET /v1/vector_stores/{vector_store}/file_batches/{batch}", h.vectorStores.getBatch),
		on("POST /v1/vector_stores/{vector_store}/file_batches/{batch}/cancel", h.vectorStores.cancelBatch,
			storesNothing, storesLittle),
		on("GET /v1/vector_stores/{vector_store}/file_batches/{batch}/files", h.vectorStores.listFiles, readsQuery),

		on("POST /v1/prompts", h.prompts.create),
		on("GET /v1/prompts", h.prompts.list, readsQuery),
		on("GET /v1/prompts/{prompt}", h.prompts.get, readsQuery),
		on("POST /v1/prompts/{prompt}", h.prompts.update),
		on("DELETE /v1/prompts/{prompt}", h.prompts.delete),
		on("GET /v1/prompts/{prompt}/versions", h.prompts.listVersions, readsQuery),

		on("POST /v1/assistants", beta(h.assistants.CreateAssistant)),
		on("GET /v1/assistants", beta(h.assistants.ListAssistants), readsQuery),
		on("GET /v1/assistants/{assistant}", beta(h.assistants.GetAssistant)),
		on("POST /v1/assistants/{assistant}", beta(h.assistants.UpdateAssistant)),
		on("DELETE /v1/assistants/{assistant}", beta(h.assistants.DeleteAssistant)),
		on("POST /v1/threads", beta(h.assistants.CreateThread)),
		on("POST /v1/threads/runs", beta(h.assistants.CreateThreadAndRun), callsModel),
		on("GET /v1/threads", beta(h.assistants.ListThreads), readsQuery),
		on("GET /v1/threads/{thread}", beta(h.assistants.GetThread)),
		on("POST /v1/threads/{thread}", beta(h.assistants.UpdateThread)),
		on("DELETE /v1/threads/{thread}", beta(h.assistants.DeleteThread)),
		on("POST /v1/threads/{thread}/messages", beta(h.assistants.CreateMessage)),
		on("GET /v1/threads/{thread}/messages", beta(h.assistants.ListMessages), readsQuery),
		on("GET /v1/threads/{thread}/messages/{message}", beta(h.assistants.GetMessage)),
		on("POST /v1/threads/{thread}/messages/{message}", beta(h.assistants.UpdateMessage)),
		on("DELETE /v1/threads/{thread}/messages/{message}", beta(h.assistants.DeleteMessage)),
		on("POST /v1/threads/{thread}/runs", beta(h.assistants.CreateRun), callsModel, readsQuery),
		on("GET /v1/threads/{thread}/runs", beta(h.assistants.ListRuns), readsQuery),
		on("GET /v1/threads/{thread}/runs/{run}", beta(h.assistants.GetRun)),
		on("POST /v1/threads/{thread}/runs/{run}", beta(h.assistants.UpdateRun)),
		on("POST /v1/threads/{thread}/runs/{run}/cancel", beta(h.assistants.CancelRun), storesNothing, storesLittle),
		on("POST /v1/threads/{thread}/runs/{run}/submit_tool_outputs", beta(h.assistants.SubmitToolOutputs),
			callsModel),
		on("GET /v1/threads/{thread}/runs/{run}/steps", beta(h.assistants.ListRunSteps), readsQuery),
		on("GET /v1/threads/{thread}/runs/{run}/steps/{step}", beta(h.assistants.GetRunStep), readsQuery),

		on("POST /v1/traces/ingest", h.traces.ingest),
		on("GET /v1/traces", h.traces.list, readsQuery),
		on("GET /v1/traces/{trace}", h.traces.get),
		on("GET /v1/traces/{trace}/spans", h.traces.listSpans, readsQuery),
		on("DELETE /v1/traces/{trace}", h.traces.delete),

		on("POST /v1/webhook_endpoints", h.webhooks.create),
		on("GET /v1/webhook_endpoints", h.webhooks.list, readsQuery),
		on("GET /v1/webhook_endpoints/{webhook}", h.webhooks.get),
		on("POST /v1/webhook_endpoints/{webhook}", h.webhooks.update),
		on("DELETE /v1/webhook_endpoints/{webhook}", h.webhooks.delete),
		on("POST /v1/webhook_endpoints/{webhook}/rotate_secret", h.webhooks.rotateSecret, storesNothing),
		on("POST /v1/webhook_endpoints/{webhook}/test", h.webhooks.test),
		on("GET /v1/webhook_endpoints/{webhook}/deliveries", h.webhooks.listDeliveries, readsQuery),
		on("POST /v1/webhook_endpoints/{webhook}/deliveries/{delivery}/redeliver", h.webhooks.redeliver, storesNothing),
		on("GET /v1/webhook_event_types", h.webhooks.listEventTypes),

		on("GET /v1/whoami", whoAmI),

		on("GET /v1/organization/costs", h.usage.costs, readsQuery),
		on("GET /v1/organization/status", h.health.status),
		on("GET /v1/refused_connections", h.record.listRefused, readsQuery),
		on("GET /v1/organization/audit", h.record.list, readsQuery),
		on("POST /v1/organization/audit/verify", h.record.verify, storesNothing, storesLittle),
		on("GET /v1/organization/spend", h.spend.list, readsQuery),
		on("GET /v1/organization/usage/completions", h.usage.completions, readsQuery),
		on("GET /v1/organization/usage/embeddings", h.usage.embeddings, readsQuery),
		on("GET /v1/organization/usage/moderations", h.usage.moderations, readsQuery),
		on("GET /v1/organization/usage/code_interpreter_sessions", h.usage.sessions, readsQuery),
		on("GET /v1/organization/usage/tool_calls", h.usage.toolCalls, readsQuery),

		on("POST /v1/organization/admin_api_keys", h.admin.createAdminKey, storesNothing, storesLittle),
		on("GET /v1/organization/admin_api_keys", h.admin.listAdminKeys, readsQuery),
		on("GET /v1/organization/admin_api_keys/{key}", h.admin.getAdminKey),
		on("POST /v1/organization/admin_api_keys/{key}", h.admin.updateAdminKey, storesNothing, storesLittle),
		on("DELETE /v1/organization/admin_api_keys/{key}", h.admin.deleteAdminKey),
		on("POST /v1/organization/projects", h.admin.createProject, storesNothing, storesLittle),
		on("GET /v1/organization/projects", h.admin.listProjects, readsQuery),
		on("GET /v1/organization/projects/{project}", h.admin.getProject),
		on("POST /v1/organization/projects/{project}", h.admin.updateProject, storesNothing, storesLittle),
		on("POST /v1/organization/projects/{project}/archive", h.admin.archiveProject, storesNothing,
			storesLittle),
		on("POST /v1/organization/projects/{project}/api_keys", h.admin.createKey, storesNothing,
			storesLittle),
		on("GET /v1/organization/projects/{project}/api_keys", h.admin.listKeys, readsQuery),
		on("GET /v1/organization/projects/{project}/api_keys/{key}", h.admin.getKey),
		on("POST /v1/organization/projects/{project}/api_keys/{key}", h.admin.updateKey, storesNothing,
			storesLittle),
		on("DELETE /v1/organization/projects/{project}/api_keys/{key}", h.admin.deleteKey),

		on("GET /v1/upstreams", h.models.upstreams),
		on("GET /v1/models", h.models.list, readsQuery),
		on("GET /v1/models/{model...}", h.models.get),
		on("DELETE /v1/models/{model...}", h.models.delete),
	}, slices.Concat(h.endUsers.routes(), h.schedules.routes(), h.retention.routes())...)
}

// keyless returns the routes that need no key.
func (h *handlers) keyless() []exchange.Route {
	pages, public := h.documentation(), exchange.Public
	return []exchange.Route{
		public("GET /{$}", h.health.index),
		public("GET /docs", http.RedirectHandler(documentationPath, http.StatusPermanentRedirect).ServeHTTP),
		public("GET /docs/{path...}", pages.ServeHTTP),
		public("GET /openapi.json", openAPI),
		public("GET /version", h.health.version),
		public("GET /healthz", h.health.healthz),
		public("GET /readyz", h.health.readyz),
		h.ports.LinkRoute(),
	}
}

// Options are the parts of an API. Those without a default are required.
type Options struct {
	Exchange exchange.Options // New sets Secrets
	Rooms    Rooms
	Engine   *engine.Engine
	Journal  *journal.Journal // the engine's journal

	Files        *files.Service
	Uploads      *uploads.Service // of large files in parts
	Skills       *skills.Service
	Batches      *batch.Service // New makes it execute requests with this API, as the next one
	Schedules    *schedules.Service
	Containers   *container.Service
	Snapshots    *snapshot.Service // the containers' snapshots
	Volumes      *volume.Service   // nil if the driver does not support volumes
	Templates    Templates         // nil if there are no templates
	VectorStores *vectorstore.Service
	Bundles      *bundle.Service
	Sandboxes    *e2b.Door // nil serves no sandboxes of E2B
	MCP          MCPOptions
	OpenTerminal OpenTerminalOptions
	Shells       *Shells            // for SWE-ReX's clients; nil does not serve them
	Approvals    *approvals.Service // of calls of MCP
	SSH          SSHOptions
	SignIn       *signin.Door // nil if people do not sign in
	SCIM         *scim.Door   // as SignIn
	Webhooks     *webhook.Service
	Projects     *project.Service
	Models       ModelOptions
	Preview      PreviewOptions

	// Console returns a handler of the paths below /console/, which are not part of the API.
	// It gets the handler of the API, and what the callers of requests may do. Nil serves no console.
	Console func(api http.Handler, access Access) http.Handler

	// SocketLife is the time for which a WebSocket accepts new requests. The default is
	// 60 minutes.
	SocketLife time.Duration

	// Ready returns the checks that /readyz reports. The default is no checks.
	Ready func(context.Context) []ReadyCheck

	Status StatusFunc       // nil serves no status
	Audit  AuditRecord      // nil serves no audit record
	Build  berth.Build      // shown by /version
	Now    func() time.Time // the clock for the expiry of thread runs and links; default time.Now
}

// Rooms store what the API's own handlers serve. All are required.
type Rooms struct {
	Responses     *responses.Store
	Conversations *conversations.Store
	Prompts       *prompts.Store
	Completions   *completions.Store
	Threads       *threads.Service
	Traces        *traces.Store
	Usage         *usage.Reader
	EndUsers      *enduser.Service
	Retention     *retention.Service
}

// PreviewOptions configure access to the ports of containers.
type PreviewOptions struct {
	Seal cipher.AEAD // encrypts links to ports; from seal.New

	// Domain is the parent domain of the host names of ports, PORT-CONTAINER.DOMAIN.
	// If it is empty, ports have no hosts.
	Domain string
}

// handlers holds the handlers by noun, and the doors: the handlers in packages of their own.
type handlers struct {
	responses     *storedResponses
	conversations *storedConversations
	bundles       *bundles
	forwards      *forwards
	batches       *batches
	files         *storedFiles
	uploads       *largeFiles
	skills        *storedSkills
	containers    *containers
	schedules     *storedSchedules
	snapshots     *snapshots
	volumes       *volumes
	sshKeys       *sshKeys
	approvals     *callApprovals
	templates     *templates
	prompts       *storedPrompts
	vectorStores  *vectorStores
	webhooks      *webhooks
	usage         *usagePages
	spend         *spend
	admin         *admin
	models        *models
	health        *health
	record        *record
	traces        *storedTraces
	endUsers      *endUsers
	retention     *retained

	chat       *chat.Door
	messages   *messages.Door
	socket     *socket.Door
	assistants *assistants.Door
	ports      *preview.Door
	mcp        *mcp.Door          // nil: not served
	librechat  *librechat.Door    // nil: not served
	terminals  *openterminal.Door // nil: not served
	swerex     *swerex.Door       // nil: not served
}

// New returns the handler of the API. It is safe for concurrent use and needs no Close.
//
// Its http.Server must have no ReadTimeout and no WriteTimeout, because streams and
// uploads take as long as they need. To shut down, close the engine, which leaves its
// runs for the next start, then cancel the server's base context, which ends the streams.
func New(opts Options) http.Handler {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Rooms.EndUsers != nil {
		opts.Exchange.EndUsers = opts.Rooms.EndUsers
	}
	opts.Exchange.Secrets = []string{preview.LinkPath, e2b.UploadPath}
	ex := exchange.New(opts.Exchange)
	h := newHandlers(opts, ex)
	var table *exchange.Table
	handler := ex.Handler(func(x *exchange.Exchange, r *http.Request) { table.Serve(x, r) })
	table = ex.Table(h.table(opts, ex, handler))
	connectSchedules(opts, ex, func(x *exchange.Exchange, r *http.Request) { table.Serve(x, r) })
	connectSSH(opts.SSH.Door, ex, func(x *exchange.Exchange, r *http.Request) { table.Serve(x, r) })
	if opts.Batches != nil {
		opts.Batches.Handle(execute(ex, table, opts.Containers))
	}
	return handler
}

// table returns the routes of all doors. The console uses the API itself, by its handler.
func (h *handlers) table(opts Options, ex *exchange.Server, itself http.Handler) []exchange.Route {
	var all []exchange.Route
	if opts.Sandboxes != nil {
		all = append(all, opts.Sandboxes.Routes()...)
	}
	all = append(all, h.ports.HostRoute())
	all = append(all, h.messages.Routes()...)
	all = append(all, h.routes()...)
	all = append(all, h.keyless()...)
	all = append(all, opts.SignIn.Routes()...)
	all = append(all, opts.SCIM.Routes()...)
	if h.mcp != nil {
		all = append(all, h.mcp.Routes()...)
	}
	if h.terminals != nil {
		all = append(all, h.terminals.Routes()...)
	}
	if h.librechat != nil {
		all = append(all, h.librechat.Routes()...)
	}
	if h.swerex != nil {
		all = append(all, h.swerex.Routes()...)
	}
	if opts.Console != nil {
		all = append(all, exchange.Public("/console/", opts.Console(itself, accessOf(ex)).ServeHTTP, exchange.NoCORS))
	}
	for i := range all {
		all[i].Permission = permissions[all[i].Pattern()]
	}
	return all
}

// newHandlers returns the handlers, each with the services that it needs.
func newHandlers(o Options, ex *exchange.Server) *handlers {
	rules, users := request.New(o.Engine.Tools), &endUsers{o.Rooms.EndUsers}
	prompts := &storedPrompts{rules, o.Rooms.Prompts}
	responses := &storedResponses{o.Engine, rules, o.Journal, o.Rooms.Responses, prompts}
	ports := preview.NewDoor(preview.Options{Exchange: ex, Containers: o.Containers, Box: o.Preview.Seal,
		Domain: o.Preview.Domain, Now: o.Now})
	return &handlers{
		responses:     responses,
		conversations: &storedConversations{o.Engine, rules, o.Rooms.Conversations, users},
		bundles:       &bundles{o.Bundles},
		forwards:      &forwards{o.Engine.Forwarder},
		batches:       &batches{o.Batches},
		files:         &storedFiles{o.Files, users},
		uploads:       &largeFiles{o.Uploads, o.Files, users},
		skills:        &storedSkills{o.Skills},
		containers:    &containers{o.Containers, o.Files, o.Exchange.Log, users},
		schedules:     &storedSchedules{o.Schedules, rules, ex, o.Containers},
		snapshots:     &snapshots{o.Snapshots},
		volumes:       &volumes{o.Volumes},
		sshKeys:       &sshKeys{o.SSH.Keys, o.SSH.Door, o.Containers},
		approvals:     &callApprovals{o.Approvals},
		templates:     &templates{o.Templates},
		prompts:       prompts,
		vectorStores:  &vectorStores{o.VectorStores},
		webhooks:      &webhooks{o.Webhooks},
		usage:         &usagePages{o.Rooms.Usage, o.Models.Currency},
		spend:         &spend{o.Exchange.Quota, o.Models.Currency, o.Models.Priced},
		admin:         &admin{o.Projects},
		record:        &record{o.Audit},
		traces:        &storedTraces{o.Rooms.Traces, users},
		endUsers:      users,
		retention:     &retained{o.Rooms.Retention, &admin{o.Projects}},
		models:        &models{o.Models.Models, o.Models.Upstreams},
		health:        &health{build: o.Build, ready: o.Ready, console: o.Console != nil, state: o.Status},

		chat: chat.New(chat.Options{Engine: o.Engine, Journal: o.Journal, Completions: o.Rooms.Completions,
			Stores: o.Rooms.Retention.Stores, EndUsers: o.Rooms.EndUsers, Version: o.Build.Version}),
		messages: newMessages(o),
		socket: socket.New(socket.Options{Exchange: ex, Journal: o.Journal, Rules: rules, Life: o.SocketLife,
			Create: responses.start}),
		assistants: assistants.NewDoor(o.Rooms.Threads),
		ports:      ports,
		mcp:        newMCP(o, ports),
		terminals:  newOpenTerminal(o, ex),
		swerex:     newSWEReX(o),
		librechat:  newLibreChat(o),
	}
}
