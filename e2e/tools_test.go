package e2e

import (
	"context"
	"encoding/base64"
	endian "encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth/model/modeltest"
)

// What clients' programs use through hosted tools, beside a model: an MCP server, a search
// service with a site, an embedding model, a model that generates images, and an upstream with
// hosted tools of its own.
type services struct {
	mcp, site, search, upstream *httptest.Server
	reciter                     *modeltest.ChatHandler
	owner                       *modeltest.OpenAIHandler
}

// newServices starts the services. The upstream's reciter is that of newUpstream.
func newServices(t *testing.T) services {
	t.Helper()
	double, _ := newUpstream(t)
	double.Models = append(double.Models, embedder, "claude-sonnet-4-5-20250929")
	tides := sdk.NewServer(&sdk.Implementation{Name: "tides", Version: "1"}, nil)
	sdk.AddTool(tides, &sdk.Tool{Name: "tide", Description: "Says when the tide is high."}, func(_ context.Context,
		_ *sdk.CallToolRequest, in struct {
			Port string `json:"port"`
		}) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "high at noon in " + in.Port}}},
			nil, nil
	})
	upstream := http.NewServeMux()
	upstream.HandleFunc("POST /v1/embeddings", serveEmbeddings)
	upstream.HandleFunc("POST /v1/images/", serveImages)
	upstream.Handle("/", double)
	s := services{
		reciter: double, owner: newOwner(t),
		mcp: httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server {
			return tides
		}, nil)),
		upstream: httptest.NewServer(upstream),
		site: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w,
				"<html><head><title>Tides of Brest</title></head><body><main><h1>Tides</h1><p>High water is at noon.</p></main></body></html>")
		})),
	}
	s.search = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/search" || r.FormValue("format") != "json" { // as SearXNG
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"query": r.FormValue("q"), "results": []any{
			map[string]any{"url": s.site.URL + "/tides", "title": "Tides of Brest", "content": "High water is at noon.",
				"engine": "test"}}})
	}))
	for _, server := range []*httptest.Server{s.mcp, s.site, s.search, s.upstream} {
		t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	}
	return s
}

// embedder is the name of the embedding model.
const embedder = "embedder"

// serveEmbeddings answers with vectors of a text's length and number of words.
func serveEmbeddings(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Input  any
		Model  string
		Format string `json:"encoding_format"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Model != embedder {
		http.Error(w, `{"error":{"message":"no such model"}}`, http.StatusNotFound)
		return
	}
	texts, ok := in.Input.([]any)
	if !ok {
		texts = []any{in.Input}
	}
	var data []any
	for i, text := range texts {
		vector := []float32{float32(len(fmt.Sprint(text))), float32(len(strings.Fields(fmt.Sprint(text))))}
		var embedding any = vector
		if in.Format == "base64" {
			var raw []byte
			for _, v := range vector {
				raw = endian.LittleEndian.AppendUint32(raw, math.Float32bits(v))
			}
			embedding = base64.StdEncoding.EncodeToString(raw)
		}
		data = append(data, map[string]any{"object": "embedding", "index": i, "embedding": embedding})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "model": embedder, "data": data,
		"usage": map[string]int{"prompt_tokens": 3, "total_tokens": 3}})
}

// server starts a server that may reach the services.
func (s services) server(t *testing.T) *server {
	t.Helper()
	host := func(of *httptest.Server) string { return strings.TrimPrefix(of.URL, "http://") }
	config := fmt.Sprintf(
		"mcp: {private: ['%s']}\nweb_search: {backend: searxng, url: '%s', private: ['%s']}\nimage_generation: {model: %s}\nmodels:\n",
		host(s.mcp), s.search.URL, host(s.site), painter)
	for _, name := range []string{drawer, clicker} {
		config += fmt.Sprintf(
			"- {match: %s, provider: openai, base_url: '%s', api_key: none, custom_tools: native, native_tools: [image_generation, computer, computer_use_preview]}\n",
			name, s.owner.URL)
	}
	config += fmt.Sprintf("- {match: '*', base_url: '%s/v1', api_key: none}\n", s.upstream.URL)
	return newServerWith(t, config)
}

// env returns variables with which a client's program finds the services.
func (s services) env() []string {
	return []string{"BERTH_TEST_MCP=" + s.mcp.URL, "BERTH_TEST_SITE=" + s.site.URL}
}
