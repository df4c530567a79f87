package api

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/preview"
	"github.com/berth-run/berth/api/reference"
	"github.com/berth-run/berth/approvals"
	"github.com/berth-run/berth/bundle"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/schedules"
	"github.com/berth-run/berth/sshkeys"
	"github.com/berth-run/berth/webhook"
)

// listOf is a value of the type of a page of objects.
func listOf[T any]() exchange.Listing[T] { return exchange.Listing[T]{} }

var (
	route = reference.On
	flag  = func(name, text string) reference.Parameter {
		return reference.Parameter{Name: name, Type: "boolean", Description: text}
	}
	textParameter = func(name, text string) reference.Parameter {
		return reference.Parameter{Name: name, Type: "string", Description: text}
	}
	anyMethod = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions}
)

// described are the sections of the reference: every route, each once. OpenAI's need a summary
// and a page only; their types are in OpenAI's document.
func described() []reference.Section {
	return []reference.Section{
		{Name: "Server", Routes: serverRoutes()},
		{Name: "Responses", Routes: responseRoutes()},
		{Name: "Conversations", Routes: conversationRoutes()},
		{Name: "Chat Completions", Routes: chatRoutes()},
		{Name: "Embeddings and moderations", Routes: []*reference.Route{
			route("POST /v1/embeddings", "Create embeddings", "models.md#embeddings-and-moderations"),
			route("POST /v1/moderations", "Classify text or images", "models.md#embeddings-and-moderations"),
		}},
		{Name: "Containers", Routes: containerRoutes()},
		{Name: "SSH", Routes: sshRoutes()},
		{Name: "Schedules", Routes: scheduleRoutes()},
		{Name: "Volumes", Routes: volumeRoutes()},
		{Name: "Snapshots", Routes: snapshotRoutes()},
		{Name: "Templates", Routes: []*reference.Route{
			route("GET /v1/templates", "List templates", "templates.md").Gives(listOf[*berth.Template]()),
			route("GET /v1/templates/{template}", "Get a template by name or id",
				"templates.md").Gives(berth.Template{}),
		}},
		{Name: "Files and uploads", Routes: fileRoutes()},
		{Name: "Batches", Routes: batchRoutes()},
		{Name: "Skills", Routes: skillRoutes()},
		{Name: "Vector stores", Routes: vectorStoreRoutes()},
		{Name: "Prompts", Routes: promptRoutes()},
		{Name: "Assistants", Routes: assistantRoutes()},
		{Name: "Webhooks", Routes: webhookRoutes()},
		{Name: "Traces", Routes: traceRoutes()},
		{Name: "End users", Routes: endUserRoutes()},
		{Name: "Retention", Routes: retentionRoutes()},
		{Name: "Usage", Routes: usageRoutes()},
		{Name: "Models", Routes: modelRoutes()},
		{Name: "Administration", Routes: adminRoutes()},
	}
}

func serverRoutes() []*reference.Route {
	return []*reference.Route{
		route("GET /{$}", "Describe the server, to browsers as a page", "").Keyless().Gives(serverIndex{}),
		route("GET /openapi.json", "Get the OpenAPI document of all routes",
			"").Keyless().Gives(map[string]json.RawMessage{}),
		route("GET /docs", "Redirect to the documentation", "").Keyless().GivesBytes("text/html"),
		route("GET /docs/{path...}", "Show a page of the documentation", "").Keyless().GivesBytes("text/html"),
		route("GET /version", "Get the version of the server",
			"observe.md#health-and-readiness").Keyless().Gives(berth.Build{}),
		route("GET /healthz", "Check that the server runs",
			"observe.md#health-and-readiness").Keyless().Gives(healthStatus{}),
		route("GET /readyz", "Check that the server can start containers and store data",
			"observe.md#health-and-readiness").Keyless().Gives(readyStatus{}),
		route("GET /v1/whoami", "Get who the caller is, and what it may do", "sign-in.md#on-the-command-line").Gives(identity{}),
	}
}

func responseRoutes() []*reference.Route {
	return []*reference.Route{
		route("POST /v1/responses", "Create a response", "life-of-a-response.md"),
		route("GET /v1/responses", "List stored responses, or open a WebSocket", "websocket.md").
			Query(append([]reference.Parameter{textParameter("status",
				"queued, in_progress, completed, incomplete, failed or cancelled."), textParameter("model",
				"The model of the request."), textParameter("search",
				"Words in the messages, commands or code of the response. A page has those of its limit of responses that contain them, so it may be empty although another follows.")},
				reference.Paging...)...).
			Gives(listOf[*responseSummary]()),
		route("POST /v1/responses/input_tokens", "Count the tokens of a request", ""),
		route("POST /v1/responses/compact", "Compact a context", "life-of-a-response.md#the-context"),
		route("GET /v1/responses/{response}", "Get a response, or resume its stream", ""),
		route("DELETE /v1/responses/{response}", "Delete a response", ""),
		route("POST /v1/responses/{response}/cancel", "Cancel a response", ""),
		route("GET /v1/responses/{response}/input_items", "List the input items of a response", ""),
		route("GET /v1/responses/{response}/bundle", "Export a session", "session.md").
			Query(flag("container", "Include the container. Default: true.")).GivesBytes(bundle.ContentType),
		route("POST /v1/responses/{response}/replay", "Replay a session", "session.md").Takes(replayBody,
			replayRequest{}).Gives(bundle.Replay{}),
		route("POST /v1/bundles", "Import a session",
			"session.md").TakesBytes(bundle.ContentType).Gives(bundle.Imported{}),
	}
}

func conversationRoutes() []*reference.Route {
	return []*reference.Route{
		route("POST /v1/conversations", "Create a conversation", ""),
		route("GET /v1/conversations", "List conversations",
			"").Query(reference.Paging...).Gives(listOf[*berth.Conversation]()),
		route("GET /v1/conversations/{conversation}", "Get a conversation", ""),
		route("POST /v1/conversations/{conversation}", "Update a conversation", ""),
		route("DELETE /v1/conversations/{conversation}", "Delete a conversation", ""),
		route("POST /v1/conversations/{conversation}/items", "Add items to a conversation", ""),
		route("GET /v1/conversations/{conversation}/items", "List the items of a conversation", ""),
		route("GET /v1/conversations/{conversation}/items/{item}", "Get an item of a conversation", ""),
		route("DELETE /v1/conversations/{conversation}/items/{item}", "Delete an item of a conversation", ""),
	}
}

func chatRoutes() []*reference.Route {
	return []*reference.Route{
		route("POST /v1/chat/completions", "Create a chat completion", "life-of-a-response.md#other-apis"),
		route("GET /v1/chat/completions", "List stored chat completions", ""),
		route("GET /v1/chat/completions/{completion}", "Get a stored chat completion", ""),
		route("POST /v1/chat/completions/{completion}", "Update a stored chat completion", ""),
		route("DELETE /v1/chat/completions/{completion}", "Delete a stored chat completion", ""),
		route("GET /v1/chat/completions/{completion}/messages", "List the messages of a stored chat completion", ""),
	}
}

func containerRoutes() []*reference.Route {
	return []*reference.Route{
		route("POST /v1/containers", "Create a container", "snapshots.md"),
		route("GET /v1/containers", "List containers", ""),
		route("GET /v1/containers/{container}", "Get a container", "").
			Query(flag("touch", "Count this as a use of the container, as OpenAI does. Default: true.")),
		route("DELETE /v1/containers/{container}", "Delete a container", ""),
		route("POST /v1/containers/{container}/exec", "Run a command in a container", "exec.md").
			Takes(execBody, execRequest{}).Gives(execResult{}).Streams(execDelta{}, execResult{}),
		route("POST /v1/containers/{container}/files", "Add a file to a container", ""),
		route("GET /v1/containers/{container}/files", "List the files of a container", ""),
		route("GET /v1/containers/{container}/files/{file}", "Get a file of a container", ""),
		route("GET /v1/containers/{container}/files/{file}/content", "Download a file of a container", ""),
		route("DELETE /v1/containers/{container}/files/{file}", "Delete a file of a container", ""),
		route("GET /v1/containers/{container}/watch", "Watch the files of a container",
			"observe.md").Streams(berth.ContainerFileEvent{}),
		route("GET /v1/containers/{container}/archive", "Download the files of a container as an archive", "").
			Query(textParameter("path", "The directory or file: absolute, or below /mnt/data. Default: /mnt/data."),
				reference.Parameter{Name: "format", Type: "string", Enum: []string{"tar", "tar.gz", "zip"},
					Description: "Default: tar."}).
			GivesBytes("application/x-tar", "application/gzip", "application/zip"),
		route("GET /v1/containers/{container}/logs", "List the commands that ran in a container, or follow them",
			"observe.md").
			Query(reference.Paging...).
			Query(flag("follow", "Stream the commands until the container ends."),
				reference.Parameter{Name: "starting_after", Type: "integer",
					Description: "With follow: the sequence number to start after."}).
			Gives(listOf[*berth.ContainerLog]()).Streams(logEvent{}),
		route("GET /v1/containers/{container}/stats", "Get the resource usage of a container",
			"observe.md").Gives(berth.ContainerStats{}),
		route("GET /v1/containers/{container}/stats/history", "Get the resource usage of a container over its life",
			"observe.md").Gives(statsHistory{}),
		route("GET /v1/containers/{container}/audit", "Get the audit entries of a container",
			"audit.md").Gives(containerAudit{}),
		route("GET /v1/refused_connections", "List the connections of containers that were refused, the newest first",
			"network.md").Query(reference.Paging[0], reference.Paging[2]).Gives(auditList{}),
		route("POST /v1/containers/{container}/snapshots", "Take a snapshot of a container",
			"snapshots.md").MayTake(snapshotBody, container.SnapshotRequest{}).Gives(berth.Snapshot{}),
		route("POST /v1/containers/{container}/fork", "Copy a container", "snapshots.md").MayTake(forkBody,
			container.ForkRequest{}).Gives(berth.Container{}),
		route("POST /v1/containers/{container}/forks", "Copy a container several times", "snapshots.md").Takes(forksBody,
			forksRequest{}).Gives(exchange.Listing[*berth.Container]{}),
		route("POST /v1/containers/{container}/pause", "Pause a container", "snapshots.md").Gives(berth.Container{}),
		route("POST /v1/containers/{container}/resume", "Resume a paused container",
			"snapshots.md").Gives(berth.Container{}),
		route("POST /v1/containers/{container}/ports/{port}", "Create a link to a port of a container",
			"observe.md#ports").MayTake(preview.LinkBody, preview.LinkRequest{}).Gives(preview.PortLink{}),
		route("GET /v1/containers/{container}/ports/{port}", "Open a WebSocket to a port of a container",
			"observe.md#ports").Upgrades(),
		route("/v1/containers/{container}/ports/{port}/{path...}", "Forward a request to a port of a container",
			"observe.md#ports").Methods(anyMethod...).GivesBytes("application/octet-stream"),
		route("/v1/containers/{container}/guest/{path...}", "Use E2B's envd services in a container",
			"cli.md").Methods(http.MethodGet, http.MethodPost).GivesBytes("application/octet-stream"),
		route("/preview/{link}/{path...}", "Forward a request to a port by a link",
			"observe.md#ports").Keyless().Methods(anyMethod...).GivesBytes("application/octet-stream"),
	}
}

func volumeRoutes() []*reference.Route {
	return []*reference.Route{
		route("POST /v1/volumes", "Create a volume", "volumes.md").Takes(volumeBody,
			volumeRequest{}).Gives(berth.Volume{}),
		route("GET /v1/volumes", "List volumes",
			"volumes.md").Query(reference.Paging...).Gives(listOf[*berth.Volume]()),
		route("GET /v1/volumes/{volume}", "Get a volume", "volumes.md").Gives(berth.Volume{}),
		route("DELETE /v1/volumes/{volume}", "Delete a volume", "volumes.md").Gives(exchange.Deletion{}),
	}
}

func snapshotRoutes() []*reference.Route {
	return []*reference.Route{
		route("GET /v1/snapshots", "List snapshots",
			"snapshots.md").Query(reference.Paging...).Gives(listOf[*berth.Snapshot]()),
		route("GET /v1/snapshots/{snapshot}", "Get a snapshot", "snapshots.md").Gives(berth.Snapshot{}),
		route("DELETE /v1/snapshots/{snapshot}", "Delete a snapshot", "snapshots.md").Gives(exchange.Deletion{}),
	}
}

func promptRoutes() []*reference.Route {
	h := &storedPrompts{rules: rules}
	return []*reference.Route{
		route("POST /v1/prompts", "Create a prompt", "prompts.md").Takes(h.promptBody("name", "template"),
			promptChange{}).Gives(berth.Prompt{}),
		route("GET /v1/prompts", "List prompts",
			"prompts.md").Query(reference.Paging...).Gives(listOf[*berth.Prompt]()),
		route("GET /v1/prompts/{prompt}", "Get a prompt", "prompts.md").Query(textParameter("version",
			"Default: the newest.")).Gives(berth.Prompt{}),
		route("POST /v1/prompts/{prompt}", "Update a prompt", "prompts.md").Takes(h.promptBody(),
			promptChange{}).Gives(berth.Prompt{}),
		route("DELETE /v1/prompts/{prompt}", "Delete a prompt", "prompts.md").Gives(exchange.Deletion{}),
		route("GET /v1/prompts/{prompt}/versions", "List the versions of a prompt",
			"prompts.md").Query(reference.Paging...).Gives(listOf[*berth.Prompt]()),
	}
}

func sshRoutes() []*reference.Route {
	const page = "ssh.md"
	return []*reference.Route{
		route("GET /v1/containers/{container}/ssh", "Connect with SSH in a WebSocket",
			page+"#over-https").Status(http.StatusSwitchingProtocols),
		route("GET /v1/approvals", "List calls that wait for a person",
			"mcp-server.md#approvals").Query(reference.Paging...).Gives(listOf[*approvals.Approval]()),
		route("GET /v1/approvals/{approval}", "Get a call that waits for a person",
			"mcp-server.md#approvals").Gives(approvals.Approval{}),
		route("POST /v1/approvals/{approval}", "Approve or deny a call", "mcp-server.md#approvals").Takes(approvalBody,
			approvalAnswer{}).Gives(approvals.Approval{}),
		route("POST /v1/ssh_keys", "Add a public key", page+"#public-keys").Takes(sshKeyBody,
			sshKeyRequest{}).Gives(sshkeys.Key{}),
		route("GET /v1/ssh_keys", "List public keys",
			page+"#public-keys").Query(reference.Paging...).Gives(listOf[*sshkeys.Key]()),
		route("GET /v1/ssh_keys/{ssh_key}", "Get a public key", page+"#public-keys").Gives(sshkeys.Key{}),
		route("DELETE /v1/ssh_keys/{ssh_key}", "Remove a public key", page+"#public-keys").Gives(exchange.Deletion{}),
	}
}

func scheduleRoutes() []*reference.Route {
	const page = "schedules.md"
	h := &storedSchedules{rules: rules}
	return []*reference.Route{
		route("POST /v1/schedules", "Create a schedule", page).Takes(h.scheduleBody("request"),
			scheduleRequest{}).Gives(schedules.Schedule{}),
		route("GET /v1/schedules", "List schedules",
			page).Query(reference.Paging...).Gives(listOf[*schedules.Schedule]()),
		route("GET /v1/schedules/{schedule}", "Get a schedule", page).Gives(schedules.Schedule{}),
		route("POST /v1/schedules/{schedule}", "Change, pause or resume a schedule", page).Takes(h.scheduleBody(),
			scheduleRequest{}).Gives(schedules.Schedule{}),
		route("DELETE /v1/schedules/{schedule}", "Delete a schedule", page).Gives(exchange.Deletion{}),
		route("POST /v1/schedules/{schedule}/run", "Run a schedule now", page).Gives(schedules.Run{}),
		route("GET /v1/schedules/{schedule}/runs", "List the runs of a schedule",
			page).Query(reference.Paging...).Gives(listOf[*schedules.Run]()),
	}
}

func webhookRoutes() []*reference.Route {
	const page = "tenancy.md#webhooks"
	return []*reference.Route{
		route("POST /v1/webhook_endpoints", "Create a webhook endpoint", page).Takes(createWebhook,
			webhook.EndpointRequest{}).Gives(berth.WebhookEndpoint{}),
		route("GET /v1/webhook_endpoints", "List webhook endpoints",
			page).Query(reference.Paging...).Gives(listOf[*berth.WebhookEndpoint]()),
		route("GET /v1/webhook_endpoints/{webhook}", "Get a webhook endpoint", page).Gives(berth.WebhookEndpoint{}),
		route("POST /v1/webhook_endpoints/{webhook}", "Update a webhook endpoint", page).MayTake(updateWebhook,
			webhook.EndpointRequest{}).Gives(berth.WebhookEndpoint{}),
		route("DELETE /v1/webhook_endpoints/{webhook}", "Delete a webhook endpoint", page).Gives(exchange.Deletion{}),
		route("POST /v1/webhook_endpoints/{webhook}/rotate_secret", "Replace the secret of a webhook endpoint",
			page).MayTake(rotateWebhook, rotateRequest{}).Gives(berth.WebhookEndpoint{}),
		route("POST /v1/webhook_endpoints/{webhook}/test", "Send a sample event to a webhook endpoint",
			page).Takes(testWebhookBody, testWebhookRequest{}).Gives(webhookTest{}),
		route("GET /v1/webhook_endpoints/{webhook}/deliveries", "List the deliveries of a webhook endpoint",
			page).Query(reference.Paging...).Gives(listOf[*webhookDelivery]()),
		route("POST /v1/webhook_endpoints/{webhook}/deliveries/{delivery}/redeliver", "Send a delivery again",
			page).Gives(webhookDelivery{}),
		route("GET /v1/webhook_event_types", "List the types of events", page).Gives(eventTypeList{}),
	}
}

func endUserRoutes() []*reference.Route {
	const page = "end-users.md"
	return []*reference.Route{
		route("GET /v1/end_users", "List end users", page).Query(append(slices.Clone(reference.Paging),
			textParameter("user", "Only the user with this name."))...).Gives(listOf[*berth.EndUser]()),
		route("GET /v1/end_users/{user}", "Get an end user", page).Gives(berth.EndUser{}),
		route("POST /v1/end_users/{user}", "Replace the limits of an end user", page).Takes(endUserChange,
			endUserRequest{}).Gives(berth.EndUser{}),
		route("DELETE /v1/end_users/{user}", "Delete all that belongs to an end user",
			page).Gives(berth.EndUserDeletion{}),
		route("GET /v1/end_users/{user}/objects", "List what belongs to an end user",
			page).Query(reference.Paging...).Gives(listOf[*berth.EndUserObject]()),
		route("GET /v1/end_users/{user}/usage", "Get the usage of an end user in a month",
			page).Query(textParameter("month", "Such as 2026-11; default: the present month (UTC).")).
			Gives(berth.EndUserUsage{}),
		route("GET /v1/end_user_settings", "Get the settings of end users", page).Gives(berth.EndUserSettings{}),
		route("POST /v1/end_user_settings", "Replace the settings of end users", page).Takes(endUserSet,
			endUserSettings{}).Gives(berth.EndUserSettings{}),
	}
}

func retentionRoutes() []*reference.Route {
	const page = "retention.md"
	return []*reference.Route{
		route("GET /v1/retention", "Get how long a project retains objects", page).Gives(berth.Retention{}),
		route("POST /v1/retention", "Replace what a project sets for itself", page).Takes(retentionBody,
			retentionRequest{}).Gives(berth.Retention{}),
		route("GET /v1/retention/records", "List the records of ended objects", page).
			Query(reference.Paging...).Gives(listOf[*berth.RetentionRecord]()),
		route("GET /v1/retention/records/{record}", "Get a record of ended objects, with their ids",
			page).Gives(berth.RetentionRecord{}),
		route("POST /v1/holds", "Hold objects of a project", page).Takes(holdBody, holdRequest{}).Gives(berth.Hold{}),
		route("GET /v1/holds", "List the holds of a project", page).Query(reference.Paging...).
			Gives(listOf[*berth.Hold]()),
		route("GET /v1/holds/{hold}", "Get a hold", page).Gives(berth.Hold{}),
		route("DELETE /v1/holds/{hold}", "Release a hold of a project", page).Gives(exchange.Deletion{}),
		route("POST /v1/organization/projects/{project}/holds", "Hold objects of a project for the organization",
			page).Takes(holdBody, holdRequest{}).Gives(berth.Hold{}),
		route("GET /v1/organization/projects/{project}/holds", "List all holds on a project", page).
			Query(reference.Paging...).Gives(listOf[*berth.Hold]()),
		route("DELETE /v1/organization/projects/{project}/holds/{hold}", "Release a hold", page).Gives(exchange.Deletion{}),
	}
}

func traceRoutes() []*reference.Route {
	const page = "monitoring.md#traces-of-agents"
	return []*reference.Route{
		route("POST /v1/traces/ingest", "Store traces of OpenAI's Agents SDK", page).Takes(ingestTracesBody,
			ingestTracesRequest{}).Status(http.StatusNoContent),
		route("GET /v1/traces", "List traces", page).Query(reference.Paging...).Gives(listOf[*berth.Trace]()),
		route("GET /v1/traces/{trace}", "Get a trace", page).Gives(berth.Trace{}),
		route("GET /v1/traces/{trace}/spans", "List the spans of a trace",
			page).Query(reference.Paging...).Gives(listOf[*berth.TraceSpan]()),
		route("DELETE /v1/traces/{trace}", "Delete a trace with its spans", page).Gives(exchange.Deletion{}),
	}
}

// toolsUsagePage is a usagePage of calls of tools.
type toolsUsagePage struct {
	Object string `json:"object"` // "page"
	Data   []struct {
		Object    string        `json:"object"` // "bucket"
		StartTime int64         `json:"start_time"`
		EndTime   int64         `json:"end_time"`
		Results   []*toolsUsage `json:"results"`
	} `json:"data"`
	HasMore  bool    `json:"has_more"`
	NextPage *string `json:"next_page"`
}

func usageRoutes() []*reference.Route {
	const page = "tenancy.md#usage"
	return []*reference.Route{
		route("GET /v1/organization/costs", "Get costs", "models.md#prices"),
		route("GET /v1/organization/spend", "Get what projects and keys have spent this month", "tenancy.md#limits").
			Query(textParameter("project_ids", "Of these projects only."), reference.Paging[0],
				reference.Paging[2]).Gives(listOf[spendObject]()),
		route("GET /v1/organization/usage/completions", "Get the usage of models", page),
		route("GET /v1/organization/usage/embeddings", "Get the usage of embeddings", page),
		route("GET /v1/organization/usage/moderations", "Get the usage of moderations", page),
		route("GET /v1/organization/usage/code_interpreter_sessions", "Get the usage of containers", page),
		route("GET /v1/organization/usage/tool_calls", "Get the calls of tools", page).
			Query(reference.Parameter{Name: "start_time", Type: "integer", Description: "In Unix seconds. Required."},
				reference.Parameter{Name: "end_time", Type: "integer", Description: "In Unix seconds. Default: now."},
				reference.Parameter{Name: "bucket_width", Type: "string", Enum: []string{"1m", "1h", "1d"},
					Description: "Default: 1d."},
				textParameter("group_by", "One or more of tool, project_id and api_key_id."),
				textParameter("tools", "Of these tools only."), textParameter("project_ids", "Of these projects only."),
				textParameter("api_key_ids", "With these keys only."),
				reference.Parameter{Name: "limit", Type: "integer", Description: "The number of buckets on the page."},
				textParameter("page", "The next_page of the page before.")).Gives(toolsUsagePage{}),
	}
}

func adminRoutes() []*reference.Route {
	const page = "tenancy.md#administration"
	return []*reference.Route{
		route("GET /v1/organization/status", "Get the state of the server, also for keys of the default project",
			page).Gives(berth.ServerStatus{}),
		route("GET /v1/organization/audit", "List the entries of the audit record, the newest first", "audit.md").
			Query(textParameter("project_id", "Of this project only."), textParameter("container_id",
				"Of this container only."), textParameter("action", "Such as key.created."),
				textParameter("key_id", "What this key or person has done."), textParameter("object_id", "About this object."),
				textParameter("start_time", "From this time on, in Unix seconds."),
				textParameter("end_time", "Before this time, in Unix seconds."), reference.Paging[0],
				reference.Paging[2]).Gives(auditList{}),
		route("POST /v1/organization/audit/verify", "Verify the audit record", "audit.md").Gives(auditVerification{}),
		route("POST /v1/organization/admin_api_keys", "Create an admin key", page),
		route("GET /v1/organization/admin_api_keys", "List admin keys", page),
		route("GET /v1/organization/admin_api_keys/{key}", "Get an admin key", page),
		route("POST /v1/organization/admin_api_keys/{key}", "Change an admin key", page).Takes(updateAdminKeyBody,
			updateAdminKeyRequest{}).Gives(adminKey{}),
		route("DELETE /v1/organization/admin_api_keys/{key}", "Delete an admin key", page),
		route("POST /v1/organization/projects", "Create a project", page),
		route("GET /v1/organization/projects", "List projects", page),
		route("GET /v1/organization/projects/{project}", "Get a project", page),
		route("POST /v1/organization/projects/{project}", "Rename or limit a project", page),
		route("POST /v1/organization/projects/{project}/archive", "Archive a project and erase its data", page),
		route("POST /v1/organization/projects/{project}/api_keys", "Create a key of a project",
			page).Takes(createKeyBody, createKeyRequest{}).Gives(projectKey{}),
		route("GET /v1/organization/projects/{project}/api_keys", "List the keys of a project", page),
		route("GET /v1/organization/projects/{project}/api_keys/{key}", "Get a key of a project", page),
		route("POST /v1/organization/projects/{project}/api_keys/{key}", "Change a key of a project",
			page).Takes(updateKeyBody, updateKeyRequest{}).Gives(projectKey{}),
		route("DELETE /v1/organization/projects/{project}/api_keys/{key}", "Delete a key of a project", page),
	}
}

func modelRoutes() []*reference.Route {
	return []*reference.Route{
		route("GET /v1/models", "List models", "models.md"),
		route("GET /v1/models/{model...}", "Get a model", "models.md"),
		route("DELETE /v1/models/{model...}", "Refuse to delete a model", "divergences.md"),
		route("GET /v1/upstreams", "List the upstreams of models, for keys of the default project",
			"models.md").Gives(upstreamList{}),
	}
}
