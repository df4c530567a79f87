package api_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/guest"
)

func TestFiles(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	const csv = "a,b\r\n1,2\r\n"
	body, kind := upload("ports.csv", strings.NewReader(csv), "purpose", "user_data", "expires_after[anchor]",
		"created_at", "expires_after[seconds]", "3600")
	f := h.call(200, "POST", "/v1/files", body, kind)
	if f.at("object") != "file" || f.at("filename") != "ports.csv" || f.at("bytes") != float64(len(csv)) ||
		f.at("purpose") != "user_data" ||
		f.at("status") != "processed" || f.at("expires_at") != f.at("created_at").(float64)+3600 {
		t.Errorf("got %v, want the file", f)
	}
	if diff := cmp.Diff(f, h.call(200, "GET", "/v1/files/"+f.id(), nil)); diff != "" {
		t.Errorf("GET (-POST +GET):\n%s", diff)
	}
	resp := h.send(t.Context(), "GET", "/v1/files/"+f.id()+"/content", nil)
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != csv ||
		resp.Header.Get("Content-Type") != "application/octet-stream" ||
		resp.Header.Get("Content-Disposition") != "attachment; filename=ports.csv" {
		t.Errorf("got %q, %v, %v, want the bytes as an attachment", got, err, resp.Header)
	}
	for range 3 {
		body, kind := upload("x.jsonl", strings.NewReader(""), "purpose", "batch")
		h.call(200, "POST", "/v1/files", body, kind)
	}
	all := h.call(200, "GET", "/v1/files?purpose=batch&order=asc", nil)
	first, second, third := all.at("data", 0, "id"), all.at("data", 1, "id"), all.at("data", 2, "id")
	if third == nil || all.at("first_id") != first || all.at("last_id") != third || all.at("has_more") != false {
		t.Errorf("got %v, want three files", all)
	}
	page := h.call(200, "GET", "/v1/files?limit=2&purpose=batch&order=asc", nil)
	if page.at("first_id") != first || page.at("last_id") != second || page.at("has_more") != true {
		t.Errorf("got %v, want the first two", page)
	}
	page = h.call(200, "GET", fmt.Sprintf("/v1/files?limit=2&purpose=batch&order=asc&after=%v", second), nil)
	if page.at("first_id") != third || page.at("has_more") != false {
		t.Errorf("got %v, want the third", page)
	}
	if page = h.call(200, "GET", "/v1/files?limit=1&purpose=batch", nil); page.at("first_id") != third {
		t.Errorf("got %v, want the newest first by default", page)
	}
	h.call(400, "GET", "/v1/files?after=file-none", nil)
	if got := h.call(200, "DELETE", "/v1/files/"+f.id(), nil); !cmp.Equal(got, object{"id": f.id(), "object": "file",
		"deleted": true}) {
		t.Errorf("DELETE: got %v", got)
	}
	want := object{"error": map[string]any{"message": "No such File object: " + f.id(), "type": "invalid_request_error",
		"param": "id", "code": nil}}
	for _, path := range []string{"", "/content"} {
		if diff := cmp.Diff(want, h.call(404, "GET", "/v1/files/"+f.id()+path, nil)); diff != "" {
			t.Errorf("GET %s after DELETE (-want +got):\n%s", path, diff)
		}
	}
}

// noise is n bytes that do not repeat soon, made as they are read.
func noise(n int64) io.Reader { return io.LimitReader(&counter{}, n) }

type counter struct {
	n   uint64
	sum [32]byte
}

func (c *counter) Read(p []byte) (int, error) {
	c.n++
	c.sum = sha256.Sum256(c.sum[:])
	return copy(p, c.sum[:]), nil
}

func TestLargeFiles(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	const size = 3 << 20
	digest := sha256.New()
	body, kind := upload("big", io.TeeReader(noise(size), digest), "purpose", "user_data")
	f := h.call(200, "POST", "/v1/files", body, kind)
	c := h.call(200, "POST", "/v1/containers", `{"name":"walls","file_ids":["`+f.id()+`"]}`)
	list := h.call(200, "GET", "/v1/containers/"+c.id()+"/files", nil)
	resp := h.send(t.Context(), "GET", fmt.Sprintf("/v1/containers/%s/files/%s/content", c.id(),
		list.at("data", 0, "id")), nil)
	back := sha256.New()
	if n, err := io.Copy(back, resp.Body); err != nil || n != size || resp.ContentLength != size ||
		!bytes.Equal(back.Sum(nil), digest.Sum(nil)) {
		t.Errorf("got %d bytes back, %v, want the %d that were sent", n, err, size)
	}
}

func TestContainers(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	c := h.call(200, "POST", "/v1/containers",
		`{"name":"dock","expires_after":{"anchor":"last_active_at","minutes":7},"memory_limit":"4g","network_policy":{"type":"disabled"},"skills":[]}`)
	if !strings.HasPrefix(c.id(), "cntr_") || c.at("object") != "container" || c.at("status") != "running" ||
		c.at("memory_limit") != "4g" || c.at("expires_after", "minutes") != 7.0 {
		t.Errorf("got %v, want the container", c)
	}
	h.call(200, "POST", "/v1/containers", `{"name":"quay"}`)
	if page := h.call(200, "GET", "/v1/containers?limit=1", nil); len(page.at("data").([]any)) != 1 ||
		page.at("has_more") != true {
		t.Errorf("got %v, want one of two", page)
	}
	if page := h.call(200, "GET", "/v1/containers?name=dock", nil); page.at("first_id") != c.id() ||
		page.at("has_more") != false {
		t.Errorf("got %v, want the one of that name", page)
	}
	h.call(400, "GET", "/v1/containers?after=cntr_none", nil)

	body, kind := upload("hail.txt", strings.NewReader("ahoy"))
	f := h.call(200, "POST", "/v1/containers/"+c.id()+"/files", body, kind)
	if f.at("object") != "container.file" || f.at("path") != "/mnt/data/hail.txt" || f.at("bytes") != 4.0 ||
		f.at("source") != "user" || f.at("container_id") != c.id() {
		t.Errorf("got %v, want the file", f)
	}
	path := "/v1/containers/" + c.id() + "/files/" + f.id()
	if got := h.call(200, "GET", path, nil); got.at("bytes") != 4.0 {
		t.Errorf("got %v, want the file", got)
	}
	resp := h.send(t.Context(), "GET", path+"/content", nil)
	if got, _ := io.ReadAll(resp.Body); string(got) != "ahoy" ||
		resp.Header.Get("Content-Disposition") != "attachment; filename=hail.txt" {
		t.Errorf("got %q, %v, want the bytes as an attachment", got, resp.Header)
	}
	if page := h.call(200, "GET", "/v1/containers/"+c.id()+"/files?limit=1", nil); page.at("first_id") != f.id() ||
		page.at("has_more") != false {
		t.Errorf("got %v, want the file", page)
	}
	h.call(400, "GET", "/v1/containers/"+c.id()+"/files?after=cfile_none", nil)
	if got := h.call(200, "DELETE", path, nil); !cmp.Equal(got, object{"id": f.id(), "object": "container.file.deleted",
		"deleted": true}) {
		t.Errorf("DELETE: got %v", got)
	}
	h.call(404, "GET", path, nil)

	if got := h.call(200, "DELETE", "/v1/containers/"+c.id(), nil); !cmp.Equal(got,
		object{"id": c.id(), "object": "container.deleted", "deleted": true}) {
		t.Errorf("DELETE: got %v", got)
	}
	want := object{"error": map[string]any{"message": "Container with id '" + c.id() +
		"' not found.", "type": "invalid_request_error", "param": nil, "code": nil}}
	for _, path := range []string{"", "/files", "/guest/health"} {
		if diff := cmp.Diff(want, h.call(404, "GET", "/v1/containers/"+c.id()+path, nil)); diff != "" {
			t.Errorf("GET %s after DELETE (-want +got):\n%s", path, diff)
		}
	}
}

func TestContainerErrors(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	for body, want := range map[string]string{
		`{}`:                               "Missing required parameter: 'name'.",
		`{"name":"x","color":1}`:           "Unknown parameter: 'color'.",
		`{"name":"x","skills":[1]}`:        "Invalid type for 'skills[0]': expected an object, but got an integer instead.",
		`{"name":"x","memory_limit":"9g"}`: "Invalid value: '9g'. Supported values are: '1g', '4g', '16g', and '64g'.",
		`{"name":"x","expires_after":{"minutes":5}}`:                           "Missing required parameter: 'expires_after.anchor'.",
		`{"name":"x","expires_after":{"anchor":"last_active_at","minutes":0}}`: "Invalid 'expires_after.minutes': integer below minimum value. Expected a value >= 1, but got 0 instead.",
		`{"name":"x","network_policy":{"type":"allowlist"}}`:                   "Missing required parameter: 'network_policy.allowed_domains'.",
	} {
		if e := h.call(400, "POST", "/v1/containers", body); e.at("error", "message") != want {
			t.Errorf("%s: got %v, want %s", body, e, want)
		}
	}
	h.call(404, "POST", "/v1/containers", `{"name":"x","file_ids":["file-none"]}`)
	c := h.call(200, "POST", "/v1/containers", `{"name":"x"}`)
	h.call(404, "POST", "/v1/containers/"+c.id()+"/files", `{"file_id":"file-none"}`)
	const byID = "--edge\nContent-Disposition: form-data; name=\"file_id\"\n\nfile-none\n"
	for form, status := range map[string]int{
		byID + "--edge--\n": 404, // as OpenAI's clients name an uploaded file
		"--edge--\n":        400,
		byID + "--edge\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\n\nx\n--edge--\n":      400,
		"--edge\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\n\nx\n" + byID + "--edge--\n": 400,
	} {
		h.call(status, "POST", "/v1/containers/"+c.id()+"/files", strings.NewReader(strings.ReplaceAll(form, "\n",
			"\r\n")), "multipart/form-data; boundary=edge")
	}
	body, kind := upload("a", strings.NewReader("x"), "color", "red")
	if e := h.call(400, "POST", "/v1/containers/"+c.id()+"/files", body, kind); e.at("error",
		"code") != "unknown_parameter" {
		t.Errorf("got %v, want unknown_parameter", e)
	}
	if page := h.call(200, "GET", "/v1/containers/"+c.id()+"/files", nil); len(page.at("data").([]any)) != 0 {
		t.Errorf("got %v, want no file of a refused form", page)
	}
}

// A file name with directories is refused, not corrected.
func TestFileNames(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	c := h.call(200, "POST", "/v1/containers", `{"name":"walls"}`)
	for name, ok := range map[string]bool{
		"report.csv": true, "Grüße 世界.txt": true, "..x": true, "a..b": true, "-rf": true,
		".": false, "..": false, "../escape": false, "/etc/passwd": false, "a/../../b": false, "nul\x00byte": false,
		"\x7f": false, "\xff": false, strings.Repeat("x", 256): false,
	} {
		for _, path := range []string{"/v1/files", "/v1/containers/" + c.id() + "/files"} {
			fields := []string{"purpose", "user_data"}
			if path != "/v1/files" {
				fields = nil
			}
			body, kind := upload(name, strings.NewReader("x"), fields...)
			resp := h.send(t.Context(), "POST", path, body, kind)
			if want := map[bool]int{true: 200, false: 400}[ok]; resp.StatusCode != want {
				raw, _ := io.ReadAll(resp.Body)
				t.Errorf("POST %s of %q: got %d %s, want %d", path, name, resp.StatusCode, raw, want)
			}
		}
	}
}

func TestGuestOfAContainer(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	c := h.call(200, "POST", "/v1/containers", `{"name":"dock"}`)
	client := guest.NewHTTPClient(h.url+"/v1/containers/"+c.id()+"/guest", &http.Client{Transport: bearer("sk-a")})
	p, err := client.Start(t.Context(), guest.ProcessRequest{Cmd: "sh", Args: []string{"-c", "echo ahoy; exit 4"}})
	check(t, err)
	var out strings.Builder
	code := -1
	for ev, err := range p.Events() {
		check(t, err)
		out.Write(ev.Stdout)
		if ev.Ended {
			code = ev.ExitCode
		}
	}
	if out.String() != "ahoy\n" || code != 4 {
		t.Errorf("got %q, exit %d, want ahoy, exit 4", out.String(), code)
	}
	for _, path := range []string{"init", "berth.guest.v1.Guest/Info", "process.Process%2F..%2Finit", "",
		"process.Process"} {
		h.call(404, "POST", "/v1/containers/"+c.id()+"/guest/"+path, "{}")
	}
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
