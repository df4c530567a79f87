package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// overheadWords is the number of words, and of deltas, in an answer of the model.
const overheadWords = 32

// overheadRounds is how often each target is measured in turn with the others.
const overheadRounds = 5

// A target answers the same question by one way: the model itself, a reverse proxy
// before it, or an endpoint of Berth.
type target struct {
	name   string
	url    string
	body   []byte
	stream bool
	pid    int // of the process whose processor time is counted; 0 for the model
	goals  overheadGoals
}

type overheadGoals struct{ processor, rate, first, first64 string }

// overheadFigures are what one target took at one width.
type overheadFigures struct {
	whole, first series // in ms; first is of streams only
	rate         series // responses a second, one value a round
	processor    series // ms of processor time for one response, one value a round
}

// measureOverhead measures what Berth adds to a model that answers without a pause,
// beside a reverse proxy written in Go that only copies bytes.
func measureOverhead(ctx context.Context, b *bench) (err error) {
	model := httptest.NewServer(http.HandlerFunc(completeAtOnce))
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
		return mustJSON(map[string]any{"model": "m", "stream": stream, "messages": []any{map[string]any{"role": "user", "content": "Answer at once."}}})
	}
	response := func(store, stream bool) []byte {
		return mustJSON(map[string]any{"model": "m", "store": store, "stream": stream, "input": "Answer at once."})
	}
	berth := s.cmd.Process.Pid
	unstored := overheadGoals{processor: "0.35 ms", rate: "4000 /s", first: "+0.3 / 1 ms", first64: "+3 ms"}
	stored := overheadGoals{processor: "1.0 ms", rate: "1200 /s", first: "+0.6 / 3 ms", first64: "+5 ms"}
	return []target{
		{name: "the model alone", url: model + "/v1/chat/completions", body: chat(false)},
		{name: "the model alone, streamed", url: model + "/v1/chat/completions", body: chat(true), stream: true},
		{name: "reverse proxy", url: proxy.url + "/v1/chat/completions", body: chat(false), pid: proxy.cmd.Process.Pid},
		{name: "reverse proxy, streamed", url: proxy.url + "/v1/chat/completions", body: chat(true), stream: true, pid: proxy.cmd.Process.Pid},
		{name: "chat", url: s.url + "/v1/chat/completions", body: chat(false), pid: berth, goals: unstored},
		{name: "chat, streamed", url: s.url + "/v1/chat/completions", body: chat(true), stream: true, pid: berth, goals: unstored},
		{name: "response, store false", url: s.url + "/v1/responses", body: response(false, false), pid: berth, goals: unstored},
		{name: "response, store false, streamed", url: s.url + "/v1/responses", body: response(false, true), stream: true, pid: berth, goals: unstored},
		{name: "response, stored", url: s.url + "/v1/responses", body: response(true, false), pid: berth, goals: stored},
		{name: "response, stored, streamed", url: s.url + "/v1/responses", body: response(true, true), stream: true, pid: berth, goals: stored},
	}
}

// overheadAt sends requests to each target, width at a time, in turn.
func (b *bench) overheadAt(ctx context.Context, client *http.Client, targets []target, width int) ([]overheadFigures, error) {
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
			f := &figures[i]
			f.whole.join(got.whole)
			f.first.join(got.first)
			f.rate.join(got.rate)
			f.processor.join(got.processor)
		}
	}
	return figures, nil
}

// load sends n requests, width at a time.
func (t *target) load(ctx context.Context, client *http.Client, width, n int) overheadFigures {
	var f overheadFigures
	firsts := make([]time.Duration, n)
	before, began := cpuOf([]int{t.pid}), time.Now()
	f.whole = atOnce(width, n, func(i int) (err error) {
		firsts[i], err = t.request(ctx, client)
		return err
	})
	took, used := time.Since(began).Seconds(), cpuOf([]int{t.pid})-before
	f.rate.add(float64(n)/took, nil)
	if t.pid != 0 {
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
	lines := bufio.NewReaderSize(resp.Body, 16<<10)
	last, deltas := []byte(nil), 0
	for {
		line, err := lines.ReadSlice('\n')
		if bytes.Contains(line, []byte(`"content":"word`)) || bytes.Contains(line, []byte(`"delta":"word`)) || bytes.Contains(line, []byte(`"text": "word`)) || bytes.Contains(line, []byte(`"text":"word`)) {
			if deltas++; deltas == 1 {
				first = time.Since(began)
			}
		}
		if len(line) > 1 {
			last = append(last[:0], line...)
		}
		if err == io.EOF {
			break
		}
		if err != nil && err != bufio.ErrBufferFull {
			return 0, err
		}
	}
	want := 1
	if t.stream {
		want = overheadWords
	}
	if resp.StatusCode != http.StatusOK || deltas < want {
		return 0, fmt.Errorf("%s: %s with %d deltas, at last %.300s", t.name, resp.Status, deltas, last)
	}
	return first, nil
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
		t.add(row{what: at.name + ": whole answer", unit: "ms", series: f.whole, beside: "the model alone", other: direct.whole})
		if at.stream {
			r := row{what: at.name + ": added to the first delta", unit: "ms", series: f.first.minus(direct.first.percentile(50)), beside: "the model alone", other: direct.first}
			switch width {
			case 1:
				r.target = at.goals.first
			case 64:
				r.target = at.goals.first64
			}
			t.add(r)
		}
		rate := row{what: at.name + ": answers a second", unit: "/s", series: f.rate, beside: "reverse proxy", other: proxied.rate}
		if width == 16 {
			rate.target = at.goals.rate
		}
		t.add(rate)
		t.add(row{what: at.name + ": processor time of one", unit: "ms", series: f.processor, beside: "reverse proxy", other: proxied.processor, target: at.goals.processor})
	}
}

// completeAtOnce answers as a model does that speaks Chat Completions, without a pause
// and in one write.
func completeAtOnce(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if !bytes.Contains(body, []byte(`"stream":true`)) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"%s"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":%d,"total_tokens":%d}}`,
			strings.Repeat("word ", overheadWords), overheadWords, overheadWords+5)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Write(answerAtOnce)
}

var answerAtOnce = func() []byte {
	var b bytes.Buffer
	chunk := func(choices, usage string) {
		fmt.Fprintf(&b, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":%s,"usage":%s}`+"\n\n", choices, usage)
	}
	for range overheadWords {
		chunk(`[{"index":0,"delta":{"content":"word "},"finish_reason":null}]`, "null")
	}
	chunk(`[{"index":0,"delta":{},"finish_reason":"stop"}]`, "null")
	chunk(`[]`, fmt.Sprintf(`{"prompt_tokens":5,"completion_tokens":%d,"total_tokens":%d}`, overheadWords, overheadWords+5))
	b.WriteString("data: [DONE]\n\n")
	return b.Bytes()
}()

// A proxy is this program in a process of its own, as a reverse proxy.
type proxy struct {
	url string
	cmd *exec.Cmd
	in  io.Closer // the proxy ends when it is closed
}

// startProxy starts a reverse proxy before upstream.
func startProxy(ctx context.Context, upstream string) (*proxy, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &proxy{cmd: exec.CommandContext(ctx, self, "-proxy", upstream)}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("the proxy did not start: %w", err)
	}
	p.url = "http://" + strings.TrimSpace(line)
	return p, nil
}

func (p *proxy) stop() {
	p.in.Close()
	_ = p.cmd.Wait()
}

// runProxy is the process of startProxy. It prints its address and ends with its
// standard input.
func runProxy(upstream string) error {
	to, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	handler := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval: -1,
		Transport:     &http.Transport{MaxIdleConnsPerHost: 2000, DisableCompression: true},
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		l.Close()
	}()
	if err := http.Serve(l, handler); err != nil && !strings.Contains(err.Error(), net.ErrClosed.Error()) {
		return err
	}
	return nil
}

func mustJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}
