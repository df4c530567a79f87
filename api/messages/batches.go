package messages

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/batch"
	"github.com/berth-run/berth/internal/rule"
)

const batchPath = "/v1/messages/batches"

// messageBatches serves batches of messages.
type messageBatches struct{ service *batch.Messages }

// routes returns the routes of batches of messages.
func (h *messageBatches) routes() []exchange.Route {
	on := func(pattern string, h exchange.Handler, traits ...exchange.Traits) exchange.Route {
		return exchange.On(pattern, h, append(traits, exchange.ReadsQuery, exchange.KeyInHeader)...)
	}
	return []exchange.Route{
		on("POST "+batchPath, h.createBatch),
		on("GET "+batchPath, h.listBatches),
		on("GET "+batchPath+"/{batch}", h.getBatch),
		on("DELETE "+batchPath+"/{batch}", h.deleteBatch),
		on("POST "+batchPath+"/{batch}/cancel", h.cancelBatch),
		on("GET "+batchPath+"/{batch}/results", h.batchResults, exchange.ReadsContent),
	}
}

// batchLife is how long the results of a batch can be read.
const batchLife = 29 * 24 * time.Hour

// batchRule checks what concerns the batch. The parameters of a request are checked when it runs.
var batchRule = rule.Object(rule.Fields{"requests": rule.AtLeastOne(rule.List(rule.Object(rule.Fields{
	"custom_id": rule.Matching("^[a-zA-Z0-9_-]{1,64}$", 64),
	"params": rule.OpenObject(rule.Fields{"model": rule.Text(1, 256), "stream": rule.OnlyFalse,
		"background": rule.UnsupportedUnlessEmpty}, "model"),
}, "custom_id", "params"), batch.MaxRequests))}, "requests")

// A batchInfo is a batch in Anthropic's form.
type batchInfo struct {
	ID                berth.BatchID `json:"id"`
	Type              string        `json:"type"`              // "message_batch"
	ProcessingStatus  string        `json:"processing_status"` // in_progress, canceling or ended
	RequestCounts     batchCounts   `json:"request_counts"`
	CreatedAt         string        `json:"created_at"`
	ExpiresAt         string        `json:"expires_at"`
	EndedAt           *string       `json:"ended_at"`
	CancelInitiatedAt *string       `json:"cancel_initiated_at"`
	ArchivedAt        *string       `json:"archived_at"`
	ResultsURL        *string       `json:"results_url"`
}

type batchCounts struct {
	Processing int `json:"processing"`
	Succeeded  int `json:"succeeded"`
	Errored    int `json:"errored"`
	Canceled   int `json:"canceled"`
	Expired    int `json:"expired"`
}

// newBatchInfo returns a batch as the client of a request sees it.
func newBatchInfo(r *http.Request, b *batch.MessageBatch) batchInfo {
	info := batchInfo{ID: b.ID, Type: "message_batch", ProcessingStatus: "in_progress", CreatedAt: date(b.CreatedAt),
		ExpiresAt: date(b.ExpiresAt), CancelInitiatedAt: dateOrNull(b.CancellingAt)}
	if b.Status == berth.BatchCancelling {
		info.ProcessingStatus = "canceling"
	}
	if !batch.Ended(b.Status) {
		info.RequestCounts.Processing = b.RequestCounts.Total // they are counted at the end
		return info
	}
	info.ProcessingStatus = "ended"
	n := b.RequestCounts
	info.RequestCounts = batchCounts{Succeeded: n.Completed, Errored: n.Total - n.Completed - b.Left}
	switch b.Status {
	case berth.BatchCancelled:
		info.RequestCounts.Canceled, info.EndedAt = b.Left, dateOrNull(b.CancelledAt)
	case berth.BatchExpired:
		info.RequestCounts.Expired, info.EndedAt = b.Left, dateOrNull(b.ExpiredAt)
	case berth.BatchFailed:
		info.EndedAt = dateOrNull(b.FailedAt)
	default:
		info.EndedAt = dateOrNull(b.CompletedAt)
	}
	if until := b.CreatedAt + int64(batchLife/time.Second); time.Now().Unix() >= until {
		info.ArchivedAt = dateOrNull(&until)
		return info
	}
	url := exchange.Origin(r) + batchPath + "/" + string(b.ID) + "/results"
	info.ResultsURL = &url
	return info
}

// date returns a time as in Anthropic's API.
func date(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }

func dateOrNull(unix *int64) *string {
	if unix == nil {
		return nil
	}
	s := date(*unix)
	return &s
}

// createBatch serves POST /v1/messages/batches.
func (h *messageBatches) createBatch(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Requests []batch.MessageRequest `json:"requests"`
	}
	if err := x.Decode(r, batchRule, &body); err != nil {
		return err
	}
	ids := map[string]bool{}
	for i, req := range body.Requests {
		if ids[req.CustomID] {
			return berth.Invalid(fmt.Sprintf("requests[%d].custom_id", i), "custom_id must be unique in a batch")
		}
		if len(req.Params) > batch.MaxLine/2 {
			return berth.Errorf(berth.CodeTooLarge, "requests.%d.params: at most %d bytes are allowed", i,
				batch.MaxLine/2)
		}
		ids[req.CustomID] = true
	}
	b, err := h.service.Create(r.Context(), c, body.Requests, int64(batchLife/time.Second))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, newBatchInfo(r, b))
}

// listBatches serves GET /v1/messages/batches.
func (h *messageBatches) listBatches(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := readPage(q, 20)
	if err := q.End(); err != nil {
		return err
	}
	list, more, err := h.service.List(r.Context(), c.Project, page.Page)
	if err != nil {
		return page.error(err)
	}
	infos := inOrder(page, list, func(b *batch.MessageBatch) batchInfo { return newBatchInfo(r, b) })
	return x.JSON(http.StatusOK, newList(infos, more, func(b batchInfo) string { return string(b.ID) }))
}

func batchID(r *http.Request) berth.BatchID { return berth.BatchID(r.PathValue("batch")) }

// getBatch serves GET /v1/messages/batches/{batch}.
func (h *messageBatches) getBatch(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	b, err := h.service.Get(r.Context(), c.Project, batchID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, newBatchInfo(r, b))
}

// cancelBatch serves POST /v1/messages/batches/{batch}/cancel.
func (h *messageBatches) cancelBatch(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	b, err := h.service.Cancel(r.Context(), c.Project, batchID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, newBatchInfo(r, b))
}

// deleteBatch serves DELETE /v1/messages/batches/{batch}.
func (h *messageBatches) deleteBatch(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := batchID(r)
	if err := h.service.Delete(r.Context(), c.Project, id); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, deletion{string(id), "message_batch_deleted"})
}

// A deletion is the answer to a DELETE.
type deletion struct {
	ID   string `json:"id"`
	Type string `json:"type"`
}

// batchResults serves GET /v1/messages/batches/{batch}/results.
func (h *messageBatches) batchResults(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	b, err := h.service.Get(r.Context(), c.Project, batchID(r))
	if err != nil {
		return err
	}
	if newBatchInfo(r, b).ResultsURL == nil {
		return berth.Errorf(berth.CodeNotFound, "Batch %s has no results: it has not ended, or they have expired.", b.ID)
	}
	var out *bufio.Writer // nil before the first result, so that an error before it can set the status
	start := func() {
		x.Header().Set("Content-Type", "application/x-jsonl")
		x.Header().Set("X-Content-Type-Options", "nosniff")
		patient := x.Patient()
		out = bufio.NewWriterSize(patient, 64<<10)
	}
	for result, err := range h.service.Results(r.Context(), c.Project, b) {
		if err != nil && out == nil {
			return err
		}
		if err != nil {
			x.Abort(err)
			return nil
		}
		if out == nil {
			start()
		}
		line, err := json.Marshal(newResult(b, result))
		if err != nil {
			x.Abort(err)
			return nil
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			return nil // the client is gone
		}
	}
	if out == nil {
		start()
	}
	_ = out.Flush() // an error means that the client is gone
	return nil
}

// A batchResult is a line of the results of a batch.
type batchResult struct {
	CustomID string `json:"custom_id"`
	Result   struct {
		Type    string          `json:"type"` // succeeded, errored, canceled or expired
		Message json.RawMessage `json:"message,omitempty"`
		Error   json.RawMessage `json:"error,omitempty"`
	} `json:"result"`
}

func newResult(b *batch.MessageBatch, r batch.MessageResult) batchResult {
	line := batchResult{CustomID: r.CustomID}
	switch {
	case r.Status/100 == 2:
		line.Result.Type, line.Result.Message = "succeeded", r.Body
	case r.Status != 0:
		line.Result.Type, line.Result.Error = "errored", r.Body
	case b.Status == berth.BatchCancelled:
		line.Result.Type = "canceled"
	default:
		line.Result.Type = "expired"
	}
	return line
}
