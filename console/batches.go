package console

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/berth-run/berth"
)

// A batchesPage is the list of batches.
type batchesPage struct {
	rows[berth.Batch]
	Input *berth.File // of the form; nil asks for a file
}

// batchEndpoints are the routes that a batch may call.
var batchEndpoints = []string{"/v1/responses", "/v1/chat/completions", "/v1/embeddings", "/v1/moderations"}

// Endpoints returns the values of the form.
func (batchesPage) Endpoints() []string { return batchEndpoints }

// show serves GET /console/batches.
func (p *batchesPage) show(v *visit) error {
	text := textIn(func(b berth.Batch) []string {
		model := ""
		if b.Model != nil {
			model = *b.Model
		}
		return append(slices.Collect(maps.Values(b.Metadata)), string(b.ID), string(b.Endpoint), model,
			string(b.Status))
	})
	if err := p.find(v, "/v1/batches", text); err != nil {
		return err
	}
	if id := v.r.URL.Query().Get("file"); id != "" {
		p.Input = &berth.File{}
		if err := v.get(pathTo("/v1/files", id), p.Input); err != nil {
			return err
		}
	}
	return v.show(http.StatusOK, "batches", "Batches", p)
}

// create serves POST /console/batches: it starts a batch with a stored file, or one that it uploads.
func (*batchesPage) create(v *visit) error {
	input := berth.FileID(strings.TrimSpace(v.form.fields.Get("input")))
	if input == "" {
		ids, err := uploadAll(v, "batch")
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			return errNoFile
		}
		input = ids[0]
	}
	var made berth.Batch
	if err := v.post("/v1/batches", map[string]any{"input_file_id": input, "endpoint": v.form.fields.Get("endpoint"),
		"completion_window": "24h"}, &made); err != nil {
		return err
	}
	return v.redirect(pathTo("/console/batches", made.ID))
}

// A batchPage is the page of a batch.
type batchPage struct {
	berth.Batch
	Form  formToken
	Input string // name of its input file, or its id
}

// Path returns the path of the page.
func (p batchPage) Path() string { return pathTo("/console/batches", p.ID) }

// Running reports whether the batch has not ended.
func (p batchPage) Running() bool {
	switch p.Status {
	case berth.BatchValidating, berth.BatchInProgress, berth.BatchFinalizing, berth.BatchCancelling:
		return true
	}
	return false
}

// Done returns the share of requests that have ended, in percent.
func (p batchPage) Done() int64 {
	return percentOf(int64(p.RequestCounts.Completed+p.RequestCounts.Failed), int64(p.RequestCounts.Total))
}

// A batchResult is a file that a batch has written.
type batchResult struct {
	Label string
	File  berth.FileID
}

// Results returns the files that the batch has written.
func (p batchPage) Results() (files []batchResult) {
	if p.OutputFileID != nil {
		files = append(files, batchResult{"Answers", *p.OutputFileID})
	}
	if p.ErrorFileID != nil {
		files = append(files, batchResult{"Errors of requests", *p.ErrorFileID})
	}
	return files
}

// Took returns how long the batch ran in milliseconds; 0 if it has not ended.
func (p batchPage) Took() int64 {
	for _, end := range []*int64{p.CompletedAt, p.FailedAt, p.ExpiredAt, p.CancelledAt} {
		if end != nil {
			return (*end - p.CreatedAt) * 1000
		}
	}
	return 0
}

// WaitingFor returns why requests wait; "" if none does.
func (p batchPage) WaitingFor() string {
	if p.Batch.Berth == nil {
		return ""
	}
	return p.Batch.Berth.WaitingFor
}

// show serves GET /console/batches/{batch}.
func (p *batchPage) show(v *visit) error {
	if err := v.get(pathTo("/v1/batches", v.r.PathValue("batch")), &p.Batch); err != nil {
		return err
	}
	var input berth.File
	if err := v.get(pathTo("/v1/files", p.InputFileID), &input); err != nil && !refused(err) {
		return err
	}
	p.Input, p.Form = cmp.Or(input.Filename, short(string(p.InputFileID))), v.formToken()
	return v.show(http.StatusOK, "batch", "Batch", p)
}

// change serves POST /console/batches/{batch}: it cancels the batch.
func (*batchPage) change(v *visit) error {
	if v.form.fields.Get("do") != "cancel" {
		return &failure{http.StatusBadRequest, "The form is incomplete."}
	}
	id := v.r.PathValue("batch")
	if err := v.post(pathTo("/v1/batches", id)+"/cancel", struct{}{}, &struct{}{}); err != nil {
		return err
	}
	return v.redirect(pathTo("/console/batches", id))
}
