package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/model/modeltest"
)

// A WebSocket answers with the events that a POST streams, and the response is stored.
func TestSocketAnswers(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	l := h.connect()
	l.send(`{"type":"response.create","model":"scripted","input":"Ahoy","stream":true,"client_metadata":{"session":"1"}}`)
	last, before := l.until("response.completed")
	var kinds []string
	for n, ev := range append(before, last) {
		kinds = append(kinds, ev["type"].(string))
		if ev.at("sequence_number") != float64(n) || ev.at("stream_id") != nil {
			t.Errorf("got %v as event %d", ev, n)
		}
	}
	var want []string
	for _, ev := range h.rest(h.stream(t.Context(), "POST", "/v1/responses",
		`{"model":"scripted","input":"Ahoy","stream":true}`)) {
		want = append(want, ev.Type)
	}
	if got := strings.Join(kinds, " "); got != strings.Join(want, " ") {
		t.Errorf("got events %s, want those of a POST: %s", got, want)
	}
	id := last.at("response", "id").(string)
	if got := h.call(200, "GET", "/v1/responses/"+id, nil); got.at("output", 0, "content", 0, "text") != "Ahoy" {
		t.Errorf("got %v stored", got)
	}

	// Responses run one after another, and each stored one can be continued from anywhere.
	next := l.ask(`"input":"Ahoy again","previous_response_id":"` + id + `"`)
	if next.at("previous_response_id") != id {
		t.Errorf("got %v, want it to continue %s", next, id)
	}
	h.connect().ask(`"input":"and again","previous_response_id":"` + next.id() + `"`)
	h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"x","previous_response_id":"`+next.id()+`"}`)
}

// Requests of one lane run one after another, in the order of their arrival.
func TestSocketIsSequential(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	l := h.connect()
	l.send(`{"type":"response.create","model":"vendor/fed","input":"1"}`)
	l.send(`{"type":"response.create","model":"scripted","input":"2"}`)
	l.send(`{"type":"response.create","model":"scripted"}`)
	l.send(`{"type":"response.create","model":"scripted","input":"4"}`)
	h.fed.words <- "one"
	h.fed.words <- ""
	first, _ := l.until("response.completed")
	second, before := l.until("response.completed")
	for _, ev := range before {
		if ev.at("type") == "response.created" && ev.at("response", "id") != second.at("response", "id") {
			t.Errorf("got %v while %v was sent", ev, second)
		}
	}
	l.wantError(400, "missing_required_parameter", "input")
	fourth, _ := l.until("response.completed")
	for i, ev := range []object{first, second, fourth} {
		if got, want := ev.at("response", "output", 0, "content", 0, "text"), []string{"one", "2",
			"4"}[i]; got != want {
			t.Errorf("response %d: got %v, want %s", i, got, want)
		}
	}
}

// Lanes run concurrently, and their events have a stream_id.
func TestSocketLanes(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	l := h.connect()
	l.send(`{"type":"response.create","stream_id":"slow","model":"vendor/fed","input":"1","store":false}`)
	l.send(`{"type":"response.create","stream_id":"quick.1","model":"scripted","input":"2","store":false}`)
	h.fed.words <- "one"
	quick, before := l.until("response.completed")
	if quick.at("stream_id") != "quick.1" {
		t.Errorf("got %v, want the end of the quick one", quick)
	}
	for _, ev := range before {
		if lane := ev.at("stream_id"); lane != "quick.1" && lane != "slow" {
			t.Errorf("got %v, want it to name its lane", ev)
		}
	}
	h.fed.words <- ""
	slow, _ := l.until("response.completed")
	if slow.at("stream_id") != "slow" {
		t.Errorf("got %v, want the end of the slow one", slow)
	}

	// A lane can continue another's latest response. If that fails, the other lane can still
	// continue it.
	id := quick.at("response", "id").(string)
	l.send(`{"type":"response.create","stream_id":"fork","model":"scripted","store":false,"previous_response_id":"` +
		id + `","input":[{"type":"function_call_output","call_id":"call_none","output":"x"}]}`)
	if ev := l.wantError(400, nil, "input"); ev.at("stream_id") != "fork" {
		t.Errorf("got %v, want it to name its lane", ev)
	}
	l.ask(`"stream_id":"fork","store":false,"input":"x","previous_response_id":"` + id + `"`)
	l.ask(`"stream_id":"quick.1","store":false,"input":"x","previous_response_id":"` + id + `"`)

	l.send(`{"type":"response.create","stream_id":"no spaces","model":"scripted","input":"x"}`)
	l.wantError(400, "invalid_stream_id", "stream_id")
	for n := range 30 { // with the three above, one too many
		lane := `"stream_id":"l` + strings.Repeat("x", n) + `"`
		if n < 29 {
			l.ask(lane + `,"input":"x"`)
			continue
		}
		l.send(`{"type":"response.create",` + lane + `,"model":"scripted","input":"x"}`)
		l.wantError(400, "websocket_stream_limit_reached", "stream_id")
	}
	l.ask(`"input":"the lane without a name is not one of them"`)
}

// A response that is not stored can be continued on its connection only, and is never written
// to disk.
func TestSocketContinues(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	l := h.connect()
	const tool = `"tools":[{"type":"function","name":"look"}]`
	first := l.ask(`"store":false,` + tool + `,"input":"` + "```json look\\n{}\\n```" + `"`)
	call := first.at("output", 0, "call_id").(string)
	h.eventually(first.id(), gone)
	h.call(404, "GET", "/v1/responses/"+first.id(), nil)

	answer := `"store":false,` + tool + `,"previous_response_id":"` + first.id() +
		`","input":[{"type":"function_call_output","call_id":"` + call + `","output":"a ship"}]`
	// On another connection, it is unknown: the client must send everything again.
	other := h.connect()
	other.send(`{"type":"response.create","model":"scripted",` + answer + `}`)
	other.wantError(400, "previous_response_not_found", "previous_response_id")
	other.ask(`"store":false,"previous_response_id":null,"input":[{"role":"user","content":"look"},{"type":"function_call","call_id":"c","name":"look","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"a ship"}]`)

	second := l.ask(answer)
	h.eventually(second.id(), gone)
	// Only the latest response is retained.
	l.send(`{"type":"response.create","model":"scripted",` + answer + `}`)
	l.wantError(400, "previous_response_not_found", "previous_response_id")
	third := l.ask(`"store":false,"input":"x","previous_response_id":"` + second.id() + `"`)
	l.send(`{"type":"response.create","model":"scripted","input":"x","previous_response_id":"` + third.id() + `"}`)
	l.wantError(400, nil, "store")
}

// After a failed continuation, the continued response is forgotten.
func TestSocketEvicts(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	for name, bad := range map[string]string{
		"refused by the engine": `"input":[{"type":"function_call_output","call_id":"call_none","output":"x"}]`,
		"refused by a rule":     `"input":"x","temperature":"hot"`,
	} {
		t.Run(name, func(t *testing.T) {
			l := h.connect()
			first := l.ask(`"store":false,"input":"x"`)
			l.send(`{"type":"response.create","model":"scripted","store":false,"previous_response_id":"` + first.id() +
				`",` + bad + `}`)
			if ev := l.next(); ev.at("status") != 400.0 {
				t.Errorf("got %v, want it refused", ev)
			}
			l.send(`{"type":"response.create","model":"scripted","store":false,"input":"x","previous_response_id":"` +
				first.id() + `"}`)
			l.wantError(400, "previous_response_not_found", "previous_response_id")
			// A new chain starts with the whole context.
			l.ask(`"store":false,"input":[{"role":"user","content":"x"},{"role":"assistant","content":"x"},{"role":"user","content":"y"}]`)
		})
	}
	t.Run("a failure that continues nothing", func(t *testing.T) {
		l := h.connect()
		first := l.ask(`"store":false,"input":"x"`)
		l.send(`{"type":"response.create","model":"none","store":false,"input":"x"}`)
		l.wantError(404, "model_not_found", "model")
		l.ask(`"store":false,"input":"x","previous_response_id":"` + first.id() + `"`)
	})
}

func TestSocketPrepares(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	l := h.connect()
	ready := l.ask(`"store":false,"generate":false,"input":"` + "```json look\\n{}\\n```" +
		`","tools":[{"type":"function","name":"look"}]`)
	if out, _ := ready.at("output").([]any); len(out) != 0 {
		t.Errorf("got %v, want no output", ready)
	}
	next := l.ask(`"store":false,"generate":true,"input":[],"previous_response_id":"` + ready.id() +
		`","tools":[{"type":"function","name":"look"}]`)
	if next.at("output", 0, "name") != "look" {
		t.Errorf("got %v, want the answer to what was prepared", next)
	}
	kept := l.ask(`"generate":false,"input":"Ahoy"`)
	h.call(200, "GET", "/v1/responses/"+kept.id(), nil)
}

// After a compaction, a new chain starts with its output. The first response of the new chain
// evicts the old one.
func TestSocketCompacts(t *testing.T) {
	t.Parallel()
	rule, double := chatRule(t, 0, modeltest.Play(finished("one"), finished("SUM"), finished("two"), finished("three")))
	h := newHouse(t, nil, rule)
	l := h.connect()
	old := l.ask(`"model":"chat","store":false,"input":"a task"`)
	compacted := h.call(200, "POST", "/v1/responses/compact",
		`{"model":"chat","input":[{"role":"user","content":"a task"},{"role":"assistant","content":"one"}]}`)
	window := strings.TrimSuffix(marshal(t, compacted["output"]), "]") + `,{"role":"user","content":"and now?"}]`
	first := l.ask(`"model":"chat","store":false,"previous_response_id":null,"input":` + window)
	l.ask(`"model":"chat","store":false,"input":"and then?","previous_response_id":"` + first.id() + `"`)
	var seen []string
	for _, m := range double.Requests()[3].Messages {
		seen = append(seen, m.Role+" "+m.Text[max(0, len(m.Text)-9):])
	}
	if got := strings.Join(seen, ", "); !strings.HasPrefix(got, "user a task, user ") || !strings.HasSuffix(got,
		"SUM, user and now?, assistant two, user and then?") {
		t.Errorf("the model saw %q, want the task, the summary, and the new chain", got)
	}
	l.send(`{"type":"response.create","model":"chat","store":false,"input":"x","previous_response_id":"` + old.id() +
		`"}`)
	l.wantError(400, "previous_response_not_found", "previous_response_id")
}

func TestSocketRefuses(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	l := h.connect()
	for event, want := range map[string][2]any{
		`no JSON`:                    {nil, nil},
		`[]`:                         {"invalid_type", nil},
		`{}`:                         {"missing_required_parameter", "type"},
		`{"type":"response.cancel"}`: {"invalid_value", "type"},
		`{"type":7}`:                 {"invalid_type", "type"},
		`{"type":"response.create","model":"scripted","input":"x","stream":false}`: {"unsupported_value",
			"stream"},
		`{"type":"response.create","model":"scripted","input":"x","background":true}`: {"unsupported_parameter",
			"background"},
		`{"type":"response.create","model":"scripted","input":"x","response":{}}`: {"unknown_parameter",
			"response"},
		`{"type":"response.create","model":"scripted","input":"x","stream_id":""}`: {"invalid_stream_id",
			"stream_id"},
		`{"type":"response.create","model":"scripted","input":"x","generate":"no"}`: {"invalid_type",
			"generate"},
		`{"type":"response.create","model":"scripted","input":"x","type":"response.create"}`: {nil, nil},
		`{"type":"response.create","model":"scripted","input":"x","previous_response_id":"resp_unknown"}`: {"previous_response_not_found",
			"previous_response_id"},
	} {
		l.send(event)
		if ev := l.wantError(400, want[0], want[1]); t.Failed() {
			t.Fatalf("%s: got %v", event, ev)
		}
	}
	check(t, l.conn.Write(t.Context(), websocket.MessageBinary, []byte(`{"type":"response.create"}`)))
	l.wantError(400, nil, nil)
	l.send(`{"type":"response.steer","previous_response_id":"resp_1","input":"left"}`)
	if ev := l.next(); ev.at("type") != "response.steer.failed" || ev.at("error", "code") != "steering_not_supported" ||
		ev.at("steer", "input") != "left" {
		t.Errorf("got %v, want the steering given back", ev)
	}
	l.ask(`"input":"it is still there"`)
}

// On a WebSocket too, another project's objects do not exist.
func TestSocketIdentity(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	body, kind := upload("a.txt", strings.NewReader("a"), "purpose", "user_data")
	theirs := map[string]string{
		"resp": h.connect().ask(`"input":"x"`).id(),
		"file": h.call(200, "POST", "/v1/files", body, kind).id(),
		"cntr": h.call(200, "POST", "/v1/containers", `{"name":"a"}`).id(),
		"pmpt": h.call(200, "POST", "/v1/prompts", greeting).id(),
	}
	h.key("sk-b", "proj_b")
	l := h.connect()
	for prefix, fields := range map[string]string{
		"resp": `"input":"x","previous_response_id":"%s"`,
		"file": `"input":[{"role":"user","content":[{"type":"input_file","file_id":"%s"}]}]`,
		"cntr": `"input":"x","tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"%s"}}]`,
		"pmpt": `"input":"x","prompt":{"id":"%s"}`,
	} {
		var answers [2]string
		for i, id := range []string{theirs[prefix], prefix + "_unknown"} {
			l.send(`{"type":"response.create","model":"scripted",` + fmt.Sprintf(fields, id) + `}`)
			ev := l.next()
			answers[i] = strings.ReplaceAll(fmt.Sprint(ev.at("type"), ev.at("status"), ev.at("error", "code"),
				ev.at("error", "param"), ev.at("error", "message")), id, "ID")
		}
		if answers[0] != answers[1] || !strings.HasPrefix(answers[0], "error") {
			t.Errorf("another project's %s: got %s, want as for one that is not there: %s", prefix, answers[0],
				answers[1])
		}
	}
}

// A revoked key is not accepted for another request.
func TestSocketOfALostKey(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	h.key("sk-b", "proj_b")
	l := h.connect()
	keys, err := h.store.ListKeys(t.Context())
	check(t, err)
	for _, k := range keys {
		if k.Project == "proj_b" {
			check(t, h.store.DeleteKey(t.Context(), k.ID))
		}
	}
	l.send(`{"type":"response.create","model":"scripted","input":"x"}`)
	l.wantError(401, "invalid_api_key", nil)
	l.wantClosed(websocket.StatusPolicyViolation)
}

// Queued events are limited in number and in bytes.
func TestSocketQueue(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(o *api.Options) { o.Exchange.Limits.MaxBody = 64 << 10 })
	l := h.connect()
	l.send(`{"type":"response.create","model":"vendor/fed","input":"x"}`)
	l.until("response.in_progress")
	large := strings.Repeat("x", 40<<10)
	l.send(`{"type":"response.create","model":"scripted","input":"` + large + `"}`)
	l.send(`{"type":"response.create","model":"scripted","input":"` + large + `"}`)
	l.wantError(429, "rate_limit_exceeded", nil)
	for range 63 { // and the large one
		l.send(`{"type":"response.create","model":"scripted","input":"x"}`)
	}
	l.send(`{"type":"response.create","model":"scripted","input":"x"}`)
	l.wantError(429, "rate_limit_exceeded", nil)
	h.fed.words <- ""
	for range 65 {
		l.until("response.completed")
	}
	l.ask(`"input":"there is room again"`)
}

func TestSocketHandshake(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	dial := func(change func(http.Header)) (*http.Response, error) {
		header := http.Header{}
		change(header)
		conn, resp, err := websocket.Dial(t.Context(), h.url+"/v1/responses", &websocket.DialOptions{HTTPHeader: header,
			Host: header.Get("Host")})
		if err == nil {
			conn.CloseNow()
		}
		return resp, err
	}
	resp, err := dial(func(header http.Header) { header.Set("Origin", h.url) })
	check(t, err)
	if !strings.HasPrefix(resp.Header.Get("x-request-id"), "req_") {
		t.Errorf("got header %v, want a request id", resp.Header)
	}
	for name, change := range map[string]func(http.Header){
		"a page of elsewhere": func(h http.Header) { h.Set("Origin", "http://evil.example") },
		"a name of elsewhere": func(h http.Header) { h.Set("Host", "evil.example") },
	} {
		if resp, err := dial(change); err == nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: got %v, %v, want 403", name, resp, err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", h.url+"/v1/responses", nil)
	check(t, err)
	req.Header.Set("Upgrade", "websocket") // of an unknown version
	refused, err := http.DefaultClient.Do(req)
	check(t, err)
	defer refused.Body.Close()
	if body, err := io.ReadAll(refused.Body); err != nil || refused.StatusCode != http.StatusUpgradeRequired ||
		!strings.Contains(string(body), `"upgrade_required"`) {
		t.Errorf("got %s %s, %v", refused.Status, body, err)
	}
}

func TestSocketNeedsAKey(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	for _, authorization := range []string{"", "Bearer sk-b"} {
		_, resp, err := websocket.Dial(t.Context(), h.url+"/v1/responses",
			&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {authorization}}})
		if err == nil || resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("with %q: got %v, %v, want 401", authorization, resp, err)
		}
	}
	h.connect().ask(`"input":"x"`)
}

// If a client vanishes, its responses are cancelled and queued ones are not started.
func TestSocketClientLeaves(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*websocket.Conn){
		"with a close":   func(c *websocket.Conn) { c.Close(websocket.StatusNormalClosure, "") },
		"without a word": func(c *websocket.Conn) { c.CloseNow() },
	} {
		t.Run(name, func(t *testing.T) {
			logged := make(lines, 10)
			h := newHouse(t, func(o *api.Options) { o.Exchange.Log = slog.New(slog.NewTextHandler(logged, nil)) })
			l := h.connect()
			l.send(`{"type":"response.create","model":"vendor/fed","input":"1"}`)
			l.send(`{"type":"response.create","model":"vendor/fed","input":"2"}`)
			id := l.next().at("response", "id").(string)
			h.fed.words <- "one"
			leave(l.conn)
			response, request := <-logged, <-logged
			if !strings.Contains(response, "response="+id) || !strings.Contains(request, "status=101") {
				t.Errorf("got log lines\n%s%swant those of the response and of the connection", response, request)
			}
			h.eventually(id, ended(berth.StatusCancelled))
			runs, err := h.store.OrphanedRuns(t.Context(), time.Now().Add(time.Hour))
			if err != nil || len(runs) != 0 {
				t.Errorf("got runs %v, %v, want none", runs, err)
			}
		})
	}
}

// After a shutdown, stored responses continue at the next start.
func TestSocketServerStops(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	busy, calm := h.connect(), h.connect()
	busy.send(`{"type":"response.create","model":"vendor/fed","input":"1"}`)
	h.fed.words <- "one"
	created, _ := busy.until("response.created")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	check(t, h.engine.Close(ctx))
	h.stop(errors.New("stopping"))
	for {
		ev := busy.next()
		if ev.at("type") == "error" {
			if ev.at("status") != 503.0 || ev.at("error", "code") != "unavailable" {
				t.Errorf("got %v", ev)
			}
			break
		}
	}
	busy.wantClosed(websocket.StatusGoingAway)
	calm.wantClosed(websocket.StatusGoingAway)
	h.eventually(created.at("response", "id").(string), ended(berth.StatusInProgress))
}

// A connection has a maximum age. Responses in progress at that time are sent to their end.
func TestSocketLife(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(o *api.Options) { o.SocketLife = 300 * time.Millisecond })
	busy, calm := h.connect(), h.connect()
	busy.send(`{"type":"response.create","model":"vendor/fed","input":"1"}`)
	calm.wantError(400, "websocket_connection_limit_reached", nil)
	calm.wantClosed(websocket.StatusGoingAway)
	h.fed.words <- "one"
	h.fed.words <- ""
	busy.until("response.completed")
	busy.wantError(400, "websocket_connection_limit_reached", nil)
	busy.wantClosed(websocket.StatusGoingAway)
}
