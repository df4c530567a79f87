package mcp

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/ration"
)

// A server that asks this client thousands of things in one answer gets few requests back: each would be a
// connection of this server.
func TestServerRequestsAreBounded(t *testing.T) {
	const asked = 2000
	var answers atomic.Int64
	s := hostileHandler(t, ration.New(ration.Options{Total: 64 << 20, Wait: time.Millisecond}), nil,
		func(w http.ResponseWriter, r *http.Request) {
			var req struct {
				ID     json.RawMessage
				Method string
			}
			body, _ := io.ReadAll(r.Body)
			_ = json.Unmarshal(body, &req)
			switch {
			case req.Method == "initialize":
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, req.ID, initialized)
			case req.Method == "tools/call":
				w.Header().Set("Content-Type", "text/event-stream")
				for i := range asked {
					method := []string{"ping", "sampling/createMessage", "elicitation/create", "roots/list"}[i%4]
					fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"q%d\",\"method\":%q,\"params\":{}}\n\n", i, method)
				}
				w.(http.Flusher).Flush()
				fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", req.ID)
			case req.Method == "" && strings.Contains(string(body), `"id":"q`):
				answers.Add(1)
				<-r.Context().Done() // when the session ends
			default:
				w.WriteHeader(http.StatusAccepted)
			}
		})
	got := s.call(t.Context(), "f", "{}")
	if got.err == nil || !strings.Contains(got.err.Message, "asks too much") {
		t.Errorf("got %+v, %+v, want an error about what the server asks", got, got.err)
	}
	s.Close()
	if n := answers.Load(); n > maxSending {
		t.Errorf("%d requests of the server were answered at once, want at most %d", n, maxSending)
	}
}
