package contract

import (
	"bytes"
	"mime"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/berth-run/berth/internal/sse"
)

// Prefix is the prefix of the contract's paths in the API.
const Prefix = "/v1"

// maxWatched is the maximum number of bytes of an answer to record. A longer answer is not
// checked, except a stream: only its start is checked.
const maxWatched = 8 << 20

// Watch returns a handler that calls next and reports every answer that violates the contract
// as an error of the test. own describes operations that are not in the contract. Watch does not
// check other paths.
func Watch(t testing.TB, next http.Handler, own *Document) http.Handler {
	doc := Load()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ours := strings.CutPrefix(r.URL.Path, Prefix)
		op := doc.Find(r.Method, path)
		if op == nil && own != nil {
			op = own.Find(r.Method, path)
		}
		if !ours || op == nil || r.Header.Get("anthropic-version") != "" { // answered in the form of another API
			next.ServeHTTP(w, r)
			return
		}
		seen := &answerRecorder{ResponseWriter: w}
		next.ServeHTTP(seen, r)
		for _, err := range seen.check(op) {
			t.Errorf("%s %s: answer %d violates the contract: %v", r.Method, r.URL, seen.status, err)
		}
		if !t.Failed() {
			count(op, seen.status)
		}
	})
}

// answerRecorder records an answer while it is sent.
type answerRecorder struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
	cut    bool
}

// Unwrap is called by http.ResponseController.
func (w *answerRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *answerRecorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerRecorder) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	if w.cut = w.cut || w.body.Len()+len(p) > maxWatched; !w.cut {
		w.body.Write(p)
	}
	return w.ResponseWriter.Write(p)
}

func (w *answerRecorder) check(op *Operation) (wrong []error) {
	kind, _, _ := mime.ParseMediaType(w.Header().Get("Content-Type"))
	switch {
	case w.status == 0 || w.status == http.StatusSwitchingProtocols || w.cut && kind != "text/event-stream":
		return nil
	case kind != "text/event-stream":
		if err := op.Answer(w.status, kind, w.body.Bytes()); err != nil {
			return []error{err}
		}
		return nil
	}
	for ev, err := range sse.NewReader(&w.body, 0).Events() {
		if err != nil {
			break // the answer or its record is incomplete
		}
		if string(ev.Data) == "[DONE]" || ev.Type == "error" && op.document != Load() {
			continue
		}
		if err := op.Event(ev.Type, ev.Data); err != nil {
			wrong = append(wrong, err)
		}
	}
	return wrong
}

// seen counts the valid answers by operation.
var seen = struct {
	sync.Mutex
	answers map[string]int
}{answers: map[string]int{}}

func count(op *Operation, status int) {
	seen.Lock()
	defer seen.Unlock()
	if status < http.StatusBadRequest {
		seen.answers[op.String()]++
	}
}

// Unseen returns the operations without a valid successful answer so far.
func Unseen() []*Operation {
	seen.Lock()
	defer seen.Unlock()
	var unseen []*Operation
	for _, op := range Load().Operations {
		if seen.answers[op.String()] == 0 {
			unseen = append(unseen, op)
		}
	}
	return unseen
}
