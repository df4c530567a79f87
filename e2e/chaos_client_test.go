package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/sse"
)

// patience is how long a persistent client repeats one request before it calls it lost.
const patience = 4 * time.Minute

// A persistent client repeats each request until it is answered, as a careful program
// does whose server may be killed at any time: a POST always with the same
// Idempotency-Key, a stream from the event after the last. It is safe for concurrent use.
type persistent struct {
	base    string // of the API, with /v1
	http    *http.Client
	ctx     context.Context
	repeats atomic.Int64 // requests that were sent again
	refused atomic.Int64 // answers 429, 503 and 507, which ask for that
}

func newPersistent(ctx context.Context, base string) *persistent {
	// A request that is never answered is as lost as one that is refused for ever.
	return &persistent{base: base + "/v1", ctx: ctx,
		http: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
}

// A refusal is an answer that repeating does not mend.
type refusal struct {
	status int
	what   string
}

func (r *refusal) Error() string { return r.what }

// do sends one request until a 2xx answers it, and returns the body. It returns a
// *refusal for a 4xx other than 408, 409 and 429, and after the client's patience.
func (p *persistent) do(method, path, contentType string, body []byte) ([]byte, error) {
	key := rand.Text()
	var last error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); p.repeats.Add(1) {
		resp, err := p.send(method, path, contentType, key, body)
		if err == nil {
			var answer []byte
			answer, err = io.ReadAll(resp.Body)
			resp.Body.Close()
			if err == nil && resp.StatusCode/100 == 2 {
				return answer, nil
			}
			if err == nil {
				err = &refusal{resp.StatusCode, fmt.Sprintf("%s %s: %d %.500s", method, path, resp.StatusCode, answer)}
			}
		}
		if last = err; !p.again(err) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("no answer within %v: %w", patience, last)
}

// again reports whether a request that failed so is worth another attempt, after a
// pause in which a server can start.
func (p *persistent) again(err error) bool {
	if r, ok := errors.AsType[*refusal](err); ok {
		switch r.status {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInsufficientStorage:
			p.refused.Add(1)
		case http.StatusRequestTimeout, http.StatusConflict:
		default:
			if r.status < http.StatusInternalServerError {
				return false
			}
		}
	}
	select {
	case <-time.After(50 * time.Millisecond):
		return true
	case <-p.ctx.Done():
		return false
	}
}

func (p *persistent) send(method, path, contentType, key string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(p.ctx, method, p.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", contentType)
		req.Header.Set("Idempotency-Key", key)
	}
	return p.http.Do(req)
}

// post sends v as JSON and decodes the answer into out.
func (p *persistent) post(path string, v, out any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	answer, err := p.do(http.MethodPost, path, "application/json", body)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, out)
}

func (p *persistent) get(path string, out any) error {
	answer, err := p.do(http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, out)
}

// remove deletes what path names. That it is not there any more may be the work of an
// attempt whose answer was lost.
func (p *persistent) remove(path string) error {
	_, err := p.do(http.MethodDelete, path, "", nil)
	if r, ok := errors.AsType[*refusal](err); ok && r.status == http.StatusNotFound {
		return nil
	}
	return err
}

// upload sends a file and returns its id.
func (p *persistent) upload(name string, content []byte) (berth.FileID, error) {
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	_ = w.WriteField("purpose", "user_data") // a buffer takes all
	part, _ := w.CreateFormFile("file", name)
	_, _ = part.Write(content)
	w.Close()
	answer, err := p.do(http.MethodPost, "/files", w.FormDataContentType(), form.Bytes())
	if err != nil {
		return "", err
	}
	var f berth.File
	return f.ID, json.Unmarshal(answer, &f)
}

// background asks for a response in the background and polls it until it has ended.
func (p *persistent) background(req map[string]any) (*outcome, error) {
	req["background"] = true
	var r outcome
	if err := p.post("/responses", req, &r); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(patience); !r.Status.Final(); {
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%s is %s after %v", r.ID, r.Status, patience)
		}
		if !p.again(nil) {
			return nil, p.ctx.Err()
		}
		if err := p.get("/responses/"+string(r.ID), &r); err != nil {
			return nil, err
		}
	}
	return &r, nil
}

// foreground asks for a response and waits for it.
func (p *persistent) foreground(req map[string]any) (*outcome, error) {
	var r outcome
	return &r, p.post("/responses", req, &r)
}

// stream asks for a response as a stream, which it takes up again wherever it is cut. It
// returns the response of the last event, and an error if an event is missing, comes
// twice, or if the deltas are not what the items hold.
func (p *persistent) stream(req map[string]any) (*outcome, error) {
	req["stream"], req["background"] = true, true
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	s := streamed{deltas: map[[2]int]*strings.Builder{}, next: 0}
	key := rand.Text()
	last := error(nil)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); p.repeats.Add(1) {
		method, path, payload := http.MethodPost, "/responses", body
		if s.id != "" {
			method, path, payload = http.MethodGet, fmt.Sprintf("/responses/%s?stream=true&starting_after=%d", s.id,
				s.next-1), nil
		}
		resp, err := p.send(method, path, "application/json", key, payload)
		if err == nil && resp.StatusCode != http.StatusOK {
			said, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			err = &refusal{resp.StatusCode, fmt.Sprintf("%s %s: %d %.500s", method, path, resp.StatusCode, said)}
		}
		if err == nil {
			if s.id == "" {
				s.next = 0 // the same stream from its beginning
			}
			err = s.read(resp.Body)
			resp.Body.Close()
			if err == nil && s.final != nil {
				return s.final, s.check()
			}
			if bad, ok := errors.AsType[*gap](err); ok {
				return nil, bad
			}
		}
		if last = err; !p.again(err) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("stream %s did not end within %v: %w", s.id, patience, last)
}

// A gap is an event out of its order.
type gap struct{ what string }

func (g *gap) Error() string { return g.what }

// streamed is what a stream has brought so far, over all its connections.
type streamed struct {
	id     berth.ResponseID
	next   int64                       // the sequence number that comes next
	deltas map[[2]int]*strings.Builder // of texts and outputs, by output index and content or command index
	final  *outcome
}

func (s *streamed) read(body io.Reader) error {
	for ev, err := range sse.NewReader(body, 0).Events() {
		if err != nil {
			return err
		}
		var e struct {
			Type           berth.EventType `json:"type"`
			SequenceNumber int64           `json:"sequence_number"`
			OutputIndex    int             `json:"output_index"`
			ContentIndex   int             `json:"content_index"`
			CommandIndex   int             `json:"command_index"`
			Delta          json.RawMessage `json:"delta"`
			Response       *outcome        `json:"response"`
		}
		if err := json.Unmarshal(ev.Data, &e); err != nil {
			return &gap{fmt.Sprintf("event %.200s: %v", ev.Data, err)}
		}
		if e.Type == berth.EventErrored && e.Response == nil && e.SequenceNumber == 0 && s.next > 0 {
			return fmt.Errorf("the stream was broken off: %.300s", ev.Data)
		}
		if e.SequenceNumber != s.next {
			return &gap{fmt.Sprintf("stream %s: event %d follows event %d: %.300s", s.id, e.SequenceNumber, s.next-1,
				ev.Data)}
		}
		s.next++
		at := [2]int{e.OutputIndex, e.ContentIndex + e.CommandIndex}
		switch e.Type {
		case berth.EventCreated:
			s.id = e.Response.ID
		case berth.EventOutputTextDelta, berth.EventShellOutputDelta:
			if s.deltas[at] == nil {
				s.deltas[at] = &strings.Builder{}
			}
			var text string
			var shell berth.ShellDelta
			if json.Unmarshal(e.Delta, &text) == nil {
				s.deltas[at].WriteString(text)
			} else if json.Unmarshal(e.Delta, &shell) == nil {
				s.deltas[at].WriteString(shell.Stdout)
			}
		default:
			if e.Type.Final() {
				s.final = e.Response
				return nil
			}
		}
	}
	return io.ErrUnexpectedEOF
}

// check compares the deltas with the items that they led to.
func (s *streamed) check() error {
	for at, text := range s.deltas {
		if at[0] >= len(s.final.Output) {
			return fmt.Errorf("%s: deltas of item %d, which is not in its output", s.id, at[0])
		}
		it := s.final.Output[at[0]]
		want := ""
		switch {
		case it.Type == "message" && at[1] < len(it.Content):
			want = it.Content[at[1]].Text
		case it.Type == "shell_call_output" && at[1] < len(it.Output):
			want = it.Output[at[1]].Stdout
		}
		if text.String() != want {
			return fmt.Errorf("%s: the deltas of item %d are %.300q, and it holds %.300q", s.id, at[0], text, want)
		}
	}
	return nil
}

// An outcome is a response as far as the chaos looks at it.
type outcome struct {
	ID     berth.ResponseID `json:"id"`
	Status berth.Status     `json:"status"`
	Error  json.RawMessage  `json:"error"`
	Tools  []struct {
		Environment struct {
			ContainerID string `json:"container_id"`
		} `json:"environment"`
	} `json:"tools"`
	Output []struct {
		ID      string       `json:"id"`
		Type    string       `json:"type"`
		Status  berth.Status `json:"status"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		Output []struct {
			Stdout  string          `json:"stdout"`
			Stderr  string          `json:"stderr"`
			Outcome json.RawMessage `json:"outcome"`
		} `json:"output"`
	} `json:"output"`
}

// stdouts returns what the commands printed, in order.
func (a *outcome) stdouts() (out []string) {
	for _, it := range a.Output {
		if it.Type != "shell_call_output" {
			continue
		}
		for _, o := range it.Output {
			out = append(out, o.Stdout)
		}
	}
	return out
}

// want returns an error unless the response is complete and its commands printed that.
func (a *outcome) want(stdouts ...string) error {
	if a.Status != berth.StatusCompleted {
		return fmt.Errorf("%s is %s: %s", a.ID, a.Status, a.Error)
	}
	if got := a.stdouts(); !equalStrings(got, stdouts) {
		raw, _ := json.Marshal(a)
		return fmt.Errorf("%s: the commands printed %q, want %q: %.3000s", a.ID, got, stdouts, raw)
	}
	return nil
}

func equalStrings(a, b []string) bool { return strings.Join(a, "\x00") == strings.Join(b, "\x00") }
