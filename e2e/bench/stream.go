package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"
)

// Streams that are open at the same time: how many, and for how long each.
const (
	crowdFactor = 10 // times bench.n
	crowdTokens = 20
	crowdPause  = 500 * time.Millisecond // between tokens
)

// measureStream measures the server while many answers are streamed concurrently, each kind by a
// server of its own, whose memory is that of these streams therefore.
func measureStream(ctx context.Context, b *bench) error {
	t := &table{title: fmt.Sprintf("%d streams at once", crowdFactor*b.n)}
	defer b.show(t)
	slowly := "Answer slowly."
	for _, kind := range []struct {
		what, path string
		body       map[string]any
	}{
		{"chat", "/v1/chat/completions",
			map[string]any{"messages": []any{map[string]any{"role": "user", "content": slowly}}}},
		{"response, store false", "/v1/responses", map[string]any{"input": slowly, "store": false}},
		{"response, stored", "/v1/responses", map[string]any{"input": slowly, "store": true}},
	} {
		kind.body["model"], kind.body["stream"] = "m", true
		if err := b.crowd(ctx, t, kind.what, kind.path, mustJSON(kind.body)); err != nil {
			return err
		}
	}
	return nil
}

// crowd opens many streams and measures the server during that time and afterwards.
func (b *bench) crowd(ctx context.Context, t *table, what, path string, body []byte) (err error) {
	model := httptest.NewServer(http.HandlerFunc(completeSlowly))
	defer model.Close()
	s, err := b.serve(ctx, overheadConfig(model.URL))
	if err != nil {
		return err
	}
	defer stopped(s, &err)
	before, err := s.own(ctx)
	if err != nil {
		return err
	}
	n := crowdFactor * b.n
	var first atomic.Int64
	looked := make(chan own, 1)
	go func() {
		defer close(looked)
		// When all have begun, or will not.
		_ = s.await(ctx, crowdTokens*crowdPause, func() bool { return first.Load() >= int64(n) })
		if now, err := s.own(ctx); err == nil {
			looked <- now
		}
	}()
	at := target{name: what, url: s.url + path, body: body, stream: true}
	used, began := cpuOf([]int{s.cmd.Process.Pid}), time.Now()
	all := atOnce(n, n, func(int) error { return at.stayOpen(ctx, s.http, func() { first.Add(1) }) })
	used, took := cpuOf([]int{s.cmd.Process.Pid})-used, time.Since(began)
	t.add(row{what: fmt.Sprintf("%s: whole answers of %s", what, crowdTokens*crowdPause), unit: "ms", series: all,
		target: fmt.Sprintf("%d of %d", n, n)})
	t.add(row{what: what + ": processor of the server meanwhile", unit: "% of a core",
		series: one(used / took.Seconds() * 100)})
	most, err := memoryOf(s.cmd.Process.Pid)
	if err != nil {
		return err
	}
	t.add(row{what: what + ": memory of the server at its peak", unit: "MB", series: one(most.peak),
		beside: "with none", other: one(before.memory), target: "150 MB"})
	if during, ok := <-looked; ok {
		t.add(row{what: what + ": goroutines of the server", series: one(during.goroutines), beside: "with none",
			other: one(before.goroutines)})
	}
	model.CloseClientConnections() // the server keeps some for the next turn
	return s.compareAfter(ctx, t, what+": ", before)
}

// stayOpen sends a request and reads the answer slowly, as it comes. It calls begun with the
// first word.
func (t *target) stayOpen(ctx context.Context, client *http.Client, begun func()) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(t.body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	words, last := 0, ""
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		if n := strings.Count(line, "word"); n > 0 {
			if words == 0 {
				begun()
			}
			words += n
		}
		if line != "" {
			last = line
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || words < crowdTokens || !strings.Contains(last, "[DONE]") &&
		!strings.Contains(last, `"response.completed"`) {
		return fmt.Errorf("%s: %s, %d words, at last %.300s", t.name, resp.Status, words, last)
	}
	return nil
}

// completeSlowly answers as a model does that speaks Chat Completions, with pauses.
func completeSlowly(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(delta, reason string) {
		fmt.Fprintf(w,
			`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`+"\n\n",
			delta, reason)
		w.(http.Flusher).Flush()
	}
	for range crowdTokens {
		send(`{"content":"word "}`, "null")
		select {
		case <-time.After(crowdPause):
		case <-r.Context().Done():
			return
		}
	}
	send(`{}`, `"stop"`)
	io.WriteString(w, "data: [DONE]\n\n")
}
