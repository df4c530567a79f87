package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// A clusterSocket is a WebSocket to one server of a cluster.
type clusterSocket struct {
	t    *testing.T
	ctx  context.Context
	conn *websocket.Conn
}

func (s *server) socket(ctx context.Context) *clusterSocket {
	s.t.Helper()
	conn, _, err := websocket.Dial(ctx, s.url+"/v1/responses", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(-1)
	return &clusterSocket{s.t, ctx, conn}
}

// send asks for a response in a lane.
func (k *clusterSocket) send(lane string, req map[string]any) {
	k.t.Helper()
	frame := map[string]any{"type": "response.create"}
	for name, value := range req {
		if name != "background" {
			frame[name] = value
		}
	}
	if lane != "" {
		frame["stream_id"] = lane
	}
	text, err := json.Marshal(frame)
	if err == nil {
		err = k.conn.Write(k.ctx, websocket.MessageText, text)
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// A socketEnd is the last event of a lane.
type socketEnd struct {
	Type     string
	StreamID string `json:"stream_id"`
	Number   *int64 `json:"sequence_number"`
	Response memberAnswer
	Error    struct{ Code string }
}

// ends reads until n lanes have ended. It checks that the events of each are complete.
func (k *clusterSocket) ends(n int) map[string]socketEnd {
	k.t.Helper()
	all, next := map[string]socketEnd{}, map[string]int64{}
	for len(all) < n {
		_, data, err := k.conn.Read(k.ctx)
		if err != nil {
			k.t.Fatalf("after %d of %d: %v", len(all), n, err)
		}
		var ev socketEnd
		if err := json.Unmarshal(data, &ev); err != nil {
			k.t.Fatal(err)
		}
		if ev.Number != nil && *ev.Number != next[ev.StreamID] {
			k.t.Errorf("lane %q: event %d follows %d", ev.StreamID, *ev.Number, next[ev.StreamID]-1)
		}
		next[ev.StreamID]++
		switch {
		case ev.Type == "response.completed", ev.Type == "response.failed", ev.Type == "response.incomplete",
			ev.Type == "error" && ev.Number == nil:
			all[ev.StreamID] = ev
		}
	}
	return all
}

// TestClusterSocket asks one server, over one WebSocket, for responses in containers of another:
// stored ones and others, beside each other and one after the other.
func TestClusterSocket(t *testing.T) {
	f := newFleet(t, "1m")
	ctx := within(t, 3*time.Minute)
	a, b := f.servers[0], f.servers[1]
	first := task("echo moored > knot")
	first["background"] = false
	var r memberAnswer
	if _, err := call(ctx, "POST", a.url+"/v1/responses", "", first, &r); err != nil {
		t.Fatal(err)
	}
	k := b.socket(ctx)
	continued := func(id string, store bool, commands ...string) map[string]any {
		req := task(commands...)
		req["previous_response_id"], req["store"] = id, store
		return req
	}
	k.send("away", continued(r.ID, false, "cat knot; echo twice >> knot"))
	k.send("here", task("echo local"))
	ends := k.ends(2)
	if away := ends["away"].Response; away.Status != "completed" || away.container() != r.container() ||
		!strings.Contains(jsonText(away), "moored") {
		t.Errorf("in the container of another server: %+v", ends["away"])
	}
	if here := ends["here"].Response; here.Status != "completed" || here.container() == r.container() ||
		!strings.Contains(jsonText(here), "local") {
		t.Errorf("in a container of its own: %+v", ends["here"])
	}

	// The response that is not stored is in the other server's memory.
	k.send("away", continued(ends["away"].Response.ID, false, "cat knot"))
	if end := k.ends(1)["away"]; !strings.Contains(jsonText(end.Response), "twice") {
		t.Errorf("the chain that is not stored: %+v", end)
	}
	k.send("other", continued("resp_"+strings.Repeat("0", 48), false, "cat knot"))
	if end := k.ends(1)["other"]; end.Error.Code != "previous_response_not_found" {
		t.Errorf("a chain that does not exist: %+v", end)
	}
	k.send("", continued(r.ID, true, "wc -l < knot"))
	end := k.ends(1)[""].Response
	var stored memberAnswer
	if _, err := call(ctx, "GET", f.servers[2].url+"/v1/responses/"+end.ID, "", nil, &stored); err != nil ||
		!strings.Contains(jsonText(stored), "2") {
		t.Errorf("a stored response: %+v, %v", stored, err)
	}

	// The other server goes away in the middle.
	started := make(chan string, 1)
	k.send("away", continued(r.ID, true, "echo begun >> "+f.counter+"; sleep 600"))
	go func() { started <- k.ends(1)["away"].Error.Code }()
	a.waitUntil("the command runs", func() bool { _, err := os.Stat(f.counter); return err == nil })
	a.kill()
	if code := receive(t, started, "the turn ends"); code == "" {
		t.Error("a turn of a server that went away has no error")
	}
	a.start()
	k.send("away", continued(r.ID, true, "cat knot"))
	if end := k.ends(1)["away"]; !strings.Contains(jsonText(end.Response), "moored") {
		t.Errorf("after the other server has returned: %+v", end)
	}
}

// TestClusterStreams runs a command whose input and output are streams, and one whose output is, in
// a container of another server.
func TestClusterStreams(t *testing.T) {
	f := newFleet(t, "1m")
	ctx := within(t, 2*time.Minute)
	a, b := f.servers[0], f.servers[1]
	var c struct{ ID string }
	if _, err := call(ctx, "POST", a.url+"/v1/containers", "", map[string]any{"name": "far"}, &c); err != nil {
		t.Fatal(err)
	}
	cmd := b.command("exec", "-i", c.ID, "cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for i := range 3 {
		if _, err := fmt.Fprintln(in, "line", i); err != nil {
			t.Fatal(err)
		}
		if got, err := lines.ReadString('\n'); err != nil || got != fmt.Sprintln("line", i) {
			t.Fatalf("line %d: got %q, %v, %s", i, got, err, errs.String())
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("berth exec: %v: %s", err, errs.String())
	}

	body, err := json.Marshal(map[string]any{"command": "echo one; until [ -e go ]; do sleep 0.05; done; echo two",
		"stream": true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/v1/containers/"+c.ID+"/exec",
		bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := bufio.NewScanner(resp.Body)
	for events.Scan() && !strings.Contains(events.Text(), "one") {
	}
	if _, err := call(ctx, "POST", b.url+"/v1/containers/"+c.ID+"/exec", "", map[string]any{"command": "touch go"},
		nil); err != nil {
		t.Fatal(err)
	}
	for events.Scan() && !strings.Contains(events.Text(), "two") {
	}
	if !strings.Contains(events.Text(), "two") {
		t.Errorf("the stream of a command ends with %q, %v", events.Text(), events.Err())
	}
}

// TestClusterAssistant runs an assistant on one server, in the container that its thread has on
// another.
func TestClusterAssistant(t *testing.T) {
	f := newFleet(t, "1m")
	ctx := within(t, 3*time.Minute)
	a, b := f.servers[0], f.servers[1]
	type object struct {
		ID, Status string
		ThreadID   string `json:"thread_id"`
		LastError  any    `json:"last_error"`
		Data       []json.RawMessage
	}
	beta := func(s *server, method, path string, body any) object {
		t.Helper()
		var in io.Reader
		if body != nil {
			text, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			in = bytes.NewReader(text)
		}
		r, err := http.NewRequestWithContext(ctx, method, s.url+path, in)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("OpenAI-Beta", "assistants=v2")
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		var o object
		if err == nil {
			err = json.Unmarshal(text, &o)
		}
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %s: %s, %v", method, path, resp.Status, text, err)
		}
		return o
	}
	python := func(code string) any {
		return []any{map[string]any{"role": "user", "content": "```python\n" + code + "\n```\n"}}
	}
	assistant := beta(a, "POST", "/v1/assistants", map[string]any{"model": "scripted",
		"tools": []any{map[string]any{"type": "code_interpreter"}}})
	run := beta(a, "POST", "/v1/threads/runs", map[string]any{"assistant_id": assistant.ID,
		"thread": map[string]any{"messages": python("print(1)")}})
	path := "/v1/threads/" + run.ThreadID + "/runs"
	wait := func(s *server, id string) {
		t.Helper()
		var got object
		s.waitUntil("the run ends", func() bool {
			got = beta(s, "GET", path+"/"+id, nil)
			return got.Status != "queued" && got.Status != "in_progress"
		})
		if got.Status != "completed" {
			t.Fatalf("the run: %+v", got)
		}
	}
	wait(a, run.ID)
	one := beta(a, "GET", "/v1/containers", nil)
	for _, s := range []*server{b, f.servers[2], a} {
		next := beta(s, "POST", path, map[string]any{"assistant_id": assistant.ID,
			"additional_messages": python("print(2)")})
		wait(s, next.ID)
		if steps := beta(s, "GET", path+"/"+next.ID+"/steps", nil); !strings.Contains(fmt.Sprintf("%s", steps.Data),
			"code_interpreter") {
			t.Errorf("the steps have no call: %s", steps.Data)
		}
	}
	if all := beta(b, "GET", "/v1/containers", nil); len(one.Data) != 1 || len(all.Data) != 1 {
		t.Errorf("the thread had %d containers, then %d", len(one.Data), len(all.Data))
	}
}
