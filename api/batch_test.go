package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/batch"
)

// batchFile uploads the requests of a batch with OpenAI's client.
func (h *house) batchFile(client openai.Client, lines ...string) string {
	h.t.Helper()
	f, err := client.Files.New(h.t.Context(),
		openai.FileNewParams{File: openai.File(strings.NewReader(strings.Join(lines, "\n")), "in.jsonl",
			"application/jsonl"), Purpose: openai.FilePurposeBatch})
	check(h.t, err)
	return f.ID
}

// runBatch creates a batch and waits for its end.
func (h *house) runBatch(client openai.Client, endpoint openai.BatchNewParamsEndpoint, lines ...string) *openai.Batch {
	h.t.Helper()
	b, err := client.Batches.New(h.t.Context(),
		openai.BatchNewParams{CompletionWindow: openai.BatchNewParamsCompletionWindow24h, Endpoint: endpoint,
			InputFileID: h.batchFile(client, lines...), Metadata: map[string]string{"night": "1"},
			OutputExpiresAfter: openai.BatchNewParamsOutputExpiresAfter{Seconds: 3600}})
	check(h.t, err)
	if b.Status != openai.BatchStatusValidating || b.ExpiresAt != b.CreatedAt+86400 || b.Metadata["night"] != "1" {
		h.t.Errorf("got %s", b.RawJSON())
	}
	return h.ended(client, b.ID)
}

func (h *house) ended(client openai.Client, id string) *openai.Batch {
	h.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-tick.C {
		b, err := client.Batches.Get(h.t.Context(), id)
		check(h.t, err)
		switch b.Status {
		case openai.BatchStatusValidating, openai.BatchStatusInProgress, openai.BatchStatusFinalizing,
			openai.BatchStatusCancelling:
		default:
			return b
		}
	}
	h.t.Fatalf("timeout: batch %s has not ended", id)
	return nil
}

// batchLines reads an output or error file by custom id.
func (h *house) batchLines(client openai.Client, id string) map[string]object {
	h.t.Helper()
	content, err := client.Files.Content(h.t.Context(), id)
	check(h.t, err)
	defer content.Body.Close()
	all := map[string]object{}
	for d := json.NewDecoder(content.Body); d.More(); {
		var line object
		check(h.t, d.Decode(&line))
		all[line["custom_id"].(string)] = line
	}
	return all
}

func TestBatchOfResponses(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-mine", "proj_mine")
	client := h.client()
	b := h.runBatch(client, openai.BatchNewParamsEndpointV1Responses,
		`{"custom_id":"a","method":"POST","url":"/v1/responses","body":{"model":"scripted","input":"hello a"}}`,
		`{"custom_id":"b","method":"POST","url":"/v1/responses","body":{"model":"scripted","input":"hello b","tools":[{"type":"shell","environment":{"type":"container_auto"}}]}}`,
		`{"custom_id":"c","method":"POST","url":"/v1/responses","body":{"model":"scripted","input":"hello c","temperature":7}}`)
	if b.Status != openai.BatchStatusCompleted || b.RequestCounts.Total != 3 || b.RequestCounts.Completed != 2 ||
		b.RequestCounts.Failed != 1 || b.Model != "scripted" || b.Usage.TotalTokens == 0 {
		t.Errorf("got %s", b.RawJSON())
	}
	out := h.batchLines(client, b.OutputFileID)
	for _, id := range []string{"a", "b"} {
		if len(out) != 2 || out[id].at("response", "status_code") != 200.0 || out[id].at("response", "body",
			"status") != "completed" || out[id]["error"] != nil ||
			!strings.HasPrefix(out[id].at("response", "request_id").(string), "req_") {
			t.Errorf("%s: got %v", id, out[id])
		}
	}
	first := out["a"].at("response", "body", "id").(string)
	if got := h.call(200, "GET", "/v1/responses/"+first, nil); got.at("status") != "completed" {
		t.Errorf("got %v, want the response of the batch", got)
	}
	if failed := h.batchLines(client, b.ErrorFileID); len(failed) != 1 || failed["c"].at("response",
		"status_code") != 400.0 || failed["c"].at("response", "body", "error", "param") != "temperature" {
		t.Errorf("got %v", failed)
	}
	f, err := client.Files.Get(t.Context(), b.OutputFileID)
	check(t, err)
	if f.Purpose != openai.FileObjectPurposeBatchOutput || f.ExpiresAt != f.CreatedAt+3600 {
		t.Errorf("got %s", f.RawJSON())
	}
	page, err := client.Batches.List(t.Context(), openai.BatchListParams{})
	check(t, err)
	if len(page.Data) != 1 || page.Data[0].ID != b.ID {
		t.Errorf("got %v", page.Data)
	}
}

func TestBatchOfCompletions(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	client := h.client()
	b := h.runBatch(client, openai.BatchNewParamsEndpointV1ChatCompletions,
		`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"scripted","messages":[{"role":"user","content":"hello"}]}}`)
	if b.Status != openai.BatchStatusCompleted || b.Usage.InputTokens == 0 || b.ErrorFileID != "" {
		t.Errorf("got %s", b.RawJSON())
	}
	if out := h.batchLines(client, b.OutputFileID); out["a"].at("response", "body", "choices", 0, "message",
		"content") == nil {
		t.Errorf("got %v", out)
	}
}

func TestBatchOfEmbeddings(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil, newEmbedServer(t, &embedServer{}).rule(t, "embed"))
	client := h.client()
	b := h.runBatch(client, openai.BatchNewParamsEndpointV1Embeddings,
		`{"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{"model":"embed","input":"a"}}`)
	if b.Status != openai.BatchStatusCompleted || b.Usage.InputTokens == 0 {
		t.Errorf("got %s", b.RawJSON())
	}
	if out := h.batchLines(client, b.OutputFileID); out["a"].at("response", "body", "data", 0, "embedding") == nil {
		t.Errorf("got %v", out)
	}
}

// A batch cancels the responses in progress.
func TestBatchCancel(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	client := h.client()
	b, err := client.Batches.New(t.Context(),
		openai.BatchNewParams{CompletionWindow: openai.BatchNewParamsCompletionWindow24h,
			Endpoint: openai.BatchNewParamsEndpointV1ChatCompletions,
			InputFileID: h.batchFile(client,
				`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"vendor/fed","messages":[{"role":"user","content":"hello"}]}}`)})
	check(t, err)
	for tick := time.NewTicker(time.Millisecond); h.fed.asked.Load() == nil; <-tick.C { // until the model is called
	}
	_, err = client.Batches.Cancel(t.Context(), b.ID)
	check(t, err)
	b = h.ended(client, b.ID)
	if lines := h.batchLines(client, b.ErrorFileID); b.Status != openai.BatchStatusCancelled || lines["a"].at("error",
		"code") != "batch_cancelled" || b.OutputFileID != "" {
		t.Errorf("got %s, %v", b.RawJSON(), lines)
	}
	if _, err := client.Batches.Cancel(t.Context(), "batch_none"); status(err) != http.StatusNotFound {
		t.Errorf("got %v, want 404", err)
	}
}

func TestBatchRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	form, kind := upload("a.jsonl", strings.NewReader("{}"), "purpose", "batch")
	id := h.call(200, "POST", "/v1/files", form, kind).id()
	for _, body := range []string{
		`{"endpoint":"/v1/responses","completion_window":"24h"}`,
		`{"input_file_id":"` + id + `","endpoint":"/v1/files","completion_window":"24h"}`,
		`{"input_file_id":"` + id + `","endpoint":"/v1/responses","completion_window":"1h"}`,
		`{"input_file_id":"` + id + `","endpoint":"/v1/responses"}`,
		`{"input_file_id":"file-none","endpoint":"/v1/responses","completion_window":"24h"}`,
		`{"input_file_id":"` + id +
			`","endpoint":"/v1/responses","completion_window":"24h","output_expires_after":{"anchor":"created_at","seconds":1}}`,
	} {
		h.call(400, "POST", "/v1/batches", body)
	}
}

// The requests of a batch count towards the limits of its project.
func TestBatchWithinLimits(t *testing.T) {
	t.Parallel()
	h := limited(t, map[berth.ProjectID]berth.Limits{"proj_full": {StorageBytes: number(8_000)}})
	h.key("sk-full", "proj_full")
	client := h.client()
	var lines []string
	for i := range 16 {
		lines = append(lines,
			fmt.Sprintf(
				`{"custom_id":"%d","method":"POST","url":"/v1/responses","body":{"model":"scripted","input":"hello"}}`, i))
	}
	b := h.runBatch(client, openai.BatchNewParamsEndpointV1Responses, lines...)
	if b.Status != openai.BatchStatusCompleted || b.RequestCounts.Failed == 0 {
		t.Fatalf("got %s", b.RawJSON())
	}
	for id, l := range h.batchLines(client, b.ErrorFileID) {
		if l.at("response", "body", "error", "code") != "insufficient_quota" {
			t.Errorf("%s: got %v", id, l)
		}
	}
}

// shellLine is a line of a batch that runs a command in a container of its own.
func shellLine(id int) string {
	return fmt.Sprintf(
		`{"custom_id":"%d","method":"POST","url":"/v1/responses","body":{"model":"scripted","input":%q,"tools":[{"type":"shell","environment":{"type":"container_auto"}}]}}`,
		id, "```sh\necho hi\n```")
}

// The container of a line ends with it: otherwise the lines after it would wait until it expires.
func TestBatchOfShells(t *testing.T) {
	t.Parallel()
	h := limited(t, map[berth.ProjectID]berth.Limits{"proj_one": {Containers: number(1)}})
	h.key("sk-one", "proj_one")
	client := h.client()
	var lines []string
	for i := range 20 {
		lines = append(lines, shellLine(i))
	}
	b := h.runBatch(client, openai.BatchNewParamsEndpointV1Responses, lines...)
	if b.Status != openai.BatchStatusCompleted || b.RequestCounts.Completed != int64(len(lines)) {
		t.Fatalf("got %s", b.RawJSON())
	}
	if left := h.call(200, "GET", "/v1/containers", nil).at("data").([]any); len(left) != 0 {
		t.Errorf("%d containers are left", len(left))
	}
}

// A batch that waits says for what.
func TestBatchWaits(t *testing.T) {
	t.Parallel()
	h := limited(t, map[berth.ProjectID]berth.Limits{"proj_one": {Containers: number(1)}})
	h.key("sk-one", "proj_one")
	held := h.call(200, "POST", "/v1/containers", `{"name":"mine"}`).id()
	client := h.client()
	input := h.batchFile(client, shellLine(0))
	id := h.call(200, "POST", "/v1/batches",
		`{"input_file_id":"`+input+`","endpoint":"/v1/responses","completion_window":"24h"}`).id()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		b := h.call(200, "GET", "/v1/batches/"+id, nil)
		if waiting, ok := b.at("berth", "waiting_for").(string); ok {
			if !strings.Contains(waiting, "containers") {
				t.Errorf("waits for %q", waiting)
			}
			break
		}
		if b.at("status") == "completed" {
			t.Fatalf("got %v, want that it waits", b)
		}
	}
	h.call(200, "DELETE", "/v1/containers/"+held, nil)
	if b := h.ended(client, id); b.Status != openai.BatchStatusCompleted || b.RequestCounts.Completed != 1 ||
		strings.Contains(b.RawJSON(), "waiting_for") {
		t.Errorf("got %s", b.RawJSON())
	}
}

// A batch stops with its API key, and cannot use another project's objects.
func TestBatchCaller(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-theirs", "proj_theirs")
	theirs := h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"secret"}`).id()
	keys, err := h.store.ListKeys(t.Context())
	check(t, err)
	h.key("sk-mine", "proj_mine")
	client := h.client()
	b := h.runBatch(client, openai.BatchNewParamsEndpointV1Responses,
		`{"custom_id":"a","method":"POST","url":"/v1/responses","body":{"model":"scripted","input":"x","previous_response_id":"`+theirs+`"}}`)
	if lines := h.batchLines(client, b.ErrorFileID); lines["a"].at("response", "body", "error",
		"code") != "previous_response_not_found" {
		t.Errorf("got %v", lines)
	}
	for _, key := range []berth.KeyID{"key_deleted", keys[0].ID} {
		input := h.batchFile(client,
			`{"custom_id":"a","method":"POST","url":"/v1/responses","body":{"model":"scripted","input":"x"}}`)
		b, err := h.opts.Batches.Create(t.Context(), berth.Caller{Project: "proj_mine", Key: key},
			batch.CreateRequest{Endpoint: "/v1/responses", InputFileID: berth.FileID(input)})
		check(t, err)
		ended := h.ended(client, string(b.ID))
		if lines := h.batchLines(client, ended.ErrorFileID); lines["a"].at("response", "body", "error",
			"code") != "invalid_api_key" {
			t.Errorf("with key %s: got %v", key, lines)
		}
	}
}
