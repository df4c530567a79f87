package batch_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/batch"
	"github.com/berth-run/berth/files"
)

func row(id, fields string) string {
	return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/responses","body":{"model":"m"%s}}`, id, fields)
}

// A file with errors runs nothing. Each error names its line.
func TestValidation(t *testing.T) {
	h := newHouse(t)
	s, stop := h.start(h.execute)
	defer stop()
	good := row("a", "")
	for name, c := range map[string]struct {
		file, code string
		line       int // 0: none
		param      string
	}{
		"empty":       {"", "empty_file", 0, "input_file_id"},
		"empty lines": {"\n \r\n\n", "empty_file", 0, "input_file_id"},
		"not JSON":    {good + "\nhello", "invalid_json_line", 2, ""},
		"a list":      {"[]", "invalid_json_line", 1, ""},
		"two values":  {good + " " + good, "invalid_json_line", 1, ""},
		"cut off":     {good + "\n" + good[:30], "invalid_json_line", 2, ""},
		"not UTF-8":   {strings.Replace(good, `"m"`, "\"\xff\"", 1), "invalid_json_line", 1, ""},
		"nested too deep": {strings.Repeat(`{"body":`, 100_000) + "1" + strings.Repeat("}", 100_000),
			"invalid_json_line", 1, ""},
		"too long": {good + "\n" + row("b", `,"input":"`+strings.Repeat("x", batch.MaxLine)+`"`) + "\n" +
			row("a", ""), "line_too_long", 2, ""},
		"no id": {strings.Replace(good, "custom_id", "id", 1), "missing_required_parameter", 1,
			"custom_id"},
		"an empty id":    {row("", ""), "invalid_request", 1, "custom_id"},
		"a long id":      {row(strings.Repeat("x", 600), ""), "invalid_request", 1, "custom_id"},
		"a number as id": {strings.Replace(good, `"a"`, "1", 1), "invalid_request", 1, "custom_id"},
		"ids twice":      {good + "\n" + row("b", "") + "\n" + good, "duplicate_custom_id", 3, "custom_id"},
		"two models": {good + "\n" + strings.Replace(row("b", ""), `"m"`, `"n"`, 1), "model_mismatch", 2,
			"body.model"},
		"a model's number": {strings.Replace(good, `"m"`, `7`, 1), "invalid_request", 1, "body.model"},
		"GET":              {strings.Replace(good, "POST", "GET", 1), "invalid_method", 1, "method"},
		"another endpoint": {strings.Replace(good, "/v1/responses", "/v1/chat/completions", 1), "url_mismatch", 1,
			"url"},
		"another route": {strings.Replace(good, "/v1/responses", "/v1/files", 1), "url_mismatch", 1, "url"},
		"another host": {strings.Replace(good, "/v1/responses", "http://169.254.169.254/v1/responses", 1),
			"url_mismatch", 1, "url"},
		"a query": {strings.Replace(good, "/v1/responses", "/v1/responses?x=1", 1), "url_mismatch", 1, "url"},
		"no body": {`{"custom_id":"a","method":"POST","url":"/v1/responses"}`, "missing_required_parameter",
			1, "body"},
		"a body of text": {`{"custom_id":"a","method":"POST","url":"/v1/responses","body":"x"}`, "invalid_request",
			1, "body"},
		"an unknown key": {strings.Replace(good, `"method"`, `"priority":1,"method"`, 1), "unknown_parameter", 1,
			"priority"},
		"a key in capitals": {strings.Replace(good, `"method"`, `"BODY":{},"method"`, 1), "unknown_parameter", 1,
			"BODY"},
		"a stream":          {row("a", `,"stream":true`), "unsupported_parameter", 1, "body.stream"},
		"in the background": {row("a", `,"background":true`), "unsupported_parameter", 1, "body.background"},
	} {
		t.Run(name, func(t *testing.T) {
			b := h.until(s, h.create(s, h.file(c.file)).ID, berth.BatchFailed, berth.BatchCompleted)
			if b.Status != berth.BatchFailed || b.FailedAt == nil || b.OutputFileID != nil || b.ErrorFileID != nil {
				t.Fatalf("got %+v, want that it failed", b)
			}
			e := b.Errors.Data[0]
			if e.Code != c.code || (e.Line == nil) != (c.line == 0) || e.Line != nil && *e.Line != c.line ||
				(e.Param == nil) != (c.param == "") || e.Param != nil && *e.Param != c.param {
				t.Errorf("got %+v (line %v), want %s at line %d", e, e.Line, c.code, c.line)
			}
		})
	}
	if len(h.ran) > 0 {
		t.Errorf("requests ran: %v", h.ran)
	}
}

// These are no errors: a byte order mark, other ends of lines, empty lines, no newline at the end.
func TestLines(t *testing.T) {
	h := newHouse(t)
	s, stop := h.start(h.execute)
	defer stop()
	b := h.create(s, h.file("\ufeff"+row("a", "")+"\r\n\r\n  \n"+row("b", `,"input":"`+strings.Repeat("x",
		100_000)+`"`)+"\n"+row("c", `,"stream":false`)))
	b = h.until(s, b.ID, berth.BatchCompleted, berth.BatchFailed)
	if out := h.lines(b.OutputFileID); len(out) != 3 || b.RequestCounts.Total != 3 {
		t.Errorf("got %v, %+v", out, b)
	}
}

func TestTooManyRequests(t *testing.T) {
	h := newHouse(t)
	s, stop := h.start(h.execute)
	defer stop()
	var text strings.Builder
	for i := range batch.MaxRequests + 1 {
		text.WriteString(row(fmt.Sprint(i), "") + "\n")
	}
	b := h.until(s, h.create(s, h.file(text.String())).ID, berth.BatchFailed, berth.BatchInProgress)
	if b.Status != berth.BatchFailed || b.Errors.Data[0].Code != "too_many_tasks" {
		t.Errorf("got %+v", b)
	}
	b = h.until(s, h.create(s, h.file(strings.Repeat("x\n", 1000))).ID, berth.BatchFailed)
	if len(b.Errors.Data) != 100 {
		t.Errorf("got %d errors, want the first 100", len(b.Errors.Data))
	}
}

// A batch needs a file of its project with the purpose batch.
func TestInput(t *testing.T) {
	h := newHouse(t)
	s := batch.New(h.opts)
	other, err := h.files.Create(t.Context(), "proj_theirs", files.CreateRequest{Filename: "in.jsonl",
		Purpose: "batch"}, strings.NewReader(row("a", "")))
	check(t, err)
	plain, err := h.files.Create(t.Context(), mine, files.CreateRequest{Filename: "in.jsonl", Purpose: "user_data"},
		strings.NewReader(row("a", "")))
	check(t, err)
	for _, id := range []berth.FileID{other.ID, plain.ID, "file-none", "../proj_theirs/" + other.ID} {
		if _, err := s.Create(t.Context(), berth.Caller{Project: mine}, batch.CreateRequest{Endpoint: "/v1/responses",
			InputFileID: id}); berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("%s: got %v, want a refusal", id, err)
		}
	}
	gone := h.create(s, h.input("a"))
	check(t, h.files.Delete(t.Context(), mine, gone.InputFileID))
	s, stop := h.start(h.execute)
	defer stop()
	if b := h.until(s, gone.ID, berth.BatchFailed); b.Errors.Data[0].Code != "invalid_input_file" {
		t.Errorf("got %+v", b.Errors)
	}
}

func FuzzLines(f *testing.F) {
	f.Add(row("a", "") + "\n" + row("b", ""))
	f.Add("\ufeff\r\n{}")
	f.Fuzz(func(t *testing.T, text string) { batch.Inspect(t, text) })
}
