package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// An Access returns why the caller of a request may not use a route, by its pattern, or nil. Of the permissions that
// are given, the caller needs one too: a route may serve several kinds of operations.
type Access func(r *http.Request) func(route string, needed ...berth.Permission) error

// accessOf returns what callers may do by the table of permissions.
func accessOf(ex *exchange.Server) Access {
	return func(r *http.Request) func(string, ...berth.Permission) error {
		access := ex.Access(r)
		return func(route string, needed ...berth.Permission) error {
			rt := exchange.On(route, nil)
			rt.Permission = permissions[route]
			for _, p := range needed {
				rt.Permission &= p
			}
			return access(rt)
		}
	}
}

// Names for the table of permissions.
const (
	toRead      = berth.MayRead
	toRun       = berth.MayRun
	toAttach    = berth.MayAttach
	toApprove   = berth.MayApprove
	toManage    = berth.MayManage
	toReadUsage = berth.MayReadUsage
	toReadAudit = berth.MayReadAudit
	toReadAll   = berth.MayReadOrganization
	toManageAll = berth.MayManageOrganization
	toProvision = berth.MayProvision
)

// permissions is what callers need for each route of all doors, by its pattern. A route without a line refuses
// everyone. Where several are joined, one is enough to be let in: the handler checks what is asked for. The table of
// docs/sign-in.md is made from it, and TestPermissions tries each role on each route.
var permissions = map[string]berth.Permission{
	"GET /v1/whoami": toRead | toRun | toAttach | toApprove | toManage | toReadUsage | toReadAudit | toReadAll |
		toManageAll | toProvision,

	"POST /v1/responses":                   toRun | toApprove,
	"GET /v1/responses":                    toRead,
	"POST /v1/responses/input_tokens":      toRun,
	"POST /v1/responses/compact":           toRun,
	"GET /v1/responses/{response}":         toRead,
	"DELETE /v1/responses/{response}":      toRun,
	"POST /v1/responses/{response}/cancel": toRun,
	"GET /v1/responses/{response}/bundle":  toRead,
	"POST /v1/responses/{response}/replay": toRun,
	"POST /v1/bundles":                     toRun,

	"GET /v1/responses/{response}/input_items": toRead,

	"POST /v1/conversations":                               toRun,
	"GET /v1/conversations":                                toRead,
	"GET /v1/conversations/{conversation}":                 toRead,
	"POST /v1/conversations/{conversation}":                toRun,
	"DELETE /v1/conversations/{conversation}":              toRun,
	"POST /v1/conversations/{conversation}/items":          toRun,
	"GET /v1/conversations/{conversation}/items":           toRead,
	"GET /v1/conversations/{conversation}/items/{item}":    toRead,
	"DELETE /v1/conversations/{conversation}/items/{item}": toRun,

	"POST /v1/chat/completions":                      toRun,
	"GET /v1/chat/completions":                       toRead,
	"GET /v1/chat/completions/{completion}":          toRead,
	"POST /v1/chat/completions/{completion}":         toRun,
	"DELETE /v1/chat/completions/{completion}":       toRun,
	"GET /v1/chat/completions/{completion}/messages": toRead,

	"POST /v1/embeddings":  toRun,
	"POST /v1/moderations": toRun,

	"POST /v1/files":               toRun,
	"GET /v1/files":                toRead,
	"GET /v1/files/{file}":         toRead,
	"GET /v1/files/{file}/content": toRead,
	"DELETE /v1/files/{file}":      toRun,

	"POST /v1/uploads":                   toRun,
	"POST /v1/uploads/{upload}/parts":    toRun,
	"POST /v1/uploads/{upload}/complete": toRun,
	"POST /v1/uploads/{upload}/cancel":   toRun,

	"POST /v1/skills":                                   toManage,
	"GET /v1/skills":                                    toRead,
	"GET /v1/skills/{skill}":                            toRead,
	"POST /v1/skills/{skill}":                           toManage,
	"DELETE /v1/skills/{skill}":                         toManage,
	"GET /v1/skills/{skill}/content":                    toRead,
	"POST /v1/skills/{skill}/versions":                  toManage,
	"GET /v1/skills/{skill}/versions":                   toRead,
	"GET /v1/skills/{skill}/versions/{version}":         toRead,
	"DELETE /v1/skills/{skill}/versions/{version}":      toManage,
	"GET /v1/skills/{skill}/versions/{version}/content": toRead,

	"POST /v1/batches":                toRun,
	"GET /v1/batches":                 toRead,
	"GET /v1/batches/{batch}":         toRead,
	"POST /v1/batches/{batch}/cancel": toRun,

	"POST /v1/containers":                                 toRun,
	"GET /v1/containers":                                  toRead,
	"GET /v1/containers/{container}":                      toRead,
	"DELETE /v1/containers/{container}":                   toRun,
	"GET /v1/containers/{container}/audit":                toRead,
	"POST /v1/containers/{container}/files":               toRun,
	"GET /v1/containers/{container}/files":                toRead,
	"GET /v1/containers/{container}/watch":                toRead,
	"GET /v1/containers/{container}/archive":              toRead,
	"GET /v1/containers/{container}/files/{file}":         toRead,
	"GET /v1/containers/{container}/files/{file}/content": toRead,
	"DELETE /v1/containers/{container}/files/{file}":      toRun,
	"POST /v1/containers/{container}/exec":                toAttach,
	"POST /v1/containers/{container}/snapshots":           toRun,
	"POST /v1/containers/{container}/fork":                toRun,
	"POST /v1/containers/{container}/forks":               toRun,
	"POST /v1/containers/{container}/pause":               toRun,
	"POST /v1/containers/{container}/resume":              toRun,
	"GET /v1/containers/{container}/logs":                 toRead,
	"GET /v1/containers/{container}/stats":                toRead,
	"GET /v1/containers/{container}/stats/history":        toRead,
	"GET /v1/containers/{container}/ports/{port}":         toAttach,
	"POST /v1/containers/{container}/ports/{port}":        toAttach,
	"/v1/containers/{container}/ports/{port}/{path...}":   toAttach,

	"GET /v1/containers/{container}/ssh": toAttach, // also connections to the listener of SSH

	"GET /v1/approvals":             toRead,
	"GET /v1/approvals/{approval}":  toRead,
	"POST /v1/approvals/{approval}": toApprove,

	"POST /v1/ssh_keys":             toAttach, // a public key may do what its caller may
	"GET /v1/ssh_keys":              toRead,
	"GET /v1/ssh_keys/{ssh_key}":    toRead,
	"DELETE /v1/ssh_keys/{ssh_key}": toAttach, // one of another key only with toManage

	"POST /v1/schedules":                toRun, // it may do what its caller may
	"GET /v1/schedules":                 toRead,
	"GET /v1/schedules/{schedule}":      toRead,
	"POST /v1/schedules/{schedule}":     toRun, // one of another key only with toManage, as the next two
	"DELETE /v1/schedules/{schedule}":   toRun,
	"POST /v1/schedules/{schedule}/run": toRun,
	"GET /v1/schedules/{schedule}/runs": toRead,

	"POST /v1/volumes":            toManage,
	"GET /v1/volumes":             toRead,
	"GET /v1/volumes/{volume}":    toRead,
	"DELETE /v1/volumes/{volume}": toManage,

	"GET /v1/snapshots":               toRead,
	"GET /v1/snapshots/{snapshot}":    toRead,
	"DELETE /v1/snapshots/{snapshot}": toRun,

	"GET /v1/templates":            toRead,
	"GET /v1/templates/{template}": toRead,

	"POST /v1/vector_stores":                                            toRun,
	"GET /v1/vector_stores":                                             toRead,
	"GET /v1/vector_stores/{vector_store}":                              toRead,
	"POST /v1/vector_stores/{vector_store}":                             toRun,
	"DELETE /v1/vector_stores/{vector_store}":                           toRun,
	"POST /v1/vector_stores/{vector_store}/search":                      toRun,
	"POST /v1/vector_stores/{vector_store}/files":                       toRun,
	"GET /v1/vector_stores/{vector_store}/files":                        toRead,
	"GET /v1/vector_stores/{vector_store}/files/{file}":                 toRead,
	"POST /v1/vector_stores/{vector_store}/files/{file}":                toRun,
	"DELETE /v1/vector_stores/{vector_store}/files/{file}":              toRun,
	"GET /v1/vector_stores/{vector_store}/files/{file}/content":         toRead,
	"POST /v1/vector_stores/{vector_store}/file_batches":                toRun,
	"GET /v1/vector_stores/{vector_store}/file_batches/{batch}":         toRead,
	"POST /v1/vector_stores/{vector_store}/file_batches/{batch}/cancel": toRun,
	"GET /v1/vector_stores/{vector_store}/file_batches/{batch}/files":   toRead,

	"POST /v1/prompts":                  toManage,
	"GET /v1/prompts":                   toRead,
	"GET /v1/prompts/{prompt}":          toRead,
	"POST /v1/prompts/{prompt}":         toManage,
	"DELETE /v1/prompts/{prompt}":       toManage,
	"GET /v1/prompts/{prompt}/versions": toRead,

	"POST /v1/assistants":               toManage,
	"GET /v1/assistants":                toRead,
	"GET /v1/assistants/{assistant}":    toRead,
	"POST /v1/assistants/{assistant}":   toManage,
	"DELETE /v1/assistants/{assistant}": toManage,

	"POST /v1/threads":                                         toRun,
	"POST /v1/threads/runs":                                    toRun,
	"GET /v1/threads":                                          toRead,
	"GET /v1/threads/{thread}":                                 toRead,
	"POST /v1/threads/{thread}":                                toRun,
	"DELETE /v1/threads/{thread}":                              toRun,
	"POST /v1/threads/{thread}/messages":                       toRun,
	"GET /v1/threads/{thread}/messages":                        toRead,
	"GET /v1/threads/{thread}/messages/{message}":              toRead,
	"POST /v1/threads/{thread}/messages/{message}":             toRun,
	"DELETE /v1/threads/{thread}/messages/{message}":           toRun,
	"POST /v1/threads/{thread}/runs":                           toRun,
	"GET /v1/threads/{thread}/runs":                            toRead,
	"GET /v1/threads/{thread}/runs/{run}":                      toRead,
	"POST /v1/threads/{thread}/runs/{run}":                     toRun,
	"POST /v1/threads/{thread}/runs/{run}/cancel":              toRun,
	"POST /v1/threads/{thread}/runs/{run}/submit_tool_outputs": toRun,
	"GET /v1/threads/{thread}/runs/{run}/steps":                toRead,
	"GET /v1/threads/{thread}/runs/{run}/steps/{step}":         toRead,

	"POST /v1/traces/ingest":       toRun,
	"GET /v1/traces":               toRead,
	"GET /v1/traces/{trace}":       toRead,
	"GET /v1/traces/{trace}/spans": toRead,
	"DELETE /v1/traces/{trace}":    toManage,

	"POST /v1/webhook_endpoints":                                           toManage,
	"GET /v1/webhook_endpoints":                                            toRead,
	"GET /v1/webhook_endpoints/{webhook}":                                  toRead,
	"POST /v1/webhook_endpoints/{webhook}":                                 toManage,
	"DELETE /v1/webhook_endpoints/{webhook}":                               toManage,
	"POST /v1/webhook_endpoints/{webhook}/rotate_secret":                   toManage,
	"POST /v1/webhook_endpoints/{webhook}/test":                            toManage,
	"GET /v1/webhook_endpoints/{webhook}/deliveries":                       toRead,
	"POST /v1/webhook_endpoints/{webhook}/deliveries/{delivery}/redeliver": toManage,

	"GET /v1/webhook_event_types": toRead,

	"GET /v1/end_users":                toRead,
	"GET /v1/end_users/{user}":         toRead,
	"POST /v1/end_users/{user}":        toManage,
	"DELETE /v1/end_users/{user}":      toManage,
	"GET /v1/end_users/{user}/objects": toRead,
	"GET /v1/end_users/{user}/usage":   toRead,
	"GET /v1/end_user_settings":        toRead,
	"POST /v1/end_user_settings":       toManage,

	"GET /v1/retention":                  toRead,
	"POST /v1/retention":                 toManage,
	"GET /v1/retention/records":          toRead,
	"GET /v1/retention/records/{record}": toRead,
	"POST /v1/holds":                     toManage,
	"GET /v1/holds":                      toRead,
	"GET /v1/holds/{hold}":               toRead,
	"DELETE /v1/holds/{hold}":            toManage, // one of the organization not at all

	"POST /v1/organization/projects/{project}/holds":          toManageAll,
	"GET /v1/organization/projects/{project}/holds":           toReadAll,
	"DELETE /v1/organization/projects/{project}/holds/{hold}": toManageAll,

	"GET /v1/organization/costs":                                toReadUsage,
	"GET /v1/organization/status":                               toReadUsage,
	"GET /v1/refused_connections":                               toRead,
	"GET /v1/organization/audit":                                toReadAudit,
	"POST /v1/organization/audit/verify":                        toReadAudit,
	"GET /v1/organization/spend":                                toReadUsage,
	"GET /v1/organization/usage/completions":                    toReadUsage,
	"GET /v1/organization/usage/embeddings":                     toReadUsage,
	"GET /v1/organization/usage/moderations":                    toReadUsage,
	"GET /v1/organization/usage/code_interpreter_sessions":      toReadUsage,
	"GET /v1/organization/usage/tool_calls":                     toReadUsage,
	"POST /v1/organization/admin_api_keys":                      toManageAll,
	"GET /v1/organization/admin_api_keys":                       toReadAll,
	"GET /v1/organization/admin_api_keys/{key}":                 toReadAll,
	"POST /v1/organization/admin_api_keys/{key}":                toManageAll,
	"DELETE /v1/organization/admin_api_keys/{key}":              toManageAll,
	"POST /v1/organization/projects":                            toManageAll,
	"GET /v1/organization/projects":                             toReadAll,
	"GET /v1/organization/projects/{project}":                   toReadAll,
	"POST /v1/organization/projects/{project}":                  toManageAll,
	"POST /v1/organization/projects/{project}/archive":          toManageAll,
	"POST /v1/organization/projects/{project}/api_keys":         toManageAll,
	"GET /v1/organization/projects/{project}/api_keys":          toReadAll,
	"GET /v1/organization/projects/{project}/api_keys/{key}":    toReadAll,
	"POST /v1/organization/projects/{project}/api_keys/{key}":   toManageAll,
	"DELETE /v1/organization/projects/{project}/api_keys/{key}": toManageAll,

	"GET /v1/upstreams": toRead,

	"GET /v1/models":               toRead,
	"GET /v1/models/{model...}":    toRead,
	"DELETE /v1/models/{model...}": toManage,

	"/v1/containers/{container}/guest/{path...}": toAttach,

	// Anthropic's Messages API. Files, skills and models have the paths of OpenAI's.
	"POST /v1/messages":                        toRun,
	"POST /v1/messages/count_tokens":           toRun,
	"POST /v1/messages/batches":                toRun,
	"GET /v1/messages/batches":                 toRead,
	"GET /v1/messages/batches/{batch}":         toRead,
	"DELETE /v1/messages/batches/{batch}":      toRun,
	"POST /v1/messages/batches/{batch}/cancel": toRun,
	"GET /v1/messages/batches/{batch}/results": toRead,

	// MCP.
	"POST /mcp":   toAttach,
	"GET /mcp":    toAttach,
	"DELETE /mcp": toAttach,

	// LibreChat's code API.
	"POST /librechat/v1/exec":                               toAttach,
	"POST /librechat/v1/exec/programmatic":                  toAttach,
	"POST /librechat/v1/upload":                             toAttach,
	"GET /librechat/v1/files/{session}":                     toAttach,
	"GET /librechat/v1/sessions/{session}/objects/{object}": toAttach,
	"GET /librechat/v1/download/{session}/{object}":         toAttach,
	"DELETE /librechat/v1/files/{session}/{object}":         toAttach,

	// SWE-ReX.
	"GET /swerex/{container}/is_alive":        toAttach,
	"POST /swerex/{container}/create_session": toAttach,
	"POST /swerex/{container}/run_in_session": toAttach,
	"POST /swerex/{container}/close_session":  toAttach,
	"POST /swerex/{container}/execute":        toAttach,
	"POST /swerex/{container}/read_file":      toAttach,
	"POST /swerex/{container}/write_file":     toAttach,
	"POST /swerex/{container}/upload":         toAttach,
	"POST /swerex/{container}/close":          toAttach,

	// Open Terminal.
	"GET /open-terminal/system":                      toAttach,
	"GET /open-terminal/execute":                     toAttach,
	"POST /open-terminal/execute":                    toAttach,
	"GET /open-terminal/execute/{process}/status":    toAttach,
	"POST /open-terminal/execute/{process}/input":    toAttach,
	"DELETE /open-terminal/execute/{process}":        toAttach,
	"GET /open-terminal/files/cwd":                   toAttach,
	"POST /open-terminal/files/cwd":                  toAttach,
	"GET /open-terminal/files/list":                  toAttach,
	"GET /open-terminal/files/read":                  toAttach,
	"GET /open-terminal/files/display":               toAttach,
	"GET /open-terminal/files/view":                  toAttach,
	"GET /open-terminal/files/serve/{path...}":       toAttach,
	"POST /open-terminal/files/write":                toAttach,
	"POST /open-terminal/files/replace":              toAttach,
	"POST /open-terminal/files/mkdir":                toAttach,
	"DELETE /open-terminal/files/delete":             toAttach,
	"POST /open-terminal/files/move":                 toAttach,
	"POST /open-terminal/files/compare":              toAttach,
	"GET /open-terminal/files/grep":                  toAttach,
	"GET /open-terminal/files/glob":                  toAttach,
	"GET /open-terminal/files/search":                toAttach,
	"GET /open-terminal/files/matches":               toAttach,
	"POST /open-terminal/files/upload":               toAttach,
	"POST /open-terminal/files/archive":              toAttach,
	"GET /open-terminal/skills":                      toAttach,
	"GET /open-terminal/skills/read":                 toAttach,
	"GET /open-terminal/ports":                       toAttach,
	"/open-terminal/proxy/{port}/{path...}":          toAttach,
	"POST /open-terminal/api/terminals":              toAttach,
	"GET /open-terminal/api/terminals":               toAttach,
	"GET /open-terminal/api/terminals/{terminal}":    toAttach,
	"DELETE /open-terminal/api/terminals/{terminal}": toAttach,
	"GET /open-terminal/api/terminals/user/output":   toAttach,
	"POST /open-terminal/api/terminals/user/input":   toAttach,

	// E2B. The last routes have identities of their own: tokens and URLs that were made for a key.
	"POST /sandboxes":                                 toRun,
	"POST /v2/sandboxes":                              toRun,
	"GET /sandboxes":                                  toRead,
	"GET /v2/sandboxes":                               toRead,
	"GET /sandboxes/{sandbox}":                        toRead,
	"DELETE /sandboxes/{sandbox}":                     toRun,
	"GET /sandboxes/{sandbox}/metrics":                toRead,
	"POST /sandboxes/{sandbox}/timeout":               toRun,
	"PUT /sandboxes/{sandbox}/network":                toRun,
	"POST /sandboxes/{sandbox}/refreshes":             toRun,
	"POST /sandboxes/{sandbox}/pause":                 toRun,
	"POST /sandboxes/{sandbox}/resume":                toRun,
	"POST /sandboxes/{sandbox}/connect":               toRun,
	"POST /v2/sandboxes/{sandbox}/connect":            toRun,
	"POST /sandboxes/{sandbox}/snapshots":             toRun,
	"POST /sandboxes/{sandbox}/fork":                  toRun,
	"GET /sandboxes/metrics":                          toRead,
	"GET /sandboxes/{sandbox}/logs":                   toRead,
	"GET /v2/sandboxes/{sandbox}/logs":                toRead,
	"GET /snapshots":                                  toRead,
	"GET /events/sandboxes":                           toRead,
	"GET /events/sandboxes/{sandbox}":                 toRead,
	"POST /events/webhooks":                           toManage,
	"GET /events/webhooks":                            toRead,
	"GET /events/webhooks/{webhook}":                  toRead,
	"PATCH /events/webhooks/{webhook}":                toManage,
	"DELETE /events/webhooks/{webhook}":               toManage,
	"POST /secrets":                                   toManage,
	"GET /secrets":                                    toRead,
	"GET /secrets/{secret}":                           toRead,
	"POST /secrets/{secret}":                          toManage,
	"DELETE /secrets/{secret}":                        toManage,
	"POST /volumes":                                   toManage,
	"GET /volumes":                                    toRead,
	"GET /volumes/{volume}":                           toRead,
	"DELETE /volumes/{volume}":                        toManage,
	"POST /v3/templates":                              toManage,
	"POST /v2/templates":                              toManage,
	"GET /v2/templates":                               toRead,
	"GET /templates":                                  toRead,
	"GET /templates/{template}":                       toRead,
	"PATCH /v2/templates/{template}":                  toManage,
	"DELETE /templates/{template}":                    toManage,
	"GET /templates/{template}/{part}":                toRead,
	"POST /templates/tags":                            toManage,
	"DELETE /templates/tags":                          toManage,
	"GET /templates/{template}/files/{hash}":          toManage,
	"POST /v2/templates/{template}/builds/{build}":    toManage,
	"GET /templates/{template}/builds/{build}/status": toRead,
	"GET /templates/{template}/builds/{build}/logs":   toRead,
	"E2B sandbox":                                     toAttach,
	"/volumecontent/{path...}":                        toAttach,
	"PUT /e2b/uploads/{upload...}":                    toManage,

	// SCIM, for the provider of identities.
	"GET /scim/v2/ServiceProviderConfig": toProvision,
	"GET /scim/v2/ResourceTypes":         toProvision,
	"GET /scim/v2/ResourceTypes/{type}":  toProvision,
	"GET /scim/v2/Schemas":               toProvision,
	"GET /scim/v2/Schemas/{schema}":      toProvision,
	"GET /scim/v2/Users":                 toProvision,
	"POST /scim/v2/Users":                toProvision,
	"GET /scim/v2/Users/{user}":          toProvision,
	"PUT /scim/v2/Users/{user}":          toProvision,
	"PATCH /scim/v2/Users/{user}":        toProvision,
	"DELETE /scim/v2/Users/{user}":       toProvision,
	"GET /scim/v2/Groups":                toProvision,
	"POST /scim/v2/Groups":               toProvision,
	"GET /scim/v2/Groups/{group}":        toProvision,
	"PUT /scim/v2/Groups/{group}":        toProvision,
	"PATCH /scim/v2/Groups/{group}":      toProvision,
	"DELETE /scim/v2/Groups/{group}":     toProvision,

	// Ports of containers under hosts of their own and by links.
	"preview host":              toAttach,
	"/preview/{link}/{path...}": toAttach,
}
