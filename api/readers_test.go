package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/internal/ration"
	"github.com/berth-run/berth/internal/sse"
	"github.com/berth-run/berth/store"
)

// saved saves a completed response of a project with a long text. It returns the id.
func saved(t *testing.T, st store.Store, p berth.ProjectID, text string) berth.ResponseID {
	t.Helper()
	body := berth.NewResponse(berth.ResponseID(berth.NewID(berth.PrefixResponse)), 1,
		&berth.ResponseRequest{Model: "m"})
	item := berth.NewItem(berth.Message{ID: berth.NewID(berth.PrefixMessage), Type: berth.ItemMessage,
		Role: "assistant", Status: berth.StatusCompleted,
		Content: []berth.Content{{Type: "output_text", Text: text}}})
	zero := 0
	events := []berth.Event{{Type: berth.EventCreated, Response: body},
		{Type: berth.EventOutputItemAdded, OutputIndex: &zero, Item: &item},
		{Type: berth.EventOutputTextDone, ItemID: item.ID(), OutputIndex: &zero, ContentIndex: &zero, Text: &text,
			Logprobs: &[]json.RawMessage{}},
		{Type: berth.EventOutputItemDone, OutputIndex: &zero, Item: &item}}
	ended := *body
	ended.Status, ended.Output = berth.StatusCompleted, []berth.Item{item}
	events = append(events, berth.Event{Type: berth.EventCompleted, Response: &ended})
	records := make([]store.Event, len(events))
	for i := range events {
		events[i].SequenceNumber = int64(i)
		data, err := json.Marshal(events[i])
		check(t, err)
		records[i] = store.Event{SequenceNumber: int64(i), Type: events[i].Type, Data: data}
	}
	rec := &store.Response{Project: p, Body: &ended, Request: &berth.ResponseRequest{Model: "m"}}
	check(t, st.CreateResponse(t.Context(), rec, records, store.Lease{}))
	return body.ID
}

// heap returns the size of this process's heap, including garbage.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// Clients that request large answers and do not read them use at most the memory reserved
// for answers, and other clients are served.
func TestReadersThatDoNotReadTakeBoundedMemory(t *testing.T) {
	const (
		readers = 200
		text    = 2 << 20 // each reader requests five times that
		pool    = 32 << 20
		most    = 160 << 20 // readers * text is 400 MB
	)
	var opts api.Options
	bound := ration.New(ration.Options{Total: pool})
	h := newHouse(t, func(o *api.Options) {
		o.Exchange.Memory.Readers = bound
		o.Journal.Bound(bound)
		opts = *o
	})
	h.key("sk-other", "proj_b")
	h.key("sk-a", "proj_a")
	long := saved(t, h.store, "proj_a", strings.Repeat("x", text))
	short := saved(t, h.store, "proj_a", "short")
	other := saved(t, h.store, "proj_b", strings.Repeat("y", text))

	var begun atomic.Int64
	addr := unwatched(t, opts, &begun)

	before := heap()
	paths := []string{"", "?stream=true", "?stream=true&starting_after=2"}
	for i := range readers {
		conn, err := net.Dial("tcp", addr.String())
		check(t, err)
		defer conn.Close()
		check(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
		_, err = fmt.Fprintf(conn,
			"GET /v1/responses/%s%s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer sk-a\r\n\r\n", long,
			paths[i%len(paths)])
		check(t, err)
	}
	peak := uint64(0)
	eventually(t, "all readers have been heard and the part of their project is taken", func() bool {
		peak = max(peak, heap())
		return begun.Load() == readers && bound.Held() >= pool/2-text*3
	})

	// A reader of another project gets a large answer, one of the same a small one.
	get := func(key, path string) io.ReadCloser {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		t.Cleanup(cancel)
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+addr.String()+path, nil)
		check(t, err)
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(req)
		check(t, err)
		t.Cleanup(func() { resp.Body.Close() })
		if resp.StatusCode != 200 {
			raw, _ := io.ReadAll(resp.Body)
			t.Fatalf("GET %s: got %d %s", path, resp.StatusCode, raw)
		}
		return resp.Body
	}
	for range 2 {
		n := 0
		for _, err := range sse.NewReader(get("sk-other", "/v1/responses/"+string(other)+"?stream=true"), 0).Events() {
			check(t, err)
			n++
			peak = max(peak, heap())
		}
		if n != 5 {
			t.Errorf("a reader of another project got %d events of 5", n)
		}
		if size, err := io.Copy(io.Discard, get("sk-other", "/v1/responses/"+string(other))); err != nil ||
			size < text {
			t.Errorf("a reader of another project got %d bytes, %v", size, err)
		}
		if _, err := io.Copy(io.Discard, get("sk-a", "/v1/responses/"+string(short))); err != nil {
			t.Errorf("a reader of a small answer: %v", err)
		}
		peak = max(peak, heap())
	}
	if peak > before+most {
		t.Errorf("%d readers took %d MB, want at most %d", readers, (peak-before)>>20, most>>20)
	}
	t.Logf("%d readers took %d MB, the bound is %d MB", readers, (peak-before)>>20, pool>>20)
}

// A request without memory for its answer waits, and then gets an error with the time of a
// retry.
func TestReaderGetsRetryTime(t *testing.T) {
	t.Parallel()
	bound := ration.New(ration.Options{Total: 4 << 20, Wait: time.Millisecond})
	h := newHouse(t, func(o *api.Options) {
		o.Exchange.Memory.Readers = bound
		o.Journal.Bound(bound)
	})
	h.key("sk-a", "proj_a")
	long := saved(t, h.store, "proj_a", strings.Repeat("x", 1<<20))
	holder := bound.Open("proj_a")
	check(t, holder.Reserve(t.Context(), 4<<20))
	resp := h.send(t.Context(), "GET", "/v1/responses/"+string(long), nil)
	raw, err := io.ReadAll(resp.Body)
	check(t, err)
	var got struct{ Error struct{ Type, Code string } }
	check(t, json.Unmarshal(raw, &got))
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || got.Error.Code != "server_overloaded" {
		t.Errorf("got %d %v %s", resp.StatusCode, resp.Header, raw)
	}
	// A stream that has started ends with an error event.
	events := h.rest(h.stream(t.Context(), "GET", "/v1/responses/"+string(long)+"?stream=true", nil))
	if last := events[len(events)-1]; len(events) != 2 || last.Type != "error" || !strings.Contains(string(last.Data),
		"server_overloaded") {
		t.Errorf("got %d events, the last %s", len(events), last.Data)
	}
	holder.Close()
	if events := h.rest(h.stream(t.Context(), "GET", "/v1/responses/"+string(long)+"?stream=true",
		nil)); len(events) != 5 {
		t.Errorf("got %d events of 5", len(events))
	}
	if bound.Held() != 0 {
		t.Errorf("%d bytes are still held", bound.Held())
	}
}

// Pages of lists are limited in bytes. A client that requests all pages gets all entries.
func TestListsArePagedByBytes(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	conv := h.call(200, "POST", "/v1/conversations", `{}`).id()
	const size = 5 << 19
	for range 4 {
		item := berth.NewItem(berth.Message{ID: berth.NewID(berth.PrefixMessage), Type: berth.ItemMessage, Role: "user",
			Status:  berth.StatusCompleted,
			Content: []berth.Content{{Type: "input_text", Text: strings.Repeat("z", size)}}})
		check(t, h.store.CreateObjects(t.Context(), berth.DefaultProject,
			engine.ConversationItems(berth.ConversationID(conv), []berth.Item{item})...))
	}
	pages, items, after := 0, 0, ""
	for more := true; more && pages < 10; pages++ {
		page := h.call(200, "GET", "/v1/conversations/"+conv+"/items?limit=100"+after, nil)
		data := page["data"].([]any)
		if len(data) == 0 || len(data)*size > 8<<20 {
			t.Fatalf("a page has %d items", len(data))
		}
		items += len(data)
		more, after = page["has_more"].(bool), "&after="+page["last_id"].(string)
	}
	if items != 4 || pages != 2 {
		t.Errorf("got %d items on %d pages, want 4 on 2", items, pages)
	}
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after a minute: %s", what)
		}
	}
}
