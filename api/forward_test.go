package api_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/balance"
	"github.com/berth-run/berth/model/chat"
	"github.com/berth-run/berth/model/upstream"
	"github.com/berth-run/berth/project"
)

// An embedServer is an upstream with /v1/embeddings and /v1/moderations. The vector of an
// input is its number and 0.5, repeated up to the dimensions.
type embedServer struct {
	*httptest.Server
	floats  bool // ignores encoding_format
	strict  bool // refuses encoding_format
	lengths int  // of vectors, whatever the request says; 0 means as requested
	failing int  // requests that are answered 503 first
	missing int  // status of a server without the endpoints
	vector  func(text string) []float32

	mu   sync.Mutex
	seen []map[string]any // bodies
	keys []string         // Authorization headers
}

func newEmbedServer(t *testing.T, s *embedServer) *embedServer {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/embeddings", s.embeddings)
	mux.HandleFunc("POST /v1/moderations", func(w http.ResponseWriter, r *http.Request) {
		if s.read(w, r) != nil {
			io.WriteString(w,
				`{"id":"modr-1","model":"omni-moderation-2024-09-26","results":[{"flagged":true,"categories":{"violence":true},"category_scores":{"violence":0.9}}]}`)
		}
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *embedServer) read(w http.ResponseWriter, r *http.Request) map[string]any {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	s.seen, s.keys = append(s.seen, body), append(s.keys, r.Header.Get("Authorization"))
	if s.missing != 0 {
		w.WriteHeader(s.missing)
		io.WriteString(w, `{"detail":"Not Found"}`)
		return nil
	}
	if s.failing > 0 {
		s.failing--
		w.WriteHeader(503)
		return nil
	}
	return body
}

func (s *embedServer) embeddings(w http.ResponseWriter, r *http.Request) {
	body := s.read(w, r)
	if body == nil {
		return
	}
	if s.strict && body["encoding_format"] != nil {
		w.WriteHeader(400)
		io.WriteString(w,
			`{"error":{"message":"encoding_format is not supported","type":"invalid_request_error","param":"encoding_format","code":null}}`)
		return
	}
	if body["model"] == "unknown" {
		w.WriteHeader(404)
		io.WriteString(w, `{"error":{"message":"The model unknown does not exist","code":"model_not_found"}}`)
		return
	}
	inputs, _ := body["input"].([]any)
	if text, ok := body["input"].(string); ok {
		inputs = []any{text}
	}
	n := 4
	if d, ok := body["dimensions"].(float64); ok {
		n = int(d)
	}
	if s.lengths > 0 {
		n = s.lengths
	}
	data := []any{}
	for i := range inputs {
		v := make([]float32, n)
		for j := range v {
			v[j] = 0.5
		}
		v[0] = float32(i)
		if text, ok := inputs[i].(string); ok && s.vector != nil {
			v = s.vector(text)
		}
		var e any = v
		if body["encoding_format"] == "base64" && !s.floats {
			var raw []byte
			for _, f := range v {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
			}
			e = base64.StdEncoding.EncodeToString(raw)
		}
		data = append(data, map[string]any{"object": "embedding", "index": i, "embedding": e})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": data, "model": body["model"],
		"usage": map[string]any{"prompt_tokens": 3 * len(inputs), "total_tokens": 3 * len(inputs)}})
}

// rule returns a route to the server, through an upstream with a price and a key.
func (s *embedServer) rule(t *testing.T, match string) model.Rule {
	t.Helper()
	p, err := chat.New(chat.Options{Options: upstream.Options{BaseURL: s.URL + "/v1", APIKey: "sk-upstream"}})
	check(t, err)
	u, err := balance.NewUpstream(balance.UpstreamOptions{Name: "vectors",
		Keys:   []balance.Key{{Name: "KEY", Provider: p}},
		Prices: balance.Prices{Currency: "usd", Models: map[string]balance.Price{"*": {Input: 1_000_000_000}}}})
	check(t, err)
	g, err := balance.New(balance.Options{Primaries: []balance.Target{{Upstream: u, Model: "inner"}}})
	check(t, err)
	return model.Rule{Match: match, Provider: g}
}

func (h *house) openai(options ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{option.WithBaseURL(h.url + "/v1"),
		option.WithAPIKey("sk-mine"), option.WithMaxRetries(0)}, options...)...)
}

// embed requests vectors of two texts and returns them.
func embed(t *testing.T, client openai.Client, params openai.EmbeddingNewParams) ([][]float64, error) {
	t.Helper()
	params.Model = "embed"
	params.Input = openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a", "b"}}
	res, err := client.Embeddings.New(t.Context(), params)
	if err != nil {
		return nil, err
	}
	var all [][]float64
	for _, d := range res.Data {
		all = append(all, d.Embedding)
	}
	return all, nil
}

func TestEmbeddings(t *testing.T) {
	t.Parallel()
	s := newEmbedServer(t, &embedServer{failing: 1})
	h := newHouse(t, nil, s.rule(t, "embed"))
	start := time.Now().Add(-time.Hour).Unix()
	got, err := embed(t, h.openai(), openai.EmbeddingNewParams{Dimensions: openai.Int(3), User: openai.String("u"),
		EncodingFormat: "float"})
	check(t, err)
	if diff := cmp.Diff([][]float64{{0, 0.5, 0.5}, {1, 0.5, 0.5}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want := map[string]any{"model": "inner", "input": []any{"a", "b"}, "dimensions": 3.0, "user": "u",
		"encoding_format": "float"}
	if diff := cmp.Diff(want, s.seen[1]); diff != "" || s.keys[1] != "Bearer sk-upstream" {
		t.Errorf("the upstream got key %s (-want +got):\n%s", s.keys[1], diff)
	}
	query := fmt.Sprintf("start_time=%d&end_time=%d&bucket_width=1d&group_by=model", start, time.Now().Unix()+60)
	page := h.call(200, "GET", "/v1/organization/usage/embeddings?"+query, nil)
	var lines []string
	for _, b := range page.at("data").([]any) {
		for _, r := range b.(map[string]any)["results"].([]any) {
			r := r.(map[string]any)
			lines = append(lines, fmt.Sprint(r["model"], r["num_model_requests"], r["input_tokens"]))
		}
	}
	if diff := cmp.Diff([]string{"embed1 6"}, lines); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	costs := fmt.Sprint(h.call(200, "GET", strings.Replace("/v1/organization/costs?"+query, "group_by=model",
		"group_by=line_item", 1), nil))
	if !strings.Contains(costs, "vectors/inner") || !strings.Contains(costs, "6e-06") {
		t.Errorf("got costs %s", costs)
	}
}

// Clients get the format that they requested, whatever the upstream supports.
func TestEmbeddingFormats(t *testing.T) {
	t.Parallel()
	const want = "AAAAAAAAAD8AAAA/AAAAPw==" // 0, 0.5, 0.5, 0.5
	for name, s := range map[string]*embedServer{"base64": {}, "floats only": {floats: true},
		"refuses the field": {strict: true}} {
		s := newEmbedServer(t, s)
		h := newHouse(t, nil, s.rule(t, "embed"))
		for request, form := range map[string]any{`"encoding_format":"base64",`: want,
			`"encoding_format":"float",`: []any{0.0, 0.5, 0.5, 0.5}, ``: []any{0.0, 0.5, 0.5, 0.5}} {
			got := h.call(200, "POST", "/v1/embeddings", `{"model":"embed",`+request+`"input":"a"}`)
			if diff := cmp.Diff(form, got.at("data", 0, "embedding")); diff != "" || got["object"] != "list" ||
				got.at("usage", "total_tokens") != 3.0 {
				t.Errorf("%s, %s: got %v (-want +got):\n%s", name, request, got, diff)
			}
		}
	}
	// Lists of tokens have more values than other requests may have.
	s := newEmbedServer(t, &embedServer{})
	h := newHouse(t, nil, s.rule(t, "embed"))
	got := h.call(200, "POST", "/v1/embeddings", `{"model":"embed","input":[[`+strings.Repeat("123,", 300_000)+`1]]}`)
	if len(s.seen[0]["input"].([]any)[0].([]any)) != 300_001 || len(got.at("data").([]any)) != 1 {
		t.Errorf("the upstream did not get all tokens: %v", got)
	}
}

func TestEmbeddingErrors(t *testing.T) {
	t.Parallel()
	s := newEmbedServer(t, &embedServer{lengths: 5})
	none := newEmbedServer(t, &embedServer{missing: 404})
	other := newEmbedServer(t, &embedServer{missing: 501})
	unknown, err := chat.New(chat.Options{Options: upstream.Options{BaseURL: s.URL + "/v1"}})
	check(t, err)
	h := newHouse(t, nil, s.rule(t, "embed"), none.rule(t, "none"), other.rule(t, "other"), model.Rule{Match: "unknown",
		Provider: unknown})
	for body, want := range map[string]string{
		`{"input":"a"}`:                                     "400 model missing_required_parameter",
		`{"model":"embed"}`:                                 "400 input missing_required_parameter",
		`{"model":"embed","input":null}`:                    "400 input missing_required_parameter",
		`{"model":"embed","input":""}`:                      "400 input empty_string",
		`{"model":"embed","input":[ ]}`:                     "400 input empty_array",
		`{"model":"embed","input":7}`:                       "400 input invalid_type",
		`{"model":"embed","input":"a","Model":"none"}`:      "400 Model unknown_parameter",
		`{"model":"embed","input":"a","dimensions":0}`:      "400 dimensions integer_below_min_value",
		`{"model":"embed","input":"a","dimensions":3}`:      "400 dimensions <nil>",
		`{"model":"embed","input":"a","encoding_format":1}`: "400 encoding_format invalid_type",
		`{"model":"nowhere","input":"a"}`:                   "404 model model_not_found",
		`{"model":"unknown","input":"a"}`:                   "404 model model_not_found",
		`{"model":"none","input":"a"}`:                      "404 model model_not_supported",
		`{"model":"other","input":"a"}`:                     "404 model model_not_supported",
		`{"model":"scripted","input":"a"}`:                  "404 model model_not_supported",
		`["a"]`:                                             "400 <nil> invalid_type",
		`{"model":`:                                         "400 <nil> <nil>",
	} {
		res := h.send(t.Context(), "POST", "/v1/embeddings", body)
		var got object
		check(t, json.NewDecoder(res.Body).Decode(&got))
		if line := fmt.Sprint(res.StatusCode, " ", got.at("error", "param"), " ",
			got.at("error", "code")); line != want {
			t.Errorf("%s: got %s (%v), want %s", body, line, got, want)
		}
	}
	h.call(200, "POST", "/v1/embeddings", `{"model":"embed","input":"a","truncate_prompt_tokens":5}`)
	if s.seen[len(s.seen)-1]["truncate_prompt_tokens"] != 5.0 {
		t.Error("the upstream's own field is missing")
	}
}

// An upstream that lacks the endpoint, or fails, is followed by the next one.
func TestEmbeddingFailover(t *testing.T) {
	t.Parallel()
	for _, missing := range []int{404, 401, 503} {
		broken, s := newEmbedServer(t, &embedServer{missing: missing}), newEmbedServer(t, &embedServer{})
		var targets []balance.Target
		for name, at := range map[string]*embedServer{"broken": broken, "good": s} {
			p, err := chat.New(chat.Options{Options: upstream.Options{BaseURL: at.URL + "/v1"}})
			check(t, err)
			u, err := balance.NewUpstream(balance.UpstreamOptions{Name: name,
				Keys: []balance.Key{{Name: "KEY", Provider: p}}})
			check(t, err)
			targets = append(targets, balance.Target{Upstream: u, Model: name})
		}
		g, err := balance.New(balance.Options{Primaries: targets})
		check(t, err)
		h := newHouse(t, nil, model.Rule{Match: "embed", Provider: g})
		calls := 0
		for ; calls < 8 || len(broken.seen) == 0 && calls < 1000; calls++ { // the order is random
			h.call(200, "POST", "/v1/embeddings", `{"model":"embed","input":"a"}`)
		}
		if len(broken.seen) == 0 || len(s.seen) != calls || s.seen[0]["model"] != "good" {
			t.Errorf("%d: %d requests to the first upstream, %d to the second: %v", missing, len(broken.seen),
				len(s.seen), s.seen)
		}
	}
}

// While an upstream is not tried, an error has the time when a client may send its request again.
func TestEmbeddingOpenCircuit(t *testing.T) {
	t.Parallel()
	s := newEmbedServer(t, &embedServer{missing: 500})
	p, err := chat.New(chat.Options{Options: upstream.Options{BaseURL: s.URL + "/v1"}})
	check(t, err)
	u, err := balance.NewUpstream(balance.UpstreamOptions{Name: "broken",
		Keys: []balance.Key{{Name: "KEY", Provider: p}}, Breaker: balance.Breaker{Failures: 1, Open: time.Minute}})
	check(t, err)
	g, err := balance.New(balance.Options{Primaries: []balance.Target{{Upstream: u, Model: "broken"}}})
	check(t, err)
	h := newHouse(t, nil, model.Rule{Match: "embed", Provider: g})
	for n := range 3 {
		res := h.send(t.Context(), "POST", "/v1/embeddings", `{"model":"embed","input":"a"}`)
		var got object
		check(t, json.NewDecoder(res.Body).Decode(&got))
		after, err := strconv.Atoi(res.Header.Get("Retry-After"))
		if res.StatusCode != 503 || err != nil || after < 1 || after > 60 {
			t.Errorf("request %d: got %d, Retry-After %q: %v", n, res.StatusCode, res.Header.Get("Retry-After"), got)
		}
		if text := fmt.Sprint(got.at("error", "message")); !strings.Contains(text,
			"has failed too often. Berth tries it again in ") {
			t.Errorf("request %d: got %s", n, text)
		}
	}
	if len(s.seen) != 1 {
		t.Errorf("the upstream received %d requests, want 1", len(s.seen))
	}
}

func TestModerations(t *testing.T) {
	t.Parallel()
	s := newEmbedServer(t, &embedServer{})
	h := newHouse(t, nil, s.rule(t, "omni-moderation-*"))
	client := h.openai()
	res, err := client.Moderations.New(t.Context(),
		openai.ModerationNewParams{Input: openai.ModerationNewParamsInputUnion{OfString: openai.String(
			"I will hit you")}})
	check(t, err)
	if !res.Results[0].Flagged || res.Results[0].CategoryScores.Violence != 0.9 {
		t.Errorf("got %+v", res)
	}
	if diff := cmp.Diff(map[string]any{"model": "inner", "input": "I will hit you"}, s.seen[0]); diff != "" {
		t.Errorf("the upstream got (-want +got):\n%s", diff)
	}
	if e := h.call(404, "POST", "/v1/moderations", `{"input":"x","model":"scripted"}`); e.at("error",
		"code") != "model_not_supported" {
		t.Errorf("got %v", e)
	}
	page := fmt.Sprint(h.call(200, "GET", fmt.Sprintf("/v1/organization/usage/moderations?start_time=%d",
		time.Now().Add(-time.Hour).Unix()), nil))
	if !strings.Contains(page, "num_model_requests:1") {
		t.Errorf("got usage %s", page)
	}
}

// A project's rate limits apply, and its headers are as for responses.
func TestEmbeddingLimits(t *testing.T) {
	t.Parallel()
	s := newEmbedServer(t, &embedServer{})
	h := newHouse(t, func(o *api.Options) {
		o.Exchange.Quota = project.NewQuota(project.QuotaOptions{Objects: storeOf(o), Usages: storeOf(o),
			Limits: map[berth.ProjectID]berth.Limits{"": {RequestsPerMinute: new(int64(2))}}})
		o.Engine.Forwarder = engine.NewForwarder(engine.ForwarderOptions{Models: o.Engine.Models, Usages: storeOf(o),
			Quota: o.Exchange.Quota, Log: slog.New(slog.DiscardHandler)})
	}, s.rule(t, "embed"))
	client := h.openai()
	for range 2 {
		_, err := embed(t, client, openai.EmbeddingNewParams{})
		check(t, err)
	}
	_, err := embed(t, client, openai.EmbeddingNewParams{})
	if e, ok := errors.AsType[*openai.Error](err); !ok || e.StatusCode != 429 || e.Code != "rate_limit_exceeded" ||
		e.Response.Header.Get("x-ratelimit-limit-requests") != "2" {
		t.Errorf("got %v", err)
	}
	if len(s.seen) != 2 {
		t.Errorf("the upstream got %d requests", len(s.seen))
	}
}
