package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"
)

// Streams that are open at once: how many, and for how long each.
const (
	crowdFactor = 10 // times bench.n
	crowdTokens = 20
	crowdPause  = 500 * time.Millisecond // between tokens
)

// measureStream measures what the server adds to a model: to its first token, and in
// memory when many responses are streamed at once. The model is a server of this
// program that speaks Chat Completions.
func measureStream(ctx context.Context, b *bench) (err error) {
	t := &table{title: "Responses"}
	defer b.show(t)
	model := httptest.NewServer(http.HandlerFunc(complete))
	defer model.Close()
	s, err := b.serve(ctx, "containers: {pool: 0}\nmodels:\n  - {match: '*', base_url: '"+model.URL+"/v1', api_key: none}\n")
	if err != nil {
		return err
	}
	defer stopped(s, &err)
	ask := func(url string, question any) func() (time.Duration, error) {
		return func() (time.Duration, error) { return firstToken(ctx, s.http, url, question, func() {}) }
	}
	through := ask(s.url+"/v1/responses", question("at once"))
	direct := ask(model.URL+"/v1/chat/completions", map[string]any{"model": "m", "stream": true, "messages": []any{map[string]any{"role": "user", "content": "Answer at once."}}})
	if _, err := through(); err != nil {
		return err
	}
	var in, out series
	for range 5 * b.n {
		in.took(through())
		out.took(direct())
	}
	t.add(row{what: "first token, one after another", unit: "ms", series: in, beside: "the model alone", other: out, target: "+0.3 / 2 ms"})
	whole := atOnce(8, 10*b.n, func(int) error { _, err := through(); return err })
	t.add(row{what: "whole responses, 8 at a time", unit: "ms", series: whole})
	return b.crowd(ctx, t, s, model)
}

// crowd opens many streams and looks at the server meanwhile and afterwards.
func (b *bench) crowd(ctx context.Context, t *table, s *server, model *httptest.Server) error {
	s.http.CloseIdleConnections()
	model.CloseClientConnections()
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
	all := atOnce(n, n, func(int) error {
		_, err := firstToken(ctx, s.http, s.url+"/v1/responses", question("slowly"), func() { first.Add(1) })
		return err
	})
	t.add(row{what: fmt.Sprintf("whole responses of %s, %d at once", crowdTokens*crowdPause, n), unit: "ms", series: all})
	if during, ok := <-looked; ok {
		t.add(row{what: fmt.Sprintf("memory of the server with %d streams", n), unit: "MB", series: one(during.memory), beside: "with none", other: one(before.memory)})
		t.add(row{what: fmt.Sprintf("goroutines of the server with %d streams", n), series: one(during.goroutines), beside: "with none", other: one(before.goroutines)})
	}
	model.CloseClientConnections() // the server keeps some for the next turn
	return s.compareAfter(ctx, t, before)
}

// firstToken asks for an answer in a stream and returns how long its first text took.
// It reads to the end, so that the connection is used again.
func firstToken(ctx context.Context, client *http.Client, url string, question any, begun func()) (time.Duration, error) {
	raw, err := json.Marshal(question)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var took time.Duration
	last := ""
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		if took == 0 && (strings.Contains(line, `"response.output_text.delta"`) || strings.Contains(line, `"content":"`)) {
			took = time.Since(began)
			begun()
		}
		if line != "" {
			last = line
		}
	}
	if err := lines.Err(); err != nil {
		return took, err
	}
	if resp.StatusCode != http.StatusOK || took == 0 || !strings.Contains(last, "[DONE]") && !strings.Contains(last, `"response.completed"`) {
		return took, fmt.Errorf("%s: %s, at last %.300s", url, resp.Status, last)
	}
	return took, nil
}

// question is what a model, or the server, is asked.
func question(how string) map[string]any {
	return map[string]any{"model": "m", "stream": true, "input": "Answer " + how + "."}
}

// complete answers as a model does that speaks Chat Completions: at once, or, if it
// was asked to, slowly.
func complete(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	tokens, pause := 3, time.Duration(0)
	if bytes.Contains(body, []byte("slowly")) {
		tokens, pause = crowdTokens, crowdPause
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(delta, reason string) {
		fmt.Fprintf(w, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`+"\n\n", delta, reason)
		w.(http.Flusher).Flush()
	}
	for range tokens {
		send(`{"content":"word "}`, "null")
		select {
		case <-time.After(pause):
		case <-r.Context().Done():
			return
		}
	}
	send(`{}`, `"stop"`)
	io.WriteString(w, "data: [DONE]\n\n")
}
