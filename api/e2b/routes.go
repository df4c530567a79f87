package e2b

import (
	"net/http"
	"slices"

	"github.com/berth-run/berth/api/exchange"
)

const noBody = exchange.StoresNothing | exchange.StoresLittle

// Routes returns the routes of the control plane, whose callers have an API key, and those of the data plane.
func (d *Door) Routes() []exchange.Route {
	control := slices.Concat(d.sandboxes.routes(), d.events.routes(), d.secrets.routes(), d.volumes.routes(),
		d.templates.routes())
	for i := range control {
		control[i].WriteError = writeError
		control[i].Traits |= exchange.KeyInHeader
	}
	return append(slices.Concat(control, d.data.routes()), d.templates.uploadRoute(), d.volumes.contentRoute())
}

func (h *sandboxes) routes() []exchange.Route {
	return []exchange.Route{
		exchange.On("POST /sandboxes", h.createOld),
		exchange.On("POST /v2/sandboxes", h.create),
		exchange.On("GET /sandboxes", h.list, exchange.ReadsQuery),
		exchange.On("GET /v2/sandboxes", h.list, exchange.ReadsQuery),
		exchange.On("GET /sandboxes/{sandbox}", h.get),
		exchange.On("DELETE /sandboxes/{sandbox}", h.kill),
		exchange.On("GET /sandboxes/{sandbox}/metrics", h.metrics, exchange.ReadsQuery),
		exchange.On("POST /sandboxes/{sandbox}/timeout", h.setTimeout, noBody),
		exchange.On("PUT /sandboxes/{sandbox}/network", h.setNetwork, exchange.StoresNothing),
		exchange.On("POST /sandboxes/{sandbox}/refreshes", h.refresh, noBody),
		exchange.On("POST /sandboxes/{sandbox}/pause", h.pause, noBody),
		exchange.On("POST /sandboxes/{sandbox}/resume", h.connect, noBody),
		exchange.On("POST /sandboxes/{sandbox}/connect", h.connect, noBody),
		exchange.On("POST /v2/sandboxes/{sandbox}/connect", h.connect, noBody),
		exchange.On("POST /sandboxes/{sandbox}/snapshots", h.snapshot),
		exchange.On("POST /sandboxes/{sandbox}/fork", h.fork),
		exchange.On("GET /sandboxes/metrics", h.allMetrics, exchange.ReadsQuery),
		exchange.On("GET /sandboxes/{sandbox}/logs", h.logs, exchange.ReadsQuery),
		exchange.On("GET /v2/sandboxes/{sandbox}/logs", h.logs, exchange.ReadsQuery),
		exchange.On("GET /snapshots", h.listSnapshots, exchange.ReadsQuery),
	}
}

func (h *events) routes() []exchange.Route {
	return []exchange.Route{
		exchange.On("GET /events/sandboxes", h.list, exchange.ReadsQuery),
		exchange.On("GET /events/sandboxes/{sandbox}", h.listOfSandbox, exchange.ReadsQuery),
		exchange.On("POST /events/webhooks", h.createWebhook),
		exchange.On("GET /events/webhooks", h.listWebhooks),
		exchange.On("GET /events/webhooks/{webhook}", h.getWebhook),
		exchange.On("PATCH /events/webhooks/{webhook}", h.patchWebhook, exchange.StoresNothing),
		exchange.On("DELETE /events/webhooks/{webhook}", h.deleteWebhook),
	}
}

func (h *secretStore) routes() []exchange.Route {
	return []exchange.Route{
		exchange.On("POST /secrets", h.create),
		exchange.On("GET /secrets", h.list, exchange.ReadsQuery),
		exchange.On("GET /secrets/{secret}", h.get),
		exchange.On("POST /secrets/{secret}", h.update),
		exchange.On("DELETE /secrets/{secret}", h.delete),
	}
}

func (h *volumes) routes() []exchange.Route {
	return []exchange.Route{
		exchange.On("POST /volumes", h.create),
		exchange.On("GET /volumes", h.list),
		exchange.On("GET /volumes/{volume}", h.get),
		exchange.On("DELETE /volumes/{volume}", h.delete),
	}
}

// contentRoute returns the route of the content of volumes, whose identity is the token of a volume.
func (h *volumes) contentRoute() exchange.Route {
	return exchange.Route{Path: contentPath + "{path...}", WriteError: writeContentError, Fail: refuse,
		Identity: h.visitor}
}

func (h *templates) routes() []exchange.Route {
	return []exchange.Route{
		exchange.On("POST /v3/templates", h.create),
		exchange.On("POST /v2/templates", h.create),
		exchange.On("GET /v2/templates", h.list, exchange.ReadsQuery),
		exchange.On("GET /templates", h.list, exchange.ReadsQuery),
		exchange.On("GET /templates/{template}", h.get, exchange.ReadsQuery),
		exchange.On("PATCH /v2/templates/{template}", h.patch, exchange.StoresNothing),
		exchange.On("DELETE /templates/{template}", h.delete),
		exchange.On("GET /templates/{template}/{part}", h.getPart, exchange.ReadsQuery),
		exchange.On("POST /templates/tags", h.assignTags),
		exchange.On("DELETE /templates/tags", h.removeTags),
		exchange.On("GET /templates/{template}/files/{hash}", h.uploadLink),
		exchange.On("POST /v2/templates/{template}/builds/{build}", h.startBuild),
		exchange.On("GET /templates/{template}/builds/{build}/status", h.buildStatus, exchange.ReadsQuery),
		exchange.On("GET /templates/{template}/builds/{build}/logs", h.buildLogs, exchange.ReadsQuery),
	}
}

// uploadRoute returns the route of uploads, whose identity is the URL.
func (h *templates) uploadRoute() exchange.Route {
	return exchange.Route{Method: http.MethodPut, Path: UploadPath + "{upload...}", WriteError: writeError,
		Fail: refuse, Identity: h.uploader}
}
