package api_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/approvals"
	"github.com/berth-run/berth/store"
)

// probed lists for each route the requests that refer to objects: in the path, the query or
// the body. {x} is the id of an x of another project or of no project, $x that of one of
// the caller's own. To add a route, add a line; a route whose requests refer to no object
// has an empty list.
//
// A request with the id of another project's object must get the same answer as one with an
// unknown id, byte for byte except for the id. With a leading +, the answer may be a
// success, because the object is not looked up yet.
var probed = map[string][]string{
	"POST /v1/responses": {
		`/v1/responses {"model":"scripted","input":"x","previous_response_id":"{response}"}`,
		`/v1/responses {"model":"scripted","input":"x","previous_response_id":"{response}","stream":true}`,
		`/v1/responses {"model":"scripted","input":"x","previous_response_id":"{response}","background":true}`,
		`/v1/responses {"model":"scripted","input":"x","conversation":"{conversation}"}`,
		`/v1/responses {"model":"scripted","input":"x","conversation":{"id":"{conversation}"}}`,
		`/v1/responses {"model":"scripted","prompt":{"id":"{prompt}"}}`,
		`/v1/responses {"model":"scripted","prompt":{"id":"{prompt}","version":"1"}}`,
		`/v1/responses {"model":"scripted","prompt":{"id":"$prompt","variables":{"f":{"type":"input_file","file_id":"{file}"}}}}`,
		`/v1/responses {"model":"scripted","input":[{"type":"item_reference","id":"{item}"}]}`,
		`/v1/responses {"model":"scripted","input":[{"type":"item_reference","id":"{item}"}],"previous_response_id":"$response"}`,
		`/v1/responses {"model":"scripted","input":[{"type":"item_reference","id":"{conversation_item}"}],"conversation":"$conversation"}`,
		`/v1/responses {"model":"scripted","input":[{"role":"user","content":[{"type":"input_file","file_id":"{file}"}]}]}`,
		`/v1/responses {"model":"scripted","input":[{"role":"user","content":[{"type":"input_image","file_id":"{file}"}]}]}`,
		`/v1/responses {"model":"scripted","input":"x","tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"{container}"}}]}`,
		`/v1/responses {"model":"scripted","input":"x","tools":[{"type":"shell","environment":{"type":"container_auto","file_ids":["{file}"]}}]}`,
		`/v1/responses {"model":"scripted","input":"x","tools":[{"type":"file_search","vector_store_ids":["$vector_store","{vector_store}"]}]}`,
		`/v1/responses {"model":"scripted","input":"x","tools":[{"type":"shell","environment":{"type":"container_auto","berth":{"snapshot_id":"{snapshot}"}}}]}`,
		`/v1/responses {"model":"scripted","input":"x","tools":[{"type":"shell","environment":{"type":"container_auto","berth":{"volumes":[{"name":"{volume_name}"}]}}}]}`,
		`/v1/responses {"model":"scripted","input":"x","background":true,"tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"{container}"}}]}`,
		`/v1/responses {"model":"scripted","previous_response_id":"$response","input":[{"type":"shell_call_output","call_id":"{call}","output":[]}]}`,
	},
	"GET /v1/responses": {`/v1/responses?after={response}`}, // or a socket: what it names goes the same way
	"POST /v1/responses/input_tokens": {
		`/v1/responses/input_tokens {"model":"scripted","input":"x","previous_response_id":"{response}"}`,
		`/v1/responses/input_tokens {"model":"scripted","input":"x","conversation":"{conversation}"}`,
		`/v1/responses/input_tokens {"model":"scripted","input":[{"role":"user","content":[{"type":"input_file","file_id":"{file}"}]}]}`,
		`/v1/responses/input_tokens {"model":"scripted","input":[{"type":"item_reference","id":"{item}"}]}`,
		`+/v1/responses/input_tokens {"model":"scripted","input":"x","tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"{container}"}}]}`,
	},
	"POST /v1/responses/compact": {
		`/v1/responses/compact {"model":"scripted","input":"x","previous_response_id":"{response}"}`,
		`/v1/responses/compact {"model":"scripted","input":[{"role":"user","content":[{"type":"input_file","file_id":"{file}"}]}]}`,
	},
	"GET /v1/responses/{response}":         {`/v1/responses/{response}`, `/v1/responses/{response}?stream=true`},
	"DELETE /v1/responses/{response}":      {`/v1/responses/{response}`},
	"POST /v1/responses/{response}/cancel": {`/v1/responses/{response}/cancel`},
	"GET /v1/responses/{response}/bundle":  {`/v1/responses/{response}/bundle`},
	"POST /v1/responses/{response}/replay": {`/v1/responses/{response}/replay {}`},
	"POST /v1/bundles":                     {},
	"GET /v1/responses/{response}/input_items": {`/v1/responses/{response}/input_items`,
		`/v1/responses/$response/input_items?after={item}`},

	"GET /v1/whoami": {},

	"POST /v1/conversations":                      {`/v1/conversations {"items":[{"type":"item_reference","id":"{item}"}]}`},
	"GET /v1/conversations":                       {`/v1/conversations?after={conversation}`},
	"GET /v1/conversations/{conversation}":        {`/v1/conversations/{conversation}`},
	"POST /v1/conversations/{conversation}":       {`/v1/conversations/{conversation} {"metadata":{}}`},
	"DELETE /v1/conversations/{conversation}":     {`/v1/conversations/{conversation}`},
	"POST /v1/conversations/{conversation}/items": {`/v1/conversations/{conversation}/items {"items":[{"role":"user","content":"x"}]}`},
	"GET /v1/conversations/{conversation}/items": {`/v1/conversations/{conversation}/items`,
		`/v1/conversations/$conversation/items?after={conversation_item}`},
	"GET /v1/conversations/{conversation}/items/{item}": {`/v1/conversations/{conversation}/items/{conversation_item}`,
		`/v1/conversations/$conversation/items/{conversation_item}`},
	"DELETE /v1/conversations/{conversation}/items/{item}": {`/v1/conversations/{conversation}/items/{conversation_item}`,
		`/v1/conversations/$conversation/items/{conversation_item}`},
	"POST /v1/chat/completions":                      {`/v1/chat/completions {"model":"scripted","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"{file}"}}]}]}`},
	"GET /v1/chat/completions":                       {`/v1/chat/completions?after={completion}`},
	"GET /v1/chat/completions/{completion}":          {`/v1/chat/completions/{completion}`},
	"POST /v1/chat/completions/{completion}":         {`/v1/chat/completions/{completion} {"metadata":{}}`},
	"DELETE /v1/chat/completions/{completion}":       {`/v1/chat/completions/{completion}`},
	"GET /v1/chat/completions/{completion}/messages": {`/v1/chat/completions/{completion}/messages`},
	"POST /v1/messages": {
		`/v1/messages {"model":"scripted","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"{file}"}}]}]}`,
		`/v1/messages {"model":"scripted","max_tokens":9,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"{file}"}}]}]}`,
		`/v1/messages {"model":"scripted","max_tokens":9,"messages":[{"role":"user","content":[{"type":"container_upload","file_id":"{file}"}]}],"tools":[{"type":"code_execution_20250825","name":"code_execution"}]}`,
		`/v1/messages {"model":"scripted","max_tokens":9,"messages":[{"role":"user","content":"x"}],"container":"{container}","tools":[{"type":"code_execution_20250825","name":"code_execution"}]}`,
		`/v1/messages {"model":"scripted","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"x"}],"container":"{container}","tools":[{"type":"code_execution_20250825","name":"code_execution"}]}`,
		`/v1/messages {"model":"scripted","max_tokens":9,"messages":[{"role":"user","content":"x"}],"container":{"skills":[{"type":"custom","skill_id":"{skill}"}]},"tools":[{"type":"code_execution_20250825","name":"code_execution"}]}`,
	},
	"POST /v1/messages/count_tokens": {
		`/v1/messages/count_tokens {"model":"scripted","messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"{file}"}}]}]}`,
	},
	"POST /v1/messages/batches": {},
	"GET /v1/messages/batches": {`/v1/messages/batches?after_id={message_batch}`,
		`/v1/messages/batches?before_id={message_batch}`},
	"GET /v1/messages/batches/{batch}":         {`/v1/messages/batches/{message_batch}`},
	"DELETE /v1/messages/batches/{batch}":      {`/v1/messages/batches/{message_batch}`},
	"POST /v1/messages/batches/{batch}/cancel": {`/v1/messages/batches/{message_batch}/cancel`},
	"GET /v1/messages/batches/{batch}/results": {`/v1/messages/batches/{message_batch}/results`},
	"POST /v1/embeddings":                      {},
	"POST /v1/moderations":                     {},
	"POST /v1/files":                           {},
	"GET /v1/files":                            {`/v1/files?after={file}`},
	"GET /v1/files/{file}":                     {`/v1/files/{file}`},
	"GET /v1/files/{file}/content":             {`/v1/files/{file}/content`},
	"DELETE /v1/files/{file}":                  {`/v1/files/{file}`},
	"POST /v1/batches":                         {`/v1/batches {"input_file_id":"{file}","endpoint":"/v1/responses","completion_window":"24h"}`},
	"GET /v1/batches":                          {`/v1/batches?after={requests}`},
	"GET /v1/batches/{batch}":                  {`/v1/batches/{requests}`},
	"POST /v1/batches/{batch}/cancel":          {`/v1/batches/{requests}/cancel`},
	"POST /v1/uploads":                         {},
	"POST /v1/uploads/{upload}/parts":          {`/v1/uploads/{upload}/parts`},
	"POST /v1/uploads/{upload}/complete": {`/v1/uploads/{upload}/complete {"part_ids":["{part}"]}`,
		`/v1/uploads/$upload/complete {"part_ids":["{part}"]}`},
	"POST /v1/uploads/{upload}/cancel": {`/v1/uploads/{upload}/cancel`},
	"POST /v1/skills":                  {},
	"GET /v1/skills":                   {`/v1/skills?after={skill}`},
	"GET /v1/skills/{skill}":           {`/v1/skills/{skill}`},
	"POST /v1/skills/{skill}":          {`/v1/skills/{skill} {"default_version":"1"}`},
	"DELETE /v1/skills/{skill}":        {`/v1/skills/{skill}`},
	"GET /v1/skills/{skill}/content":   {`/v1/skills/{skill}/content`},
	"POST /v1/skills/{skill}/versions": {`/v1/skills/{skill}/versions`},
	"GET /v1/skills/{skill}/versions": {`/v1/skills/{skill}/versions`,
		`/v1/skills/$skill/versions?after={skill_version}`},
	"GET /v1/skills/{skill}/versions/{version}":         {`/v1/skills/{skill}/versions/1`},
	"DELETE /v1/skills/{skill}/versions/{version}":      {`/v1/skills/{skill}/versions/1`},
	"GET /v1/skills/{skill}/versions/{version}/content": {`/v1/skills/{skill}/versions/1/content`},
	"POST /v1/containers": {`/v1/containers {"name":"x","file_ids":["{file}"]}`,
		`/v1/containers {"name":"x","skills":[{"type":"skill_reference","skill_id":"{skill}"}]}`,
		`/v1/containers {"name":"x","berth":{"snapshot_id":"{snapshot}"}}`,
		`/v1/containers {"name":"x","berth":{"volumes":[{"name":"{volume_name}"}]}}`,
		`/v1/containers {"name":"x","berth":{"volumes":[{"name":"x"},{"name":"{volume_name}"}]}}`},
	"GET /v1/containers":                   {`/v1/containers?after={container}`},
	"GET /v1/containers/{container}":       {`/v1/containers/{container}`},
	"DELETE /v1/containers/{container}":    {`/v1/containers/{container}`},
	"GET /v1/containers/{container}/audit": {`/v1/containers/{container}/audit`},
	"POST /v1/containers/{container}/files": {`/v1/containers/{container}/files {"file_id":"$file"}`,
		`/v1/containers/$container/files {"file_id":"{file}"}`},
	"GET /v1/containers/{container}/files": {`/v1/containers/{container}/files`,
		`/v1/containers/$container/files?after={container_file}`},
	"GET /v1/containers/{container}/watch":   {`/v1/containers/{container}/watch`},
	"GET /v1/containers/{container}/archive": {`/v1/containers/{container}/archive`},
	"GET /v1/containers/{container}/files/{file}": {`/v1/containers/{container}/files/{container_file}`,
		`/v1/containers/$container/files/{container_file}`},
	"GET /v1/containers/{container}/files/{file}/content": {`/v1/containers/{container}/files/{container_file}/content`,
		`/v1/containers/$container/files/{container_file}/content`},
	"DELETE /v1/containers/{container}/files/{file}": {`/v1/containers/{container}/files/{container_file}`,
		`/v1/containers/$container/files/{container_file}`},
	"POST /v1/containers/{container}/snapshots": {`/v1/containers/{container}/snapshots {"name":"x"}`},
	"POST /v1/containers/{container}/exec":      {`/v1/containers/{container}/exec {"command":["true"]}`},
	"POST /v1/containers/{container}/fork":      {`/v1/containers/{container}/fork {"name":"x"}`},
	"POST /v1/containers/{container}/forks":     {`/v1/containers/{container}/forks {"name":"x","count":2}`},
	"GET /v1/containers/{container}/ssh":        {`/v1/containers/{container}/ssh`},
	"GET /v1/approvals":                         {`/v1/approvals?after={approval}`},
	"GET /v1/approvals/{approval}":              {`/v1/approvals/{approval}`},
	"POST /v1/approvals/{approval}":             {`/v1/approvals/{approval} {"approve":true}`},
	"POST /v1/ssh_keys":                         nil,
	"GET /v1/ssh_keys":                          {`/v1/ssh_keys?after={ssh_key}`},
	"GET /v1/ssh_keys/{ssh_key}":                {`/v1/ssh_keys/{ssh_key}`},
	"DELETE /v1/ssh_keys/{ssh_key}":             {`/v1/ssh_keys/{ssh_key}`},
	"POST /v1/schedules":                        nil, // its request is checked when it runs: TestScheduleRights
	"GET /v1/schedules":                         {`/v1/schedules?after={schedule}`},
	"GET /v1/schedules/{schedule}":              {`/v1/schedules/{schedule}`},
	"POST /v1/schedules/{schedule}":             {`/v1/schedules/{schedule} {"name":"x"}`},
	"DELETE /v1/schedules/{schedule}":           {`/v1/schedules/{schedule}`},
	"POST /v1/schedules/{schedule}/run":         {`/v1/schedules/{schedule}/run`},
	"GET /v1/schedules/{schedule}/runs": {`/v1/schedules/{schedule}/runs`,
		`/v1/schedules/$schedule/runs?after={schedule_run}`},
	"POST /v1/containers/{container}/pause":  {`/v1/containers/{container}/pause`},
	"POST /v1/containers/{container}/resume": {`/v1/containers/{container}/resume`},
	"POST /v1/vector_stores":                 {`/v1/vector_stores {"file_ids":["{file}"]}`},
	"GET /v1/vector_stores": {`/v1/vector_stores?after={vector_store}`,
		`/v1/vector_stores?before={vector_store}`},
	"GET /v1/vector_stores/{vector_store}":         {`/v1/vector_stores/{vector_store}`},
	"POST /v1/vector_stores/{vector_store}":        {`/v1/vector_stores/{vector_store} {"name":"x"}`},
	"DELETE /v1/vector_stores/{vector_store}":      {`/v1/vector_stores/{vector_store}`},
	"POST /v1/vector_stores/{vector_store}/search": {`/v1/vector_stores/{vector_store}/search {"query":"x"}`},
	"POST /v1/vector_stores/{vector_store}/files": {`/v1/vector_stores/{vector_store}/files {"file_id":"$file"}`,
		`/v1/vector_stores/$vector_store/files {"file_id":"{file}"}`},
	"GET /v1/vector_stores/{vector_store}/files": {`/v1/vector_stores/{vector_store}/files`,
		`/v1/vector_stores/$vector_store/files?after={file}`, `/v1/vector_stores/$vector_store/files?before={file}`},
	"GET /v1/vector_stores/{vector_store}/files/{file}": {`/v1/vector_stores/{vector_store}/files/{file}`,
		`/v1/vector_stores/$vector_store/files/{file}`},
	"POST /v1/vector_stores/{vector_store}/files/{file}": {`/v1/vector_stores/{vector_store}/files/$file {"attributes":{}}`,
		`/v1/vector_stores/$vector_store/files/{file} {"attributes":{}}`},
	"DELETE /v1/vector_stores/{vector_store}/files/{file}": {`/v1/vector_stores/{vector_store}/files/{file}`,
		`/v1/vector_stores/$vector_store/files/{file}`},
	"GET /v1/vector_stores/{vector_store}/files/{file}/content": {`/v1/vector_stores/{vector_store}/files/{file}/content`,
		`/v1/vector_stores/$vector_store/files/{file}/content`},
	"POST /v1/vector_stores/{vector_store}/file_batches": {`/v1/vector_stores/{vector_store}/file_batches {"file_ids":["$file"]}`,
		`/v1/vector_stores/$vector_store/file_batches {"files":[{"file_id":"{file}"}]}`},
	"GET /v1/vector_stores/{vector_store}/file_batches/{batch}": {`/v1/vector_stores/{vector_store}/file_batches/{batch}`,
		`/v1/vector_stores/$vector_store/file_batches/{batch}`},
	"POST /v1/vector_stores/{vector_store}/file_batches/{batch}/cancel": {`/v1/vector_stores/{vector_store}/file_batches/{batch}/cancel`,
		`/v1/vector_stores/$vector_store/file_batches/{batch}/cancel`},
	"GET /v1/vector_stores/{vector_store}/file_batches/{batch}/files": {`/v1/vector_stores/{vector_store}/file_batches/{batch}/files`,
		`/v1/vector_stores/$vector_store/file_batches/{batch}/files`},
	"POST /v1/organization/admin_api_keys":                      {},
	"GET /v1/organization/admin_api_keys":                       {},
	"GET /v1/organization/admin_api_keys/{key}":                 {`/v1/organization/admin_api_keys/{key}`},
	"POST /v1/organization/admin_api_keys/{key}":                {`/v1/organization/admin_api_keys/{key}`},
	"DELETE /v1/organization/admin_api_keys/{key}":              {`/v1/organization/admin_api_keys/{key}`},
	"POST /v1/organization/projects":                            {},
	"GET /v1/organization/projects":                             {},
	"GET /v1/organization/projects/{project}":                   {`/v1/organization/projects/{project}`},
	"POST /v1/organization/projects/{project}":                  {`/v1/organization/projects/{project} {"name":"x"}`},
	"POST /v1/organization/projects/{project}/archive":          {`/v1/organization/projects/{project}/archive`},
	"POST /v1/organization/projects/{project}/api_keys":         {`/v1/organization/projects/{project}/api_keys {"name":"x"}`},
	"GET /v1/organization/projects/{project}/api_keys":          {`/v1/organization/projects/{project}/api_keys`},
	"GET /v1/organization/projects/{project}/api_keys/{key}":    {`/v1/organization/projects/{project}/api_keys/{key}`},
	"POST /v1/organization/projects/{project}/api_keys/{key}":   {`/v1/organization/projects/{project}/api_keys/{key} {"limits":{}}`},
	"DELETE /v1/organization/projects/{project}/api_keys/{key}": {`/v1/organization/projects/{project}/api_keys/{key}`},
	"POST /v1/volumes":                                          {},
	"GET /v1/volumes":                                           {`/v1/volumes?after={volume}`},
	"GET /v1/volumes/{volume}":                                  {`/v1/volumes/{volume}`},
	"DELETE /v1/volumes/{volume}":                               {`/v1/volumes/{volume}`},
	"GET /v1/templates":                                         {}, // the server's own
	// they are the same for all
	"GET /v1/templates/{template}":               {`/v1/templates/{container}`},
	"GET /v1/snapshots":                          {`/v1/snapshots?after={snapshot}`},
	"GET /v1/snapshots/{snapshot}":               {`/v1/snapshots/{snapshot}`},
	"DELETE /v1/snapshots/{snapshot}":            {`/v1/snapshots/{snapshot}`},
	"/v1/containers/{container}/guest/{path...}": {`/v1/containers/{container}/guest/files?path=/mnt/data/a.txt`},
	"GET /v1/containers/{container}/logs": {`/v1/containers/{container}/logs`,
		`/v1/containers/{container}/logs?follow=true`, `/v1/containers/$container/logs?after={log}`},
	"GET /v1/containers/{container}/stats":              {`/v1/containers/{container}/stats`},
	"GET /v1/containers/{container}/stats/history":      {`/v1/containers/{container}/stats/history`},
	"GET /v1/containers/{container}/ports/{port}":       {`/v1/containers/{container}/ports/80`},
	"POST /v1/containers/{container}/ports/{port}":      {`/v1/containers/{container}/ports/80 {}`},
	"/v1/containers/{container}/ports/{port}/{path...}": {`/v1/containers/{container}/ports/80/x`},
	"POST /v1/prompts":                  {},
	"GET /v1/prompts":                   {`/v1/prompts?after={prompt}`},
	"GET /v1/prompts/{prompt}":          {`/v1/prompts/{prompt}`},
	"POST /v1/prompts/{prompt}":         {`/v1/prompts/{prompt} {"name":"y"}`},
	"DELETE /v1/prompts/{prompt}":       {`/v1/prompts/{prompt}`},
	"GET /v1/prompts/{prompt}/versions": {`/v1/prompts/{prompt}/versions`},
	"POST /v1/assistants":               {},
	"GET /v1/assistants": {`/v1/assistants?after={assistant}`,
		`/v1/assistants?before={assistant}`},
	"GET /v1/assistants/{assistant}":    {`/v1/assistants/{assistant}`},
	"POST /v1/assistants/{assistant}":   {`/v1/assistants/{assistant} {"name":"y"}`},
	"DELETE /v1/assistants/{assistant}": {`/v1/assistants/{assistant}`},
	"POST /v1/threads":                  {`+/v1/threads {"messages":[{"role":"user","content":[{"type":"image_file","image_file":{"file_id":"{file}"}}]}]}`},
	"POST /v1/threads/runs": {`/v1/threads/runs {"assistant_id":"{assistant}"}`,
		`/v1/threads/runs {"assistant_id":"{assistant}","stream":true}`},
	"GET /v1/threads":             {`/v1/threads?after={thread}`, `/v1/threads?before={thread}`},
	"GET /v1/threads/{thread}":    {`/v1/threads/{thread}`},
	"POST /v1/threads/{thread}":   {`/v1/threads/{thread} {"metadata":{}}`},
	"DELETE /v1/threads/{thread}": {`/v1/threads/{thread}`},
	"POST /v1/threads/{thread}/messages": {`/v1/threads/{thread}/messages {"role":"user","content":"x"}`,
		`+/v1/threads/$thread/messages {"role":"user","content":[{"type":"image_file","image_file":{"file_id":"{file}"}}]}`},
	"GET /v1/threads/{thread}/messages": {`/v1/threads/{thread}/messages`,
		`/v1/threads/$thread/messages?after={message}`, `+/v1/threads/$thread/messages?run_id={run}`},
	"GET /v1/threads/{thread}/messages/{message}": {`/v1/threads/{thread}/messages/{message}`,
		`/v1/threads/$thread/messages/{message}`},
	"POST /v1/threads/{thread}/messages/{message}": {`/v1/threads/{thread}/messages/{message} {"metadata":{}}`,
		`/v1/threads/$thread/messages/{message} {"metadata":{}}`},
	"DELETE /v1/threads/{thread}/messages/{message}": {`/v1/threads/{thread}/messages/{message}`,
		`/v1/threads/$thread/messages/{message}`},
	"POST /v1/threads/{thread}/runs": {`/v1/threads/{thread}/runs {"assistant_id":"$assistant"}`,
		`/v1/threads/$thread/runs {"assistant_id":"{assistant}"}`,
		`/v1/threads/{thread}/runs {"assistant_id":"$assistant","stream":true}`},
	"GET /v1/threads/{thread}/runs": {`/v1/threads/{thread}/runs`,
		`/v1/threads/$thread/runs?after={run}`},
	"GET /v1/threads/{thread}/runs/{run}": {`/v1/threads/{thread}/runs/{run}`,
		`/v1/threads/$thread/runs/{run}`},
	"POST /v1/threads/{thread}/runs/{run}": {`/v1/threads/{thread}/runs/{run} {"metadata":{}}`,
		`/v1/threads/$thread/runs/{run} {"metadata":{}}`},
	"POST /v1/threads/{thread}/runs/{run}/cancel": {`/v1/threads/{thread}/runs/{run}/cancel`,
		`/v1/threads/$thread/runs/{run}/cancel`},
	"POST /v1/threads/{thread}/runs/{run}/submit_tool_outputs": {`/v1/threads/{thread}/runs/{run}/submit_tool_outputs {"tool_outputs":[]}`,
		`/v1/threads/$thread/runs/{run}/submit_tool_outputs {"tool_outputs":[]}`},
	"GET /v1/threads/{thread}/runs/{run}/steps": {`/v1/threads/{thread}/runs/{run}/steps`,
		`/v1/threads/$thread/runs/{run}/steps`, `/v1/threads/$thread/runs/$run/steps?after={step}`},
	"GET /v1/threads/{thread}/runs/{run}/steps/{step}": {`/v1/threads/{thread}/runs/{run}/steps/{step}`,
		`/v1/threads/$thread/runs/{run}/steps/{step}`, `/v1/threads/$thread/runs/$run/steps/{step}`},
	// ids are the client's choice: another project's makes a trace of one's own
	"POST /v1/traces/ingest":                               {},
	"POST /v1/webhook_endpoints":                           {},
	"GET /v1/webhook_endpoints":                            {`/v1/webhook_endpoints?after={webhook}`},
	"GET /v1/webhook_endpoints/{webhook}":                  {`/v1/webhook_endpoints/{webhook}`},
	"POST /v1/webhook_endpoints/{webhook}":                 {`/v1/webhook_endpoints/{webhook} {"name":"y"}`},
	"DELETE /v1/webhook_endpoints/{webhook}":               {`/v1/webhook_endpoints/{webhook}`},
	"POST /v1/webhook_endpoints/{webhook}/rotate_secret":   {`/v1/webhook_endpoints/{webhook}/rotate_secret`},
	"POST /v1/webhook_endpoints/{webhook}/test":            {`/v1/webhook_endpoints/{webhook}/test {"event_type":"response.completed"}`},
	"GET /v1/webhook_event_types":                          {},
	"GET /v1/organization/costs":                           {`+/v1/organization/costs?start_time=1&end_time=2&group_by=line_item&project_ids={project}`},
	"GET /v1/organization/spend":                           {`+/v1/organization/spend?project_ids={project}`},
	"GET /v1/organization/usage/completions":               {`+/v1/organization/usage/completions?start_time=1&end_time=2&group_by=api_key_id&project_ids={project}`},
	"GET /v1/organization/usage/embeddings":                {`+/v1/organization/usage/embeddings?start_time=1&end_time=2&group_by=api_key_id&project_ids={project}`},
	"GET /v1/organization/usage/moderations":               {`+/v1/organization/usage/moderations?start_time=1&end_time=2&group_by=api_key_id&project_ids={project}`},
	"GET /v1/organization/usage/code_interpreter_sessions": {`+/v1/organization/usage/code_interpreter_sessions?start_time=1&end_time=2&project_ids={project}`},
	"GET /v1/organization/usage/tool_calls":                {`+/v1/organization/usage/tool_calls?start_time=1&end_time=2&group_by=api_key_id&project_ids={project}`},
	"GET /v1/upstreams":                                    {}, // the operator's
	"GET /v1/models":                                       {},
	"GET /v1/models/{model...}":                            {}, // the same for all
	"DELETE /v1/models/{model...}":                         {},

	"GET /v1/webhook_endpoints/{webhook}/deliveries": {`/v1/webhook_endpoints/{webhook}/deliveries`,
		`/v1/webhook_endpoints/$webhook/deliveries?after={delivery}`},
	"POST /v1/webhook_endpoints/{webhook}/deliveries/{delivery}/redeliver": {`/v1/webhook_endpoints/{webhook}/deliveries/{delivery}/redeliver`,
		`/v1/webhook_endpoints/$webhook/deliveries/{delivery}/redeliver`},

	"GET /v1/retention":                  {},
	"POST /v1/retention":                 {},
	"GET /v1/retention/records":          {`/v1/retention/records?after={record}`},
	"GET /v1/retention/records/{record}": {`/v1/retention/records/{record}`},
	"POST /v1/holds":                     {},
	"GET /v1/holds":                      {`/v1/holds?after={hold}`},
	"GET /v1/holds/{hold}":               {`/v1/holds/{hold}`},
	"DELETE /v1/holds/{hold}":            {`/v1/holds/{hold}`},

	"POST /v1/organization/projects/{project}/holds":          {`/v1/organization/projects/{project}/holds {"reason":"x"}`},
	"GET /v1/organization/projects/{project}/holds":           {`/v1/organization/projects/{project}/holds`},
	"DELETE /v1/organization/projects/{project}/holds/{hold}": {`/v1/organization/projects/{project}/holds/{hold}`},

	"GET /v1/traces":                   {`/v1/traces?after={trace}`},
	"GET /v1/end_users":                {`/v1/end_users?after={user}`},
	"GET /v1/end_users/{user}":         {`/v1/end_users/{user}`},
	"POST /v1/end_users/{user}":        {`/v1/end_users/{user} {"limits":{"containers":1}}`},
	"DELETE /v1/end_users/{user}":      {`/v1/end_users/{user}`},
	"GET /v1/end_users/{user}/objects": {`/v1/end_users/{user}/objects`},
	"GET /v1/end_users/{user}/usage":   {`/v1/end_users/{user}/usage`},
	"GET /v1/end_user_settings":        {},
	"POST /v1/end_user_settings":       {},

	"GET /v1/traces/{trace}":       {`/v1/traces/{trace}`},
	"GET /v1/traces/{trace}/spans": {`/v1/traces/{trace}/spans`, `/v1/traces/$trace/spans?after={span}`},
	"DELETE /v1/traces/{trace}":    {`/v1/traces/{trace}`},

	"GET /v1/organization/status":        {}, // the operator's, as the next two
	"GET /v1/refused_connections":        {},
	"GET /v1/organization/audit":         {},
	"POST /v1/organization/audit/verify": {},
}

// furnish creates one object of each kind for the project of the current key. It returns
// their ids.
func (h *house) furnish() map[string]string {
	h.t.Helper()
	post := func(path, body string) object { h.t.Helper(); return h.call(200, "POST", path, body) }
	ids := map[string]string{}
	form, kind := upload("a.txt", strings.NewReader("a"), "purpose", "user_data")
	ids["file"] = h.call(200, "POST", "/v1/files", form, kind).id()
	form, kind = upload("a.jsonl", strings.NewReader("{}"), "purpose", "batch")
	ids["requests"] = post("/v1/batches", `{"input_file_id":"`+h.call(200, "POST", "/v1/files", form,
		kind).id()+`","endpoint":"/v1/responses","completion_window":"24h"}`).id()
	ids["message_batch"] = post("/v1/messages/batches",
		`{"requests":[{"custom_id":"a","params":{"model":"scripted","max_tokens":9,"messages":[]}}]}`).id()
	ids["upload"] = post("/v1/uploads",
		`{"filename":"a.txt","purpose":"user_data","bytes":1,"mime_type":"text/plain"}`).id()
	form, kind = multipartOf("data", "a.txt", strings.NewReader("a"))
	ids["part"] = h.call(200, "POST", "/v1/uploads/"+ids["upload"]+"/parts", form, kind).id()
	form, kind = multipartOf("files", "SKILL.md", strings.NewReader("---\nname: x\ndescription: y\n---\n"))
	ids["skill"] = h.call(200, "POST", "/v1/skills", form, kind).id()
	ids["skill_version"] = h.call(200, "GET", "/v1/skills/"+ids["skill"]+"/versions", nil).at("data", 0, "id").(string)
	r := post("/v1/responses", `{"model":"scripted","input":"x"}`)
	ids["response"], ids["item"] = r.id(), r.at("output", 0, "id").(string)
	ids["conversation"] = post("/v1/conversations", `{}`).id()
	items := post("/v1/conversations/"+ids["conversation"]+"/items", `{"items":[{"role":"user","content":"x"}]}`)
	ids["conversation_item"] = items.at("data", 0, "id").(string)
	ids["container"] = post("/v1/containers", `{"name":"x"}`).id()
	ids["snapshot"] = post("/v1/containers/"+ids["container"]+"/snapshots", `{"name":"x"}`).id()
	form, kind = upload("a.txt", strings.NewReader("a"))
	ids["container_file"] = h.call(200, "POST", "/v1/containers/"+ids["container"]+"/files", form, kind).id()
	called := post("/v1/responses",
		`{"model":"scripted","input":"`+"```sh\\ntrue\\n```"+`","tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"`+ids["container"]+`"}}]}`)
	ids["log"] = h.call(200, "GET", "/v1/containers/"+ids["container"]+"/logs", nil).at("data", 0, "id").(string)
	ids["prompt"] = post("/v1/prompts", `{"name":"x","template":{"input":[{"role":"user","content":"{{f}}"}]}}`).id()
	ids["completion"] = post("/v1/chat/completions",
		`{"model":"scripted","store":true,"messages":[{"role":"user","content":"x"}]}`).id()
	ids["assistant"] = h.assistant()
	thread := h.thread("x")
	ids["thread"] = strings.TrimPrefix(thread, "/v1/threads/")
	ids["message"] = h.call(200, "GET", thread+"/messages", nil).at("data", 0, "id").(string)
	ids["run"] = post(thread+"/runs", `{"assistant_id":"`+ids["assistant"]+`"}`).id()
	h.polled(thread + "/runs/" + ids["run"])
	ids["step"] = h.call(200, "GET", thread+"/runs/"+ids["run"]+"/steps", nil).at("data", 0, "id").(string)
	ids["vector_store"] = post("/v1/vector_stores", `{"name":"x"}`).id()
	ids["batch"] = post("/v1/vector_stores/"+ids["vector_store"]+"/file_batches",
		`{"file_ids":["`+ids["file"]+`"]}`).id()
	ids["volume"] = post("/v1/volumes", `{"name":"x"}`).id()
	ids["volume_name"] = fmt.Sprintf("v-%048x", len(h.token))
	post("/v1/volumes", `{"name":"`+ids["volume_name"]+`"}`)
	ids["call"] = called.at("output", 0, "call_id").(string)
	ids["webhook"] = post("/v1/webhook_endpoints",
		`{"name":"x","url":"https://hooks.example","event_types":["response.completed"]}`).id()
	ids["delivery"] = h.delivery(ids["webhook"])
	ids["approval"] = h.waitingCall()
	ids["schedule"] = post("/v1/schedules",
		`{"cron":"@yearly","status":"paused","request":{"model":"scripted","input":"x"}}`).id()
	ids["schedule_run"] = post("/v1/schedules/"+ids["schedule"]+"/run", `{}`).id()
	ids["ssh_key"] = post("/v1/ssh_keys", `{"public_key":"`+newSSHKey(h.t)+`"}`).id()
	ids["trace"], ids["span"] = fmt.Sprintf("trace_%032x", len(h.token)+1<<60), fmt.Sprintf("span_%024x",
		len(h.token)+1<<60)
	h.ingest(`{"object":"trace","id":"` + ids["trace"] + `"},{"object":"trace.span","id":"` + ids["span"] +
		`","trace_id":"` + ids["trace"] + `","span_data":{}}`)
	post("/v1/end_user_settings", `{"enabled":true}`)
	post("/v1/responses", `{"model":"scripted","input":"x","user":"ann"}`)
	ids["user"] = h.call(200, "GET", "/v1/end_users?user=ann", nil).at("data", 0, "id").(string)
	ids["hold"] = post("/v1/holds", `{"reason":"x","object_id":"none"}`).id()
	ids["record"] = h.endedBatch()
	return ids
}

// waitingCall makes a call for the project of the token that waits for a person, and returns the id of the question.
func (h *house) waitingCall() string {
	h.t.Helper()
	k, err := h.store.KeyByHash(h.t.Context(), sha256.Sum256([]byte(h.token)))
	check(h.t, err)
	gone, leave := context.WithCancel(h.t.Context())
	a, err := h.opts.Approvals.Ask(gone, berth.Caller{Project: k.Project, Key: k.ID}, approvals.Call{Tool: "run"},
		func(*approvals.Approval) { leave() })
	check(h.t, err)
	return string(a.ID)
}

// endedBatch ends an old trace of the default project of the token, and returns the record of that.
func (h *house) endedBatch() string {
	h.t.Helper()
	k, err := h.store.KeyByHash(h.t.Context(), sha256.Sum256([]byte(h.token)))
	check(h.t, err)
	id := berth.NewID(berth.PrefixRetentionRecord)
	body, err := json.Marshal(berth.RetentionRecord{ID: id, Object: "retention.record", ProjectID: k.Project,
		Kind: berth.RetainedTraces, IDs: []string{"trace_1"}})
	check(h.t, err)
	check(h.t, h.store.CreateObjects(h.t.Context(), k.Project, &store.Object{
		ObjectKey: store.ObjectKey{Kind: store.KindRetentionRecord, ID: id}, Body: body}))
	return id
}

// newSSHKey returns a public key as OpenSSH writes it.
func newSSHKey(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// nobodys returns an id of the same form that no object has.
func nobodys(id string) string {
	digits := []byte(id)
	for i := len(digits) - 12; i < len(digits); i++ {
		if digits[i] == '0' {
			digits[i] = '1'
		} else if digits[i] >= '1' && digits[i] <= '9' || digits[i] >= 'a' && digits[i] <= 'f' {
			digits[i] = '0'
		}
	}
	return string(digits)
}

var (
	placeholder = regexp.MustCompile(`\{(\w+)\}|\$(\w+)`)
	// The parts that differ between two answers.
	anyID = regexp.MustCompile(`\b(resp_|msg_|thread_|req_)\w+`)
	aTime = regexp.MustCompile(`\b1\d{9}\b`)
)

// Another project's ids are answered like unknown ids.
func TestIsolation(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-theirs", "proj_theirs")
	theirs := h.furnish()
	theirs["project"] = "proj_theirs000000000000"
	theirs["key"] = "key_theirs000000000000"
	h.key("sk-mine", "proj_mine")
	mine := h.furnish()
	routes := append(api.Routes(), api.MessageRoutes()...)
	for pattern := range probed {
		if !slices.Contains(routes, pattern) {
			t.Errorf("the route %s no longer exists", pattern)
		}
	}
	for _, pattern := range routes {
		requests, known := probed[pattern]
		if !known {
			t.Errorf("list in isolation_test.go how requests of %s can refer to another project's objects", pattern)
		}
		for _, name := range regexp.MustCompile(`\{(\w+)\}`).FindAllString(pattern, -1) {
			if len(requests) == 0 {
				t.Errorf("%s is never tested with another project's %s", pattern, name)
			}
		}
		method, _, found := strings.Cut(pattern, " ")
		if !found {
			method = "GET"
		}
		for _, request := range requests {
			bare, mayPass := strings.CutPrefix(request, "+")
			answers := make([]string, 2)
			for i, id := range []func(string) string{func(id string) string { return id }, nobodys} {
				named := map[string]string{} // what the answer may repeat, to what it names
				ask := placeholder.ReplaceAllStringFunc(bare, func(p string) string {
					name := strings.Trim(p, "{}$")
					if p[0] == '$' && mine[name] != "" {
						return mine[name]
					}
					if theirs[name] == "" {
						t.Fatalf("%s: what is %s?", request, p)
					}
					named[id(theirs[name])] = name
					return id(theirs[name])
				})
				answers[i] = h.answer(method, ask, named, mayPass)
			}
			if diff := cmp.Diff(answers[1], answers[0]); diff != "" {
				t.Errorf("%s %s (-missing +another's):\n%s", method, request, diff)
			}
		}
	}
	// All objects of the other project are unchanged.
	h.token = "sk-theirs"
	for _, path := range []string{"responses/{response}", "conversations/{conversation}/items/{conversation_item}",
		"files/{file}", "containers/{container}/files/{container_file}",
		"prompts/{prompt}", "chat/completions/{completion}", "assistants/{assistant}",
		"threads/{thread}/messages/{message}", "threads/{thread}/runs/{run}/steps/{step}",
		"webhook_endpoints/{webhook}", "volumes/{volume}", "skills/{skill}/versions/1",
		"vector_stores/{vector_store}/files/{file}", "end_users/{user}", "holds/{hold}",
		"retention/records/{record}", "approvals/{approval}"} {
		h.call(200, "GET", "/v1/"+placeholder.ReplaceAllStringFunc(path, func(p string) string {
			return theirs[strings.Trim(p, "{}")]
		}), nil)
	}
}

// answer returns all parts of an answer that could reveal a difference between two ids.
func (h *house) answer(method, request string, named map[string]string, mayPass bool) string {
	h.t.Helper()
	path, body, _ := strings.Cut(request, " ")
	var in any
	if body != "" {
		in = body
	}
	resp := h.send(h.t.Context(), method, path, in)
	raw, err := io.ReadAll(resp.Body)
	check(h.t, err)
	if resp.StatusCode < 400 && !mayPass {
		h.t.Errorf("%s %s: got %d %s, want a refusal", method, request, resp.StatusCode, raw)
	}
	text := string(raw)
	for id, name := range named {
		text = strings.ReplaceAll(text, id, "{"+name+"}")
	}
	text = aTime.ReplaceAllString(anyID.ReplaceAllString(text, "$1"), "TIME")
	header := http.Header{}
	for name, values := range resp.Header {
		switch name {
		case "Date", "X-Request-Id", "Request-Id", "Openai-Processing-Ms", "Content-Length":
		default:
			header[name] = values
		}
	}
	return fmt.Sprintf("%s\n%v\n%s", resp.Status, header, text)
}
