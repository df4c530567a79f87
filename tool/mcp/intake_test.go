package mcp

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/internal/ration"
)

// hostile returns a source of a server that answers a method with the JSON text of a result.
func hostile(t *testing.T, pool *ration.Pool, allowed *berth.MCPToolFilter, answers map[string]string) *source {
	t.Helper()
	return hostileHandler(t, pool, allowed, func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			ID     json.RawMessage
			Method string
		}
		body, _ := io.ReadAll(r.Body)
		if json.Unmarshal(body, &req) != nil || req.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		result := answers[req.Method]
		if req.Method == "initialize" {
			result = initialized
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, req.ID, result)
	})
}

// initialized is a result of initialize.
const initialized = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"hostile","version":"1"}}`

// hostileHandler returns a source of a server with a handler.
func hostileHandler(t *testing.T, pool *ration.Pool, allowed *berth.MCPToolFilter, h http.HandlerFunc) *source {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	policy := &egress.Policy{Rules: []egress.Rule{{Prefix: netip.MustParsePrefix("127.0.0.0/8"), Ports: []int{port},
		Private: true}}}
	s := &source{opts: Options{Gate: &egress.Gate{Policy: policy}, Timeout: time.Minute, Decoding: pool,
		Log: slog.New(slog.DiscardHandler)},
		caller: berth.Caller{Project: "proj_a"}, tool: berth.MCPTool{ServerLabel: "lab", ServerURL: srv.URL,
			AllowedTools: allowed}}
	t.Cleanup(s.Close)
	return s
}

// What a server answers is decoded only when there is memory for it, which is returned after the call.
func TestAnswersReserveMemory(t *testing.T) {
	pool := ration.New(ration.Options{Total: 64 << 20, Wait: time.Millisecond})
	text := `{"content":[{"type":"text","text":"` + strings.Repeat("x", 1<<20) + `"}]}`
	s := hostile(t, pool, nil, map[string]string{"tools/call": text})
	if got := s.call(t.Context(), "f", "{}"); got.err != nil || got.output == nil || len(*got.output) < 1<<20 {
		t.Fatalf("with memory: got %+v", got)
	}
	if held := pool.Held(); held != 0 {
		t.Errorf("after the call %d bytes are held", held)
	}
	others := pool.Open("proj_a")
	if err := others.Reserve(t.Context(), 32<<20); err != nil { // all that the project may have
		t.Fatal(err)
	}
	if got := s.call(t.Context(), "f", "{}"); got.err == nil || !strings.Contains(got.err.Message, "overloaded") {
		t.Errorf("without memory: got %+v", got)
	}
	others.Close()
	if got := s.call(t.Context(), "f", "{}"); got.err != nil {
		t.Errorf("with memory again: got %+v", got.err)
	}
	s.Close()
	if held := pool.Held(); held != 0 {
		t.Errorf("after the session %d bytes are held", held)
	}
}

// An answer of many small values is refused before it is decoded, with or without a pool.
func TestAnswersOfManyValues(t *testing.T) {
	many := `{"content":[],"structuredContent":{"a":[` + strings.Repeat("{},", 1_000_000) + `{}]}}`
	deep := `{"content":[],"structuredContent":` + strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 301)
	for name, answer := range map[string]string{"many": many, "deep": deep} {
		s := hostile(t, nil, nil, map[string]string{"tools/call": answer})
		if got := s.call(t.Context(), "f", "{}"); got.err == nil || !strings.Contains(got.err.Message,
			"too many JSON values") {
			t.Errorf("%s: got %+v, want that it has too many values", name, got)
		}
	}
}

// A list of tools is bounded as it is sent, also if the request allows few of them.
func TestLongList(t *testing.T) {
	tools := strings.Repeat(`{"name":"a","inputSchema":{"type":"object"}},`, 100_000)
	s := hostile(t, nil, &berth.MCPToolFilter{ToolNames: []string{"zz"}}, map[string]string{"tools/list": `{"tools":[` +
		tools + `{"name":"zz","inputSchema":{"type":"object"}}]}`})
	if list, err := s.list(t.Context()); err == nil || !strings.Contains(s.explain(err), "more than 4194304 bytes") {
		t.Errorf("got %d tools, %v, want that the list is too long", len(list), err)
	}
	s = hostile(t, nil, nil,
		map[string]string{"tools/list": `{"tools":[{"name":"zz","inputSchema":{"type":"object"}}],"nextCursor":"next","_meta":{"a":"` + strings.Repeat("x",
			1<<20) + `"}}`})
	if list, err := s.list(t.Context()); err == nil || !strings.Contains(s.explain(err), "more than 4194304 bytes") {
		t.Errorf("pages without end: got %d tools, %v, want that the list is too long", len(list), err)
	}
}

// Names of tools that the request does not allow are not remembered.
func TestNamesOfOthers(t *testing.T) {
	l := listing{source: &source{tool: berth.MCPTool{AllowedTools: &berth.MCPToolFilter{ToolNames: []string{"zz"}}}},
		names: map[string]bool{}, secrets: strings.NewReplacer()}
	for i := range 100 {
		l.add(&sdk.Tool{Name: fmt.Sprint("other", i)})
	}
	l.add(&sdk.Tool{Name: "zz"})
	if len(l.names) != 1 || len(l.list) != 1 || l.problem() != nil {
		t.Errorf("remembers %d names, lists %d, %v", len(l.names), len(l.list), l.problem())
	}
	none := listing{source: l.source, names: map[string]bool{}, secrets: l.secrets}
	none.add(&sdk.Tool{Name: "other"})
	if err := none.problem(); err != nil {
		t.Errorf("a list of which none is allowed: %v", err)
	}
}
