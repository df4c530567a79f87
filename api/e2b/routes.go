package e2b

import "github.com/berth-run/berth/api/exchange"

// Routes returns the routes of the control plane, whose callers have an API key, and those of the data plane.
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
	return append(routes, d.dataRoutes()...)
}
