package api_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"

	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/internal/ration"
)

// unwatched serves a house's handler without the contract check of newHouse, which holds
// each answer in memory.
func unwatched(t *testing.T, opts api.Options, heard *atomic.Int64) net.Addr {
	t.Helper()
	handler := api.New(opts)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard.Add(1)
		handler.ServeHTTP(w, r)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	var ended sync.WaitGroup
	ended.Go(func() { _ = srv.Serve(l) })
	t.Cleanup(func() {
		srv.Close()
		ended.Wait()
	})
	return l.Addr()
}

// Bodies that need much memory wait for their turn or are refused, while small requests of
// other projects are answered.
func TestLargeBodiesTakeBoundedMemory(t *testing.T) {
	const (
		size = 4 << 20
		each = 8
		most = 320 << 20
	)
	var opts api.Options
	h := newHouse(t, func(o *api.Options) {
		o.Exchange.Memory.Bodies, o.Exchange.Memory.Decoding = ration.New(ration.Options{Total: 32 << 20}),
			ration.New(ration.Options{Total: 64 << 20})
		opts = *o
	})
	h.key("sk-other", "proj_b")
	h.key("sk-a", "proj_a")
	var heard atomic.Int64
	addr := unwatched(t, opts, &heard)
	text := strings.Repeat("x", size)
	bodies := map[string]struct {
		body   string
		status int
	}{
		"text":         {`{"items":[{"type":"message","role":"user","content":"` + text + `"}]}`, 200},
		"tiny values":  {`{"items":[` + strings.Repeat("[],", size/3) + `[]]}`, 413},
		"tiny objects": {`{"items":[` + strings.Repeat(`{"a":1},`, size/8) + `{}]}`, 413},
		"deep":         {strings.Repeat("[", size), 400},
	}
	before := heap()
	peak := atomic.Uint64{}
	var answered atomic.Int64
	var all sync.WaitGroup
	post := func(key, path, body string, want int) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr.String()+path,
			strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if resp.StatusCode == http.StatusServiceUnavailable && bytes.Contains(raw, []byte("server_overloaded")) {
			return // it has waited in vain, on a busy machine
		}
		answered.Add(1)
		if resp.StatusCode != want || err != nil {
			t.Errorf("%s of %d bytes: got %d %.200s, %v; want %d", path, len(body), resp.StatusCode, raw, err, want)
		}
	}
	for _, b := range bodies {
		for range each {
			all.Go(func() { post("sk-a", "/v1/conversations", b.body, b.status) })
		}
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	for n := 0; ; n++ {
		peak.Store(max(peak.Load(), heap()))
		select {
		case <-done:
			got := (peak.Load() - min(before, peak.Load())) >> 20
			if got > most>>20 {
				t.Errorf("%d bodies of %d MB took %d MB, want at most %d", 4*each, size>>20, got, most>>20)
			}
			if answered.Load() == 0 {
				t.Error("all bodies were refused")
			}
			t.Logf("%d bodies of %d MB took %d MB; %d others were answered meanwhile", 4*each, size>>20, got, n)
			if opts.Exchange.Memory.Bodies.Held() != 0 || opts.Exchange.Memory.Decoding.Held() != 0 {
				t.Errorf("%d and %d bytes are still held", opts.Exchange.Memory.Bodies.Held(),
					opts.Exchange.Memory.Decoding.Held())
			}
			return
		default:
			post("sk-other", "/v1/conversations", `{}`, 200)
		}
	}
}

// A body is refused before it is read if there is no memory for it. A background run holds
// the memory of its request until it has ended.
func TestBodyWaitsForRoom(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(o *api.Options) {
		o.Exchange.Memory.Bodies = ration.New(ration.Options{Total: 4 << 20, Wait: 1})
		o.Exchange.Memory.Decoding = ration.New(ration.Options{Total: 1 << 30})
	})
	bodies, decoding := h.opts.Exchange.Memory.Bodies, h.opts.Exchange.Memory.Decoding
	holder := bodies.Open("proj_default")
	check(t, holder.Reserve(t.Context(), 2<<20))
	body := `{"model":"vendor/fed","background":true,"input":"` + strings.Repeat("x", 1<<20) + `"}`
	for _, path := range []string{"/v1/responses", "/v1/conversations", "/v1/threads", "/v1/chat/completions"} {
		if got := h.call(503, "POST", path, body); got.at("error", "code") != "server_overloaded" {
			t.Errorf("%s: got %v", path, got)
		}
	}
	unknown := io.MultiReader(strings.NewReader(body)) // is sent in chunks, without a length
	if resp := h.send(t.Context(), "POST", "/v1/responses", unknown, "application/json"); resp.StatusCode != 503 {
		t.Errorf("in chunks: got %d", resp.StatusCode)
	}
	holder.Close()

	id := h.call(200, "POST", "/v1/responses", body).id()
	if decoding.Held() < 2<<20 {
		t.Errorf("a run of 1 MB holds %d bytes", decoding.Held())
	}
	h.call(200, "POST", "/v1/responses/"+id+"/cancel", nil)
	eventually(t, "the run has given its room back", func() bool { return decoding.Held() == 0 && bodies.Held() == 0 })
}

// Messages on a WebSocket count as bodies.
func TestSocketMessagesWaitForRoom(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(o *api.Options) {
		o.Exchange.Memory.Bodies = ration.New(ration.Options{Total: 8 << 20, Wait: 1})
		o.Exchange.Memory.Decoding = ration.New(ration.Options{Total: 64 << 20, Wait: 1})
	})
	bodies, decoding := h.opts.Exchange.Memory.Bodies, h.opts.Exchange.Memory.Decoding
	dial := func() *websocket.Conn {
		conn, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(h.url, "http")+"/v1/responses", nil)
		check(t, err)
		t.Cleanup(func() { conn.CloseNow() })
		conn.SetReadLimit(-1)
		return conn
	}
	received := func(conn *websocket.Conn) string {
		_, data, err := conn.Read(t.Context())
		check(t, err)
		return string(data)
	}
	message := fmt.Sprintf(`{"type":"response.create","model":"scripted","input":%q}`, strings.Repeat("x", 1<<20))

	conn := dial()
	check(t, conn.Write(t.Context(), websocket.MessageText, []byte(message)))
	for !strings.Contains(received(conn), `"response.completed"`) {
	}
	tiny := `{"type":"response.create","model":"scripted","input":[` + strings.Repeat("[],", 1<<20) + `[]]}`
	check(t, conn.Write(t.Context(), websocket.MessageText, []byte(tiny)))
	if got := received(conn); !strings.Contains(got, "JSON values") {
		t.Errorf("got %s", got)
	}
	conn.CloseNow()
	eventually(t, "the room of two messages is given back", func() bool { return bodies.Held() == 0 })

	holder := bodies.Open("proj_default")
	check(t, holder.Reserve(t.Context(), 4<<20))
	conn = dial()
	check(t, conn.Write(t.Context(), websocket.MessageText, []byte(message)))
	if got := received(conn); !strings.Contains(got, "server_overloaded") {
		t.Errorf("got %s", got)
	}
	if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusTryAgainLater {
		t.Errorf("got %v", err)
	}
	holder.Close()
	eventually(t, "all room is given back", func() bool { return decoding.Held() == 0 && bodies.Held() == 0 })
}

// The size of a bundle's document is checked before it is decoded.
func TestBundleOfTinyValuesTakesBoundedMemory(t *testing.T) {
	h := newHouse(t, nil)
	made := h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"x"}`).id()
	resp := h.send(t.Context(), "GET", "/v1/responses/"+made+"/bundle", nil)
	whole, err := io.ReadAll(resp.Body)
	check(t, err)
	for name, doc := range map[string]string{
		"events": `{"events":[` + strings.Repeat("[],", 5_000_000) + `[]]}`,
		"input":  `{"events":[{}],"input":[` + strings.Repeat(`{"a":{}},`, 1_000_000) + `{}]}`,
		"deep":   `{"events":[{}],"input":` + strings.Repeat("[", 8<<20) + `}`,
	} {
		forged := refitted(t, rewritten(t, whole, func(name string, body []byte) []byte {
			if strings.HasPrefix(name, "responses/") {
				return []byte(doc)
			}
			return body
		}))
		before := heap()
		peak := uint64(0)
		ctx, stop := context.WithCancel(t.Context())
		var watch sync.WaitGroup
		watch.Go(func() {
			for ctx.Err() == nil {
				peak = max(peak, heap())
			}
		})
		got := h.send(t.Context(), "POST", "/v1/bundles", bytes.NewReader(forged), "application/x-tar")
		raw, err := io.ReadAll(got.Body)
		check(t, err)
		stop()
		watch.Wait()
		if got.StatusCode != 400 || peak > before+160<<20 {
			t.Errorf("%s: got %d %.200s and %d MB", name, got.StatusCode, raw, (peak-before)>>20)
		}
	}
}

// refitted returns a bundle whose manifest matches its changed responses.
func refitted(t *testing.T, bundle []byte) []byte {
	t.Helper()
	docs := map[string][]byte{}
	rewritten(t, bundle, func(name string, body []byte) []byte {
		docs[name] = body
		return body
	})
	return rewritten(t, bundle, func(name string, body []byte) []byte {
		if name != "manifest.json" {
			return body
		}
		var m object
		check(t, json.Unmarshal(body, &m))
		for _, r := range m["responses"].([]any) {
			r := r.(map[string]any)
			doc := docs[r["path"].(string)]
			r["bytes"], r["digest"] = len(doc), fmt.Sprintf("sha256:%x", sha256.Sum256(doc))
		}
		out, err := json.Marshal(m)
		check(t, err)
		return out
	})
}
