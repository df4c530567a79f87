package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/internal/sse"
)

const shell = `"tools":[{"type":"shell","environment":{"type":"container_auto"}}]`

// say returns the body of a request for the scripted model, with more fields.
func say(text string, more ...string) string {
	input, _ := json.Marshal(text)
	return fmt.Sprintf(`{"model":"scripted","input":%s%s}`, input, strings.Join(append([]string{""}, more...), ","))
}

func TestPlainResponse(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	r := h.call(200, "POST", "/v1/responses", say("Ahoy.", `"metadata":{"ship":"Vasa"}`))
	if r.at("status") != "completed" || r.at("output", 0, "role") != "assistant" ||
		r.at("metadata", "ship") != "Vasa" || r.at("usage", "total_tokens") == nil {
		t.Errorf("got %v, want a completed answer", r)
	}
	if diff := cmp.Diff(r, h.call(200, "GET", "/v1/responses/"+r.id(), nil)); diff != "" {
		t.Errorf("GET (-POST +GET):\n%s", diff)
	}
	if got := h.call(200, "DELETE", "/v1/responses/"+r.id(), nil); !cmp.Equal(got,
		object{"id": r.id(), "object": "response", "deleted": true}) {
		t.Errorf("DELETE: got %v", got)
	}
	for _, path := range []string{r.id(), r.id() + "?stream=true", r.id() + "/input_items"} {
		got := h.call(404, "GET", "/v1/responses/"+path, nil)
		want := object{"error": map[string]any{"message": "Response with id '" + r.id() +
			"' not found.", "type": "invalid_request_error", "param": nil, "code": nil}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("GET %s after DELETE (-want +got):\n%s", path, diff)
		}
	}
}

func TestResponseInShell(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	r := h.call(200, "POST", "/v1/responses", say("```sh\necho ahoy; exit 3\n```", shell))
	if r.at("output", 1, "output", 0, "stdout") != "ahoy\n" || r.at("output", 1, "output", 0, "outcome",
		"exit_code") != 3.0 {
		t.Errorf("got %v, want what the command printed", r.at("output"))
	}
	id, _ := r.at("tools", 0, "environment", "container_id").(string)
	if c := h.call(200, "GET", "/v1/containers/"+id, nil); c.at("status") != "running" {
		t.Errorf("got container %v, want it running", c)
	}
}

func TestNotStored(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	r := h.call(200, "POST", "/v1/responses", say("Ahoy.", `"store":false`))
	if r.at("status") != "completed" || r.at("store") != false {
		t.Errorf("got %v, want it answered", r)
	}
	h.call(404, "GET", "/v1/responses/"+r.id(), nil)
	h.call(404, "GET", "/v1/responses/"+r.id()+"?stream=true", nil)
}

// A stream that is resumed at any point continues with the same events.
func TestStreamAndResume(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	events := h.rest(h.stream(t.Context(), "POST", "/v1/responses", say("```sh\necho ahoy\n```", shell, `"stream":true`,
		`"stream_options":{"include_obfuscation":false}`)))
	var final object
	for i, ev := range events {
		var head struct {
			Type   string
			Number int `json:"sequence_number"`
		}
		check(t, json.Unmarshal(ev.Data, &head))
		if head.Type != ev.Type || head.Number != i {
			t.Errorf("event %d: got type %s in event %s with number %d", i, head.Type, ev.Type, head.Number)
		}
		check(t, json.Unmarshal(ev.Data, &final))
	}
	if n := len(events); n < 10 || events[0].Type != "response.created" || events[n-1].Type != "response.completed" {
		t.Fatalf("got %d events, want response.created … response.completed", n)
	}
	id := final.at("response", "id").(string)
	for after := -1; after < len(events); after++ {
		path := fmt.Sprintf("/v1/responses/%s?stream=true&include_obfuscation=false&starting_after=%d", id, after)
		got := h.rest(h.stream(t.Context(), "GET", path, nil))
		if want := events[min(after+1, len(events)):]; !cmp.Equal(got, want) && len(got)+len(want) > 0 {
			t.Fatalf("after %d: (-want +got):\n%s", after, cmp.Diff(want, got))
		}
	}
}

// Obfuscation is on by default and changes no other field.
func TestStreamObfuscation(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	r := h.call(200, "POST", "/v1/responses", say("Ahoy, harbour."))
	plain := h.rest(h.stream(t.Context(), "GET", "/v1/responses/"+r.id()+"?stream=true&include_obfuscation=false", nil))
	padded := h.rest(h.stream(t.Context(), "GET", "/v1/responses/"+r.id()+"?stream=true", nil))
	if len(plain) != len(padded) {
		t.Fatalf("got %d events, want %d", len(padded), len(plain))
	}
	found := 0
	for i := range plain {
		var a, b object
		check(t, json.Unmarshal(plain[i].Data, &a))
		check(t, json.Unmarshal(padded[i].Data, &b))
		if _, ok := b["obfuscation"]; ok != strings.HasSuffix(plain[i].Type, ".delta") {
			t.Errorf("%s: got obfuscation %v", plain[i].Type, ok)
		} else if ok {
			found++
		}
		delete(b, "obfuscation")
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("event %d (-plain +padded):\n%s", i, diff)
		}
	}
	if found == 0 {
		t.Error("no event has an obfuscation")
	}
}

func TestStreamHeaders(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	resp := h.send(t.Context(), "POST", "/v1/responses", say("Ahoy.", `"stream":true`))
	for name, want := range map[string]string{"Content-Type": "text/event-stream; charset=utf-8",
		"Cache-Control": "no-cache", "X-Accel-Buffering": "no", "Openai-Version": "2020-10-01"} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("got %s %q, want %q", name, got, want)
		}
	}
	if resp.Header.Get("x-request-id") == "" || resp.Header.Get("openai-processing-ms") == "" {
		t.Errorf("got header %v, want x-request-id and openai-processing-ms", resp.Header)
	}
}

// An error before the first event is an ordinary answer, even for a stream.
func TestStreamThatCannotStart(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	e := h.call(404, "POST", "/v1/responses", `{"model":"none","input":"x","stream":true}`)
	if e.at("error", "code") != "model_not_found" || e.at("error", "param") != "model" {
		t.Errorf("got %v, want model_not_found", e)
	}
}

const fed = `{"model":"vendor/fed","input":"x","stream":true}`

func TestLeavingCancelsAForegroundRun(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	id := h.until(h.stream(ctx, "POST", "/v1/responses", fed), "response.created").at("response", "id").(string)
	leave()
	events := h.rest(h.stream(t.Context(), "GET", "/v1/responses/"+id+"?stream=true", nil))
	if last := events[len(events)-1]; last.Type != "response.cancelled" {
		t.Errorf("got %s last, want response.cancelled", last.Type)
	}
}

func TestLeavingAPlainAnswerCancelsItsRun(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	ctx, leave := context.WithCancel(t.Context())
	asked := make(chan error)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, "POST", h.url+"/v1/responses",
			strings.NewReader(`{"model":"vendor/fed","input":"x"}`))
		req.Header.Set("Content-Type", "application/json")
		_, err := http.DefaultClient.Do(req)
		asked <- err
	}()
	h.fed.words <- "one" // it runs
	runs, err := h.store.OrphanedRuns(t.Context(), time.Now().Add(time.Hour))
	if err != nil || len(runs) != 1 {
		t.Fatalf("got runs %v, %v, want one", runs, err)
	}
	leave()
	if err := <-asked; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the request cancelled", err)
	}
	h.until(h.stream(t.Context(), "GET", "/v1/responses/"+string(runs[0].Response)+"?stream=true", nil),
		"response.cancelled")
}

func TestBackground(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	r := h.call(200, "POST", "/v1/responses", `{"model":"vendor/fed","input":"x","background":true}`)
	if s := r.at("status"); s != "queued" && s != "in_progress" {
		t.Errorf("got status %v, want it under way", s)
	}
	follower := h.stream(t.Context(), "GET", "/v1/responses/"+r.id()+"?stream=true&starting_after=1", nil)
	h.fed.words <- "one"
	if d := h.until(follower, "response.output_text.delta"); d.at("delta") != "one" {
		t.Errorf("got %v, want the word", d)
	}
	if got := h.call(200, "POST", "/v1/responses/"+r.id()+"/cancel", nil); got.at("status") != "cancelled" {
		t.Errorf("got %v, want it cancelled", got)
	}
	h.until(follower, "response.cancelled")
	if _, err := follower.Next(); err != io.EOF {
		t.Errorf("got %v after the last event, want the end", err)
	}
}

func TestBackgroundOutlivesItsStream(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	id := h.until(h.stream(ctx, "POST", "/v1/responses",
		`{"model":"vendor/fed","input":"x","stream":true,"background":true}`), "response.created").at("response",
		"id").(string)
	leave()
	h.fed.words <- "one"
	h.fed.words <- ""
	again := h.stream(t.Context(), "GET", "/v1/responses/"+id+"?stream=true", nil)
	if end := h.until(again, "response.completed"); end.at("response", "output", 0, "content", 0, "text") != "one" {
		t.Errorf("got %v, want it completed", end)
	}
}

func TestKeepAlive(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(o *api.Options) { o.Exchange.Limits.KeepAlive = 10 * time.Millisecond })
	resp := h.send(t.Context(), "POST", "/v1/responses", fed)
	var seen strings.Builder
	for buf := make([]byte, 1024); strings.Count(seen.String(), ": keep-alive\n\n") < 3; {
		n, err := resp.Body.Read(buf)
		check(t, err)
		seen.Write(buf[:n])
	}
	h.fed.words <- "one"
	h.fed.words <- ""
	h.until(sse.NewReader(resp.Body, 0), "response.completed")
}

// A client that stops reading is disconnected after a while and does not delay others.
func TestDeafClient(t *testing.T) {
	t.Parallel()
	answered := make(lines, 10)
	h := newHouse(t, func(o *api.Options) {
		o.Exchange.Limits.Patience = 2 * time.Second
		o.Exchange.Log = slog.New(slog.NewTextHandler(answered, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	r := h.call(200, "POST", "/v1/responses", `{"model":"vendor/fed","input":"x","background":true}`)
	path := "/v1/responses/" + r.id() + "?stream=true&include_obfuscation=false"
	deaf, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	check(t, err)
	defer deaf.Close()
	check(t, deaf.(*net.TCPConn).SetReadBuffer(128<<10))
	fmt.Fprintf(deaf, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	hears := h.stream(t.Context(), "GET", path, nil)
	big := strings.Repeat("x", 256<<10)
	for range 8 { // and five times as much, as the closing events repeat it: no buffer takes that
		h.fed.words <- big
		h.until(hears, "response.output_text.delta")
	}
	h.fed.words <- ""
	h.until(hears, "response.completed")
	for range 3 { // the run, and both streams: the deaf one ends without being read
		<-answered
	}
	all, err := io.ReadAll(deaf)
	if strings.Contains(string(all), "response.completed") {
		t.Errorf("the client that does not read got all %d bytes, %v, want it disconnected", len(all), err)
	}
}

// lines is a log, a line at a time.
type lines chan string

func (l lines) Write(p []byte) (int, error) { l <- string(p); return len(p), nil }

func TestDeletedWhileStreamed(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	r := h.call(200, "POST", "/v1/responses", `{"model":"vendor/fed","input":"x","background":true}`)
	stream := h.stream(t.Context(), "GET", "/v1/responses/"+r.id()+"?stream=true", nil)
	h.until(stream, "response.in_progress")
	h.call(200, "DELETE", "/v1/responses/"+r.id(), nil)
	events := h.rest(stream)
	// Deletion ends the run first: the reader gets that end, or an error that the response is gone.
	last := events[len(events)-1]
	if last.Type != "response.cancelled" && (last.Type != "error" || !strings.Contains(string(last.Data),
		"not found")) {
		t.Errorf("got %s %s last, want an end", last.Type, last.Data)
	}
}

// On a shutdown, a stream ends with an error event, and a plain answer is an error that names
// the response.
func TestServerStops(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	stream := h.stream(t.Context(), "POST", "/v1/responses", fed)
	h.until(stream, "response.in_progress")
	check(t, h.engine.Close(t.Context()))
	h.stop(errors.New("stopping"))
	e := h.until(stream, "error")
	if e.at("error", "code") != "unavailable" || e.at("sequence_number") != 2.0 {
		t.Errorf("got %v, want unavailable as number 2", e)
	}
	if _, err := stream.Next(); err != io.EOF {
		t.Errorf("got %v after it, want the end", err)
	}
}

func TestInputItems(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	r := h.call(200, "POST", "/v1/responses",
		`{"model":"scripted","input":[{"role":"developer","content":"a"},{"role":"user","content":"b"},{"role":"user","content":[{"type":"input_text","text":"c"}]}]}`)
	list := func(query string) (texts string, page object) {
		page = h.call(200, "GET", "/v1/responses/"+r.id()+"/input_items"+query, nil)
		for i := range page.at("data").([]any) {
			texts += page.at("data", i, "content", 0, "text").(string)
		}
		return texts, page
	}
	texts, all := list("?order=asc")
	if texts != "abc" || all.at("object") != "list" || all.at("has_more") != false ||
		all.at("first_id") != all.at("data", 0, "id") || all.at("last_id") != all.at("data", 2, "id") {
		t.Errorf("got %v, want three items in order", all)
	}
	if all.at("data", 0, "type") != "message" || all.at("data", 0, "status") != "completed" ||
		!strings.HasPrefix(fmt.Sprint(all.at("data", 0, "id")), "msg_") {
		t.Errorf("got %v, want the full form", all.at("data", 0))
	}
	if texts, _ := list(""); texts != "cba" {
		t.Errorf("got %s, want the newest first by default", texts)
	}
	texts, page := list("?limit=2&include[]=message.output_text.logprobs")
	if texts != "cb" || page.at("has_more") != true {
		t.Errorf("got %s, more %v, want cb and more", texts, page.at("has_more"))
	}
	texts, page = list("?limit=2&after=" + page.at("last_id").(string))
	if texts != "a" || page.at("has_more") != false {
		t.Errorf("got %s, more %v, want a and no more", texts, page.at("has_more"))
	}
	if _, page = list("?after=" + page.at("last_id").(string)); page.at("first_id") != nil ||
		len(page.at("data").([]any)) != 0 {
		t.Errorf("got %v, want an empty page with null ids", page)
	}
}

func TestQueryErrors(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	r := h.call(200, "POST", "/v1/responses", say("Ahoy."))
	for query, want := range map[string]string{
		"/input_items?limit=0":             "Invalid 'limit': integer below minimum value. Expected a value >= 1, but got 0 instead.",
		"/input_items?limit=101":           "Invalid 'limit': integer above maximum value. Expected a value <= 100, but got 101 instead.",
		"/input_items?limit=x":             "Invalid type for 'limit': expected an integer, but got 'x' instead.",
		"/input_items?order=up":            "Invalid value: 'up'. Supported values are: 'asc' and 'desc'.",
		"/input_items?after=msg_0":         "Invalid 'after': no object with id 'msg_0' in this list.",
		"/input_items?before=msg_0":        "Unknown parameter: 'before'.",
		"?stream=1":                        "Invalid type for 'stream': expected a boolean, but got '1' instead.",
		"?starting_after=3":                "The 'starting_after' parameter is only allowed when 'stream' is enabled.",
		"?stream=true&starting_after=-2":   "Invalid 'starting_after': integer below minimum value. Expected a value >= -1, but got -2 instead.",
		"?include=everything":              "Invalid value: 'everything'. Supported values are: 'file_search_call.results', ",
		"?stream=true&include_obfuscation": "",
		"?%zz":                             "The query string of the URL is malformed.",
	} {
		if want == "" {
			h.until(h.stream(t.Context(), "GET", "/v1/responses/"+r.id()+query, nil), "response.completed")
			continue
		}
		if e := h.call(400, "GET", "/v1/responses/"+r.id()+query, nil); !strings.HasPrefix(fmt.Sprint(e.at("error",
			"message")), want) {
			t.Errorf("%s: got %v, want %s", query, e, want)
		}
	}
}

func TestBodyLimit(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(o *api.Options) { o.Exchange.Limits.MaxBody = 1000 })
	for _, size := range []int{1000, 8 << 20} { // also where the client is still sending
		e := h.call(413, "POST", "/v1/responses", say(strings.Repeat("x", size)))
		if e.at("error", "code") != "request_too_large" {
			t.Errorf("got %v, want request_too_large", e)
		}
	}
	h.call(400, "POST", "/v1/responses", strings.NewReader(`{"model":"scripted","input":"x"}`), "text/plain")
}

func TestModels(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	list := h.call(200, "GET", "/v1/models", nil)
	if list.at("object") != "list" || list.at("data", 0, "object") != "model" {
		t.Errorf("got %v, want a list of models", list)
	}
	ids := map[string]bool{}
	for i := range list.at("data").([]any) {
		id := list.at("data", i, "id").(string)
		ids[id] = true
		if m := h.call(200, "GET", "/v1/models/"+id, nil); m.id() != id {
			t.Errorf("got %v, want model %s", m, id)
		}
	}
	if !ids["scripted"] || !ids["vendor/fed"] {
		t.Errorf("got %v, want scripted and vendor/fed", ids)
	}
	if e := h.call(404, "GET", "/v1/models/none", nil); e.at("error", "code") != "model_not_found" {
		t.Errorf("got %v, want model_not_found", e)
	}
}

// Objects of one project do not exist for another.
func TestProjectsAreApart(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	r := h.call(200, "POST", "/v1/responses", say("Ahoy.", shell))
	body, kind := upload("a.txt", strings.NewReader("secret"), "purpose", "user_data")
	f := h.call(200, "POST", "/v1/files", body, kind)
	container := h.call(200, "POST", "/v1/containers", `{"name":"theirs"}`).id()
	cf := h.call(200, "POST", "/v1/containers/"+container+"/files", `{"file_id":"`+f.id()+`"}`)

	h.key("sk-b", "proj_b")
	for _, path := range []string{
		"GET /v1/responses/" + r.id(), "GET /v1/responses/" + r.id() + "?stream=true", "GET /v1/responses/" + r.id() +
			"/input_items",
		"POST /v1/responses/" + r.id() + "/cancel", "DELETE /v1/responses/" + r.id(),
		"GET /v1/files/" + f.id(), "GET /v1/files/" + f.id() + "/content", "DELETE /v1/files/" + f.id(),
		"GET /v1/containers/" + container, "DELETE /v1/containers/" + container,
		"GET /v1/containers/" + container + "/files", "GET /v1/containers/" + container + "/files/" + cf.id(),
		"GET /v1/containers/" + container + "/files/" + cf.id() + "/content", "DELETE /v1/containers/" + container +
			"/files/" + cf.id(),
		"GET /v1/containers/" + container + "/guest/health", "GET /v1/containers/" + container +
			"/guest/files?path=/etc/passwd",
	} {
		method, path, _ := strings.Cut(path, " ")
		h.call(404, method, path, nil)
	}
	for _, body := range []string{
		say("x", `"previous_response_id":"`+r.id()+`"`),
		say("x", `"tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"`+container+`"}}]`),
		say("x", `"tools":[{"type":"shell","environment":{"type":"container_auto","file_ids":["`+f.id()+`"]}}]`),
		`{"model":"scripted","input":[{"role":"user","content":[{"type":"input_file","file_id":"` + f.id() + `"}]}]}`,
	} {
		if resp := h.send(t.Context(), "POST", "/v1/responses", body); resp.StatusCode != 400 &&
			resp.StatusCode != 404 {
			t.Errorf("%s: got %d, want it refused", body, resp.StatusCode)
		}
	}
	for _, path := range []string{"/v1/files", "/v1/containers"} {
		if list := h.call(200, "GET", path, nil); len(list.at("data").([]any)) != 0 {
			t.Errorf("GET %s: got %v, want nothing", path, list)
		}
	}
	h.token = "sk-a"
	h.call(200, "GET", "/v1/responses/"+r.id(), nil)
	h.call(200, "GET", "/v1/containers/"+container+"/files/"+cf.id(), nil)
}
