package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/batch"
	"github.com/berth-run/berth/internal/rule"
)

// batches serves batches.
type batches struct{ service *batch.Service }

var batchBody = rule.Object(rule.Fields{"input_file_id": rule.Text(1, 256), "endpoint": rule.OneOf(batch.Endpoints...),
	"completion_window": rule.OneOf("24h"),
	"metadata":          rule.Metadata, "output_expires_after": fileExpiry}, "input_file_id", "endpoint",
	"completion_window")

// create serves POST /v1/batches.
func (h *batches) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		InputFileID  berth.FileID      `json:"input_file_id"`
		Endpoint     string            `json:"endpoint"`
		Metadata     map[string]string `json:"metadata"`
		ExpiresAfter expiresAfter      `json:"output_expires_after"`
	}
	if err := x.Decode(r, batchBody, &body); err != nil {
		return err
	}
	b, err := h.service.Create(r.Context(), c, batch.CreateRequest{Endpoint: body.Endpoint,
		InputFileID: body.InputFileID, Metadata: body.Metadata,
		ExpiresAfterSeconds: body.ExpiresAfter.Seconds})
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, b)
}

// list serves GET /v1/batches.
func (h *batches) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.List(x, r, c, h.service.List, func(b *berth.Batch) string { return string(b.ID) })
}

// get serves GET /v1/batches/{batch}.
func (h *batches) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Get(x, r, c, h.service.Get, berth.BatchID(r.PathValue("batch")))
}

// cancel serves POST /v1/batches/{batch}/cancel.
func (h *batches) cancel(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	b, err := h.service.Cancel(r.Context(), c.Project, berth.BatchID(r.PathValue("batch")))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, b)
}

// execute returns a function that executes the requests of batches with the routes of a table, like
// requests of clients: with the same checks, limits, log and metrics.
func execute(ex *exchange.Server, table *exchange.Table, containers lineContainers) batch.Execute {
	return func(ctx context.Context, c berth.Caller, it batch.Execution) batch.Answer {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, it.URL, bytes.NewReader(it.Body))
		if err != nil { // the URL is one of batch.Endpoints
			return batch.Answer{Status: http.StatusInternalServerError, Final: true}
		}
		r.Header.Set("Content-Type", "application/json")
		if it.URL == "/v1/responses" { // creates the response once, and continues it after an interruption
			r.Header.Set("Idempotency-Key", it.Once)
		}
		w := &recorder{header: http.Header{}}
		serve := func() {
			defer func() { _ = recover() }() // As has logged the panic; the answer is incomplete
			ex.As(c, w, r, func(x *exchange.Exchange, r *http.Request) {
				table.Serve(x, r)
				w.complete = true
			})
		}
		serve()
		answer := w.answer()
		for _, id := range ownContainers(it.Body, answer.Body) {
			// The next line may wait for its place. A failure leaves it to the container's deadline.
			_ = containers.Delete(context.WithoutCancel(ctx), c.Project, id)
		}
		return answer
	}
}

// lineContainers removes containers of batches.
type lineContainers interface {
	Delete(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error
}

// ownContainers returns the containers that were made for a request of a batch: those of its response's calls,
// unless the request names them or continues a chain, whose container may be used again.
func ownContainers(request, response []byte) []berth.ContainerID {
	var asked struct {
		Previous     *string         `json:"previous_response_id"`
		Conversation json.RawMessage `json:"conversation"`
	}
	var answer struct {
		Output []struct {
			Type        string
			ContainerID berth.ContainerID `json:"container_id"`
			Environment struct {
				ContainerID berth.ContainerID `json:"container_id"`
			}
		}
		Container struct{ ID berth.ContainerID } // of a message
	}
	if json.Unmarshal(request, &asked) != nil || asked.Previous != nil || len(asked.Conversation) > 0 &&
		string(asked.Conversation) != "null" || json.Unmarshal(response, &answer) != nil {
		return nil
	}
	var own []berth.ContainerID
	if id := answer.Container.ID; id != "" && !bytes.Contains(request, []byte(id)) {
		own = append(own, id)
	}
	for _, it := range answer.Output {
		for _, id := range []berth.ContainerID{it.ContainerID, it.Environment.ContainerID} {
			if id != "" && !slices.Contains(own, id) && !bytes.Contains(request, []byte(id)) {
				own = append(own, id)
			}
		}
	}
	return own
}

// A recorder holds the answer to a request of a batch. Answers are bounded like those to
// clients.
type recorder struct {
	header   http.Header
	status   int
	body     bytes.Buffer
	complete bool // the handler has returned
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// answer returns what was recorded.
func (w *recorder) answer() batch.Answer {
	a := batch.Answer{Status: w.status, RequestID: w.header.Get("x-request-id"), Body: w.body.Bytes(),
		Final: w.header.Get("x-should-retry") == "false"}
	if a.Status == 0 || !w.complete && a.Status/100 == 2 {
		a.Status, a.Body = http.StatusInternalServerError, nil
	}
	if ms, err := strconv.ParseInt(w.header.Get("retry-after-ms"), 10, 64); err == nil {
		a.RetryAfter = time.Duration(ms) * time.Millisecond
	}
	var failure struct {
		Error struct{ Code, Type string } `json:"error"`
	}
	if a.Status == http.StatusTooManyRequests && json.Unmarshal(a.Body, &failure) == nil &&
		failure.Error.Code == "insufficient_quota" {
		a.Final = true
	}
	return a
}
