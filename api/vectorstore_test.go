package api_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth/vectorstore"
)

// readPlain reads every file as text. A file whose name ends in .bin has none.
func readPlain(_ context.Context, name string, content io.Reader) (string, error) {
	if strings.HasSuffix(name, ".bin") {
		return "", &vectorstore.Unreadable{Code: "unsupported_file", Message: "Files of type '.bin' are not supported."}
	}
	raw, err := io.ReadAll(content)
	return string(raw), err
}

// fileOf uploads a file and returns its id.
func (h *house) fileOf(name, content string) string {
	h.t.Helper()
	form, kind := upload(name, strings.NewReader(content), "purpose", "assistants")
	return h.call(200, "POST", "/v1/files", form, kind).id()
}

// readAll waits until all files of vector stores are read.
func (h *house) readAll() {
	h.t.Helper()
	check(h.t, h.opts.VectorStores.ReadAll(h.t.Context()))
}

func TestVectorStore(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	tides := h.fileOf("tides.md", "# Tides\n\nHigh water at the north quay is at noon.")
	knots := h.fileOf("knots.md", "# Knots\n\nA bowline does not slip. It is easy to untie.")
	broken := h.fileOf("data.bin", "x")
	v := h.call(200, "POST", "/v1/vector_stores",
		fmt.Sprintf(
			`{"name":"harbour","file_ids":[%q],"metadata":{"a":"b"},"expires_after":{"anchor":"last_active_at","days":7}}`,
			tides))
	path := "/v1/vector_stores/" + v.id()
	if v.at("status") != "in_progress" || v.at("file_counts", "in_progress") != 1.0 || v.at("name") != "harbour" ||
		v.at("expires_at") == nil {
		t.Errorf("created: got %v", v)
	}
	f := h.call(200, "POST", path+"/files",
		fmt.Sprintf(
			`{"file_id":%q,"attributes":{"topic":"rope","year":2020,"old":false},"chunking_strategy":{"type":"static","static":{"max_chunk_size_tokens":100,"chunk_overlap_tokens":50}}}`,
			knots))
	if f.at("status") != "in_progress" || f.at("chunking_strategy", "static", "max_chunk_size_tokens") != 100.0 ||
		f.at("attributes", "year") != 2020.0 {
		t.Errorf("added: got %v", f)
	}
	h.call(200, "POST", path+"/files", fmt.Sprintf(`{"file_id":%q}`, broken))
	h.readAll()
	v = h.call(200, "GET", path, nil)
	if v.at("status") != "completed" || v.at("file_counts", "completed") != 2.0 ||
		v.at("file_counts", "failed") != 1.0 || v.at("file_counts", "total") != 3.0 ||
		v.at("usage_bytes").(float64) < 50 {
		t.Errorf("read: got %v", v)
	}
	if bad := h.call(200, "GET", path+"/files/"+broken, nil); bad.at("status") != "failed" ||
		bad.at("last_error", "code") != "unsupported_file" {
		t.Errorf("a file without text: got %v", bad)
	}
	if list := h.call(200, "GET", path+"/files?filter=completed&order=asc&limit=1", nil); list.at("data", 0,
		"id") != tides || list.at("has_more") != true {
		t.Errorf("list: got %v", list)
	}
	if content := h.call(200, "GET", path+"/files/"+knots+"/content", nil); !strings.Contains(content.at("data", 0,
		"text").(string), "bowline") {
		t.Errorf("content: got %v", content)
	}
	found := h.call(200, "POST", path+"/search", `{"query":"When is high water?"}`)
	if found.at("data", 0, "file_id") != tides || found.at("data", 0, "filename") != "tides.md" ||
		found.at("berth", "search") != "bm25" || found.at("search_query", 0) != "When is high water?" {
		t.Errorf("search: got %v", found)
	}
	score := found.at("data", 0, "score").(float64)
	if score <= 0 || score > 1 {
		t.Errorf("score: got %v", score)
	}
	if none := h.call(200, "POST", path+"/search",
		`{"query":["high water","quay"],"ranking_options":{"ranker":"auto","score_threshold":0.99}}`); len(
		none.at("data").([]any)) != 0 {
		t.Errorf("above the threshold: got %v", none)
	}
	if v := h.call(200, "POST", path, `{"name":"port","expires_after":null}`); v.at("name") != "port" ||
		v.at("expires_at") != nil || v.at("metadata", "a") != "b" {
		t.Errorf("update: got %v", v)
	}
	h.call(200, "POST", path+"/files/"+tides, `{"attributes":{"topic":"water"}}`)
	if found := h.call(200, "POST", path+"/search",
		`{"query":"high water bowline","filters":{"type":"eq","key":"topic","value":"water"}}`); len(
		found.at("data").([]any)) != 1 || found.at("data", 0, "attributes", "topic") != "water" {
		t.Errorf("filter: got %v", found)
	}
	h.call(200, "DELETE", path+"/files/"+tides, nil)
	if found := h.call(200, "POST", path+"/search", `{"query":"high water"}`); len(found.at("data").([]any)) != 0 {
		t.Errorf("after removal: got %v", found)
	}
	h.call(404, "GET", path+"/files/"+tides, nil)
	h.call(200, "GET", "/v1/files/"+tides, nil)
	if list := h.call(200, "GET", "/v1/vector_stores", nil); list.at("data", 0, "id") != v.id() {
		t.Errorf("list: got %v", list)
	}
	h.call(200, "DELETE", path, nil)
	h.call(404, "GET", path, nil)
	h.call(404, "POST", path+"/search", `{"query":"x"}`)
}

func TestFileBatch(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	v := h.call(200, "POST", "/v1/vector_stores", `{}`)
	path := "/v1/vector_stores/" + v.id()
	var ids []string
	for i := range 5 {
		ids = append(ids, h.fileOf(fmt.Sprintf("%d.md", i), fmt.Sprintf("Number %d is here.", i)))
	}
	b := h.call(200, "POST", path+"/file_batches",
		fmt.Sprintf(`{"files":[{"file_id":%q,"attributes":{"n":0}},{"file_id":%q}]}`, ids[0], ids[1]))
	if b.at("status") != "in_progress" || b.at("file_counts", "in_progress") != 2.0 {
		t.Errorf("created: got %v", b)
	}
	h.readAll()
	if b := h.call(200, "GET", path+"/file_batches/"+b.id(), nil); b.at("status") != "completed" ||
		b.at("file_counts", "completed") != 2.0 {
		t.Errorf("read: got %v", b)
	}
	second := h.call(200, "POST", path+"/file_batches",
		fmt.Sprintf(`{"file_ids":[%q,%q,%q],"attributes":{"second":true}}`, ids[2], ids[3], ids[4]))
	if b := h.call(200, "POST", path+"/file_batches/"+second.id()+"/cancel", nil); b.at("status") != "cancelled" ||
		b.at("file_counts", "cancelled") != 3.0 {
		t.Errorf("cancelled: got %v", b)
	}
	h.readAll()
	list := h.call(200, "GET", path+"/file_batches/"+second.id()+"/files?filter=cancelled", nil)
	if len(list.at("data").([]any)) != 3 || list.at("data", 0, "attributes", "second") != true {
		t.Errorf("files of a batch: got %v", list)
	}
	h.call(404, "GET", path+"/file_batches/vsfb_none", nil)
	h.call(400, "POST", path+"/file_batches", `{}`)
}

func TestFilters(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	v := h.call(200, "POST", "/v1/vector_stores", nil)
	path := "/v1/vector_stores/" + v.id()
	for name, attributes := range map[string]string{"a": `{"n":1,"s":"x","b":true}`, "b": `{"n":2.5,"s":"y","b":false}`,
		"c": `{}`} {
		h.call(200, "POST", path+"/files", fmt.Sprintf(`{"file_id":%q,"attributes":%s}`, h.fileOf(name, "word "+name),
			attributes))
	}
	h.readAll()
	for filter, want := range map[string]string{
		`{"type":"eq","key":"n","value":1}`:          "a",
		`{"type":"eq","key":"n","value":"1"}`:        "",
		`{"type":"eq","key":"b","value":false}`:      "b",
		`{"type":"ne","key":"s","value":"x"}`:        "b c",
		`{"type":"gt","key":"n","value":1}`:          "b",
		`{"type":"gte","key":"n","value":1}`:         "a b",
		`{"type":"lt","key":"s","value":"y"}`:        "a",
		`{"type":"lte","key":"n","value":2.5}`:       "a b",
		`{"type":"in","key":"s","value":["y","z"]}`:  "b",
		`{"type":"nin","key":"s","value":["y","z"]}`: "a c",
		`{"type":"and","filters":[{"type":"gt","key":"n","value":0},{"type":"eq","key":"b","value":true}]}`:                          "a",
		`{"type":"or","filters":[{"type":"eq","key":"s","value":"y"},{"type":"and","filters":[{"type":"eq","key":"n","value":1}]}]}`: "a b",
	} {
		found := h.call(200, "POST", path+"/search", `{"query":"word","filters":`+filter+`}`)
		var names []string
		for _, d := range found.at("data").([]any) {
			names = append(names, d.(map[string]any)["filename"].(string))
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %q, want %q", filter, got, want)
		}
	}
	for _, bad := range []string{`{"type":"like","key":"n","value":1}`, `{"type":"eq","key":"n"}`,
		`{"type":"eq","key":"n","value":[1]}`, `{"type":"in","key":"n","value":1}`,
		strings.Repeat(`{"type":"and","filters":[`, 9) + `{"type":"eq","key":"n","value":1}` + strings.Repeat(`]}`,
			9)} {
		h.call(400, "POST", path+"/search", `{"query":"word","filters":`+bad+`}`)
	}
	h.call(400, "POST", path+"/files", `{"file_id":"file-x","attributes":{"a":[1]}}`)
	h.call(400, "POST", path+"/files",
		`{"file_id":"file-x","chunking_strategy":{"type":"static","static":{"max_chunk_size_tokens":100,"chunk_overlap_tokens":51}}}`)
}
