package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	peerTime  = 2 * time.Second // of one work of one peer in a round
	peerWidth = 16              // requests at a time
	peerChain = 20              // turns of a chain
)

// A work is what each peer is to do. do does it once, and checks the answer.
type work struct {
	what   string
	width  int
	target string // for the ratio of rates
	do     func(*peer, context.Context, *http.Client) error
}

// works are in the order of the table.
var works = []work{
	{"chat completion", 1, "", (*peer).chat},
	{"chat completion, streamed", 1, "", (*peer).chatStreamed},
	{"stored response", 1, "", (*peer).respond},
	{"stored response, streamed", 1, "", (*peer).respondStreamed},
	{"chain of 20 responses", 1, "", (*peer).chain},
	{"response with one execution of code", 1, "", (*peer).execute},
	{"chat completions, 16 at once", peerWidth, "10×", (*peer).chat},
	{"stored responses, 16 at once", peerWidth, "10×", (*peer).respond},
	{"stored responses, streamed, 16 at once", peerWidth, "10×", (*peer).respondStreamed},
}

// A peerResult is what one peer took for one work.
type peerResult struct {
	overheadFigures
	failure error // of the first try; what it cannot do is not measured
}

// measurePeers drives the same work through Berth and others before the same model, in turn.
// Peers are installed by `scripts/setup peers`; one that is not is left out.
func measurePeers(ctx context.Context, b *bench) (err error) {
	model := newModel()
	defer model.Close()
	s, err := b.serve(ctx, strings.Replace(overheadConfig(model.URL), "pool: 0", "pool: 2", 1))
	if err != nil {
		return err
	}
	defer stopped(s, &err)
	peers := []*peer{{name: "Berth", url: s.url, model: "m", pids: []int{s.cmd.Process.Pid}}}
	t := &table{title: "Peers"}
	for _, kind := range peerKinds {
		p, err := b.startPeer(ctx, kind, model.URL)
		if errors.Is(err, errNotInstalled) {
			t.note("%s %s is not installed.", kind.name, kind.version)
			continue
		}
		if err != nil {
			return fmt.Errorf("start %s: %w", kind.name, err)
		}
		defer p.stop()
		peers = append(peers, p)
		t.add(row{what: fmt.Sprintf("start until it answers: %s", p), unit: "ms", series: p.started})
	}
	results, err := drive(ctx, peers, max(b.n/20, 1))
	if err != nil {
		return err
	}
	for i, p := range peers {
		t.add(row{what: "memory after the work: " + p.String(), unit: "MB", series: one(p.memory())})
		for j, w := range works {
			if failure := results[i][j].failure; failure != nil {
				t.note("%s: no %s: %s", p, w.what, strings.Join(strings.Fields(failure.Error()), " "))
			}
		}
	}
	b.showPeers(peers, results)
	b.show(t)
	return nil
}

// drive does all work with all peers, in turn, in some rounds. The first index of the results is that of the
// peer, the second that of the work.
func drive(ctx context.Context, peers []*peer, rounds int) ([][]peerResult, error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true},
		Timeout: time.Minute}
	defer client.CloseIdleConnections()
	results := make([][]peerResult, len(peers))
	for i, p := range peers {
		results[i] = make([]peerResult, len(works))
		for j, w := range works {
			results[i][j].failure = w.do(p, ctx, client)
		}
	}
	for range rounds {
		for j, w := range works {
			for i, p := range peers {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				if r := &results[i][j]; r.failure == nil {
					r.join(w.load(ctx, client, p))
				}
			}
		}
	}
	return results, nil
}

// load does the work for peerTime, and at least once.
func (w work) load(ctx context.Context, client *http.Client, p *peer) overheadFigures {
	var f overheadFigures
	var mu sync.Mutex
	var done atomic.Int64
	before, began := cpuOf(p.processes()), time.Now()
	var g sync.WaitGroup
	for range w.width {
		g.Go(func() {
			for first := true; first || time.Since(began) < peerTime && ctx.Err() == nil; first = false {
				took, err := timed(func() error { return w.do(p, ctx, client) })
				done.Add(1)
				mu.Lock()
				f.whole.took(took, err)
				mu.Unlock()
			}
		})
	}
	g.Wait()
	used, took := cpuOf(p.processes())-before, time.Since(began)
	f.rate.add(float64(done.Load())/took.Seconds(), nil)
	f.processor.add(used*1000/float64(done.Load()), nil)
	return f
}

// showPeers prints Berth beside each peer: latencies of sequential requests, rates of
// what is done many at a time, and processor time.
func (b *bench) showPeers(peers []*peer, results [][]peerResult) {
	one, many := &table{title: "Berth beside others, one at a time"}, &table{title: "Berth beside others, 16 at once"}
	cpu := &table{title: "Processor time of one, of the server"}
	for j, w := range works {
		own := results[0][j]
		if own.failure != nil {
			continue
		}
		for i, p := range peers[1:] {
			r := results[i+1][j]
			beside := p.String()
			if r.failure != nil {
				beside += " cannot"
			}
			if w.width > 1 {
				many.add(row{what: w.what, unit: "/s", series: own.rate, beside: beside, other: r.rate,
					target: w.target})
			} else {
				one.add(row{what: w.what, unit: "ms", series: own.whole, beside: beside, other: r.whole})
			}
			cpu.add(row{what: w.what, unit: "ms", series: own.processor, beside: beside, other: r.processor})
		}
	}
	b.show(one)
	b.show(many)
	b.show(cpu)
}

func (p *peer) chat(ctx context.Context, client *http.Client) error {
	return p.ask(ctx, client, "/v1/chat/completions",
		map[string]any{"messages": []any{map[string]any{"role": "user", "content": "Answer at once."}}}, false)
}

func (p *peer) chatStreamed(ctx context.Context, client *http.Client) error {
	return p.ask(ctx, client, "/v1/chat/completions",
		map[string]any{"messages": []any{map[string]any{"role": "user", "content": "Answer at once."}}}, true)
}

func (p *peer) respond(ctx context.Context, client *http.Client) error {
	return p.ask(ctx, client, "/v1/responses", map[string]any{"input": "Answer at once.", "store": true}, false)
}

func (p *peer) respondStreamed(ctx context.Context, client *http.Client) error {
	return p.ask(ctx, client, "/v1/responses", map[string]any{"input": "Answer at once.", "store": true}, true)
}

// ask sends a request and checks that the answer has all words, in several pieces if it is
// streamed.
func (p *peer) ask(ctx context.Context, client *http.Client, path string, in map[string]any, stream bool) error {
	in["model"], in["stream"] = p.model, stream
	at := target{name: p.name, url: p.url + path, body: mustJSON(in), stream: stream}
	_, err := at.request(ctx, client)
	return err
}

// chain makes a chain and checks that the model was shown all of it.
func (p *peer) chain(ctx context.Context, client *http.Client) error {
	in := map[string]any{"model": p.model, "input": countTurns, "store": true}
	for turn := range peerChain {
		var out struct{ ID string }
		raw, err := p.post(ctx, client, in, &out)
		if err != nil {
			return err
		}
		if !bytes.Contains(raw, fmt.Appendf(nil, `"%d word`, turn+1)) {
			return fmt.Errorf("in turn %d the model was not shown all turns", turn+1)
		}
		in["previous_response_id"] = out.ID
	}
	return nil
}

// codeTools run code, by whichever of them a server has.
var codeTools = []map[string]any{
	{"type": "code_interpreter", "container": map[string]any{"type": "auto"}},
	{"type": "shell", "environment": map[string]any{"type": "container_auto"}},
}

// execute has code run and checks that the model was shown its output.
func (p *peer) execute(ctx context.Context, client *http.Client) error {
	var errs []error
	for i, tool := range codeTools {
		if p.code != 0 && p.code != i+1 {
			continue
		}
		raw, err := p.post(ctx, client, map[string]any{"model": p.model, "input": runCode, "tools": []any{tool}}, nil)
		if err == nil && !bytes.Contains(raw, []byte(`"`+codeOutput+" word")) {
			err = errors.New("the model was not shown the output of the code")
		}
		if err == nil {
			p.code = i + 1
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", tool["type"], err))
	}
	return errors.Join(errs...)
}

// post sends a request for a response, and returns the answer, decoded into out as well.
func (p *peer) post(ctx context.Context, client *http.Client, in map[string]any, out any) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/responses", bytes.NewReader(mustJSON(in)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %.300s", resp.Status, raw)
	}
	if out != nil {
		err = json.Unmarshal(raw, out)
	}
	return raw, err
}
