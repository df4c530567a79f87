package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// overheadRounds is how often each target is measured in turn with the others.
const overheadRounds = 5

// A target answers the same question by one way: the model itself, a reverse proxy
// before it, or an endpoint of Berth.
type target struct {
	name   string
	url    string
	body   []byte
	stream bool
	want   string // is in the answer; empty for any text
	pids   []int  // of the processes whose processor time is counted; none for the model
	goals  overheadGoals
}

// overheadGoals are for the processor time of one, answers a second at 16 at a time, and what is
// added to the first delta: its median at 1 and at 64 at a time, its 99th percentile at 1.
type overheadGoals struct{ processor, rate, first, first64, tail string }

// overheadFigures are what one target took at one width.
type overheadFigures struct {
	whole, first series // in ms; first is of streams only
	rate         series // responses a second, one value a round
	processor    series // ms of processor time for one response, one value a round
}

func (f *overheadFigures) join(other overheadFigures) {
	f.whole.join(other.whole)
	f.first.join(other.first)
	f.rate.join(other.rate)
	f.processor.join(other.processor)
}

// measureOverhead measures what Berth adds to a model that answers without a pause,
// beside a reverse proxy written in Go that only copies bytes.
func measureOverhead(ctx context.Context, b *bench) (err error) {
	model := newModel()
	defer model.Close()
	proxy, err := startProxy(ctx, model.URL)
	if err != nil {
		return err
	}
	defer proxy.stop()
	s, err := b.serve(ctx, overheadConfig(model.URL))
	if err != nil {
		return err
	}
	defer stopped(s, &err)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000, DisableCompression: true}}
	defer client.CloseIdleConnections()
	targets := overheadTargets(model.URL, proxy, s)
	for _, width := range []int{1, 16, 64, 1000} {
		figures, err := b.overheadAt(ctx, client, targets, width)
		if err != nil {
			return err
		}
		b.showOverhead(targets, figures, width)
	}
	return nil
}

func overheadConfig(model string) string {
	return "containers: {pool: 0}\nmodels:\n  - {match: '*', base_url: '" + model + "/v1', api_key: none}\n"
}

func overheadTargets(model string, proxy *proxy, s *server) []target {
	chat := func(stream bool) []byte {
		return mustJSON(map[string]any{"model": "m", "stream": stream,
			"messages": []any{map[string]any{"role": "user", "content": "Answer at once."}}})
	}
	message := func(stream bool) []byte {
		return mustJSON(map[string]any{"model": "m", "stream": stream, "max_tokens": 1000,
			"messages": []any{map[string]any{"role": "user", "content": "Answer at once."}}})
	}
	response := func(store, stream bool) []byte {
		return mustJSON(map[string]any{"model": "m", "store": store, "stream": stream, "input": "Answer at once."})
	}
	berth, proxied := []int{s.cmd.Process.Pid}, []int{proxy.cmd.Process.Pid}
	unstored := overheadGoals{processor: "0.35 ms", rate: "4000 /s", first: "0.3 ms", first64: "3 ms", tail: "1 ms"}
	stored := overheadGoals{processor: "1.0 ms", rate: "1200 /s", first: "0.6 ms", first64: "5 ms", tail: "3 ms"}
	return []target{
		{name: "the model alone", url: model + "/v1/chat/completions", body: chat(false)},
		{name: "the model alone, streamed", url: model + "/v1/chat/completions", body: chat(true), stream: true},
		{name: "reverse proxy", url: proxy.url + "/v1/chat/completions", body: chat(false), pids: proxied},
		{name: "reverse proxy, streamed", url: proxy.url + "/v1/chat/completions", body: chat(true), stream: true,
			pids: proxied},
		{name: "chat", url: s.url + "/v1/chat/completions", body: chat(false), pids: berth, goals: unstored},
		{name: "chat, streamed", url: s.url + "/v1/chat/completions", body: chat(true), stream: true, pids: berth,
			goals: unstored},
		{name: "message", url: s.url + "/v1/messages", body: message(false), pids: berth, goals: unstored},
		{name: "message, streamed", url: s.url + "/v1/messages", body: message(true), stream: true, pids: berth,
			goals: unstored},
		{name: "response, store false", url: s.url + "/v1/responses", body: response(false, false), pids: berth,
			goals: unstored},
		{name: "response, store false, streamed", url: s.url + "/v1/responses", body: response(false, true),
			stream: true, pids: berth, goals: unstored},
		{name: "response, stored", url: s.url + "/v1/responses", body: response(true, false), pids: berth,
			goals: stored},
		{name: "response, stored, streamed", url: s.url + "/v1/responses", body: response(true, true), stream: true,
			pids: berth, goals: stored},
	}
}

// overheadAt sends requests to each target, width at a time, in turn.
func (b *bench) overheadAt(ctx context.Context, client *http.Client, targets []target, width int) ([]overheadFigures,
	error) {
	n := max(width, 2*b.n) // of a target in a round
	figures := make([]overheadFigures, len(targets))
	for round := range overheadRounds + 1 {
		for i, at := range targets {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			got := at.load(ctx, client, width, n)
			if round == 0 { // opens connections
				continue
			}
			figures[i].join(got)
		}
	}
	return figures, nil
}

// load sends n requests, width at a time.
func (t *target) load(ctx context.Context, client *http.Client, width, n int) overheadFigures {
	var f overheadFigures
	firsts := make([]time.Duration, n)
	before, began := cpuOf(t.pids), time.Now()
	f.whole = atOnce(width, n, func(i int) (err error) {
		firsts[i], err = t.request(ctx, client)
		return err
	})
	took, used := time.Since(began).Seconds(), cpuOf(t.pids)-before
	f.rate.add(float64(n)/took, nil)
	if len(t.pids) > 0 {
		f.processor.add(used*1000/float64(n), nil)
	}
	if t.stream {
		for _, first := range firsts {
			f.first.took(first, nil)
		}
	}
	return f
}

// request sends one request and reads the answer to its end. It returns when the
// first delta of a stream was read.
func (t *target) request(ctx context.Context, client *http.Client) (first time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(t.body))
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
	got, first, err := readAnswer(resp.Body, t.want, began)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK || got.words < answerWords || t.stream && got.deltas < 2 || !got.found {
		return 0, fmt.Errorf("%s: %s with %d words in %d deltas, at last %.300s", t.name, resp.Status, got.words,
			got.deltas, got.last)
	}
	return first, nil
}

// An answer is what was read of one.
type answer struct {
	words, deltas int
	found         bool   // it contains the wanted text
	last          []byte // the last line that is not empty
}

// readAnswer reads an answer to its end. It returns the time from began to the first line
// with a word.
func readAnswer(r io.Reader, want string, began time.Time) (a answer, first time.Duration, err error) {
	a.found = want == ""
	lines := bufio.NewReaderSize(r, 16<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if n := bytes.Count(line, []byte("word")); n > 0 {
			if a.words += n; a.deltas == 0 {
				first = time.Since(began)
			}
			a.deltas++
		}
		a.found = a.found || bytes.Contains(line, []byte(want))
		if len(line) > 1 {
			a.last = append(a.last[:0], line...)
		}
		if err == io.EOF {
			return a, first, nil
		}
		if err != nil && err != bufio.ErrBufferFull {
			return a, first, err
		}
	}
}

// showOverhead prints the table of one width.
func (b *bench) showOverhead(targets []target, figures []overheadFigures, width int) {
	t := &table{title: fmt.Sprintf("What Berth adds to a model, %d at once", width)}
	defer b.show(t)
	find := func(name string, stream bool) overheadFigures {
		if stream {
			name += ", streamed"
		}
		return figures[slices.IndexFunc(targets, func(at target) bool { return at.name == name })]
	}
	for i, at := range targets {
		f, direct, proxied := figures[i], find("the model alone", at.stream), find("reverse proxy", at.stream)
		if strings.HasPrefix(at.name, "the model") {
			t.add(row{what: at.name + ": whole answer", unit: "ms", series: f.whole})
			t.add(row{what: at.name + ": answers a second", unit: "/s", series: f.rate})
			continue
		}
		t.add(row{what: at.name + ": whole answer", unit: "ms", series: f.whole, beside: "the model alone",
			other: direct.whole})
		if at.stream {
			r := row{what: at.name + ": added to the first delta", unit: "ms",
				series: f.first.minus(direct.first.percentile(50)), beside: "the model alone", other: direct.first}
			switch width {
			case 1:
				r.target = at.goals.first
			case 64:
				r.target = at.goals.first64
			}
			t.add(r)
			if width == 1 {
				tail := f.first.percentile(99) - direct.first.percentile(99)
				t.add(row{what: at.name + ": added to the p99 of the first delta", unit: "ms", series: one(tail),
					beside: "the model alone", other: one(direct.first.percentile(99)), target: at.goals.tail})
			}
		}
		rate := row{what: at.name + ": answers a second", unit: "/s", series: f.rate, beside: "reverse proxy",
			other: proxied.rate}
		if width == 16 {
			rate.target = at.goals.rate
		}
		t.add(rate)
		t.add(row{what: at.name + ": processor time of one", unit: "ms", series: f.processor, beside: "reverse proxy",
			other: proxied.processor, target: at.goals.processor})
	}
}
