package console

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// A countingReader counts what was read.
type countingReader struct {
	io.Reader
	n int
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// An uploadAPI answers every request, and notes the files that it was sent.
type uploadAPI struct {
	files   []string // of complete requests
	broken  int      // requests that were cut off
	created []string
	look    func() // called when a file was read
}

func (a *uploadAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/files") && r.Method == http.MethodPost {
		parts, err := r.MultipartReader()
		var files []string
		for err == nil {
			var part *multipart.Part
			if part, err = parts.NextPart(); err == nil && part.FileName() != "" {
				var content []byte
				content, err = io.ReadAll(part)
				files = append(files, fmt.Sprintf("%s %d", part.FileName(), len(content)))
			}
		}
		if a.look != nil {
			a.look()
		}
		if err != io.EOF {
			a.broken++
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"cut off"}}`)
			return
		}
		a.files = append(a.files, files...)
	}
	if r.URL.Path == "/v1/responses" && r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		a.created = append(a.created, string(body))
	}
	_, _ = io.WriteString(w, `{"data":[],"id":"resp_1"}`)
}

// A testForm writes a form with files.
type testForm struct {
	bytes.Buffer
	*multipart.Writer
}

func newTestForm() *testForm {
	f := &testForm{}
	f.Writer = multipart.NewWriter(&f.Buffer)
	return f
}

func (f *testForm) field(name, value string) *testForm {
	if err := f.WriteField(name, value); err != nil {
		panic(err) // a buffer takes all
	}
	return f
}

func (f *testForm) file(name string, size int) *testForm {
	part, err := f.CreateFormFile("file", name)
	if err == nil {
		_, err = part.Write(make([]byte, size))
	}
	if err != nil {
		panic(err)
	}
	return f
}

// send posts body to the page for a new response.
func (f *testForm) send(c *Console, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/console/new", body)
	r.Header.Set("Content-Type", f.FormDataContentType())
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w
}

func newUploadConsole(t *testing.T, api http.Handler) (c *Console, token string) {
	t.Helper()
	c = New(api, slog.New(slog.DiscardHandler))
	v, err := c.visit(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/console/new", nil))
	if err != nil {
		t.Fatal(err)
	}
	return c, v.formToken().token
}

// The files of a form go to the API as they come: none is in the temporary directory.
func TestUploadIsNotSpooled(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	api := &uploadAPI{}
	api.look = func() {
		if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
			t.Errorf("the temporary directory has %v, %v; want nothing", left, err)
		}
	}
	c, token := newUploadConsole(t, api)
	f := newTestForm().field("form", token).field("text", "a task").file("a.txt", 1<<20).field("instructions",
		"short").file("b/c.txt", 3)
	f.file("", 0).Close() // as browsers send an input without a file
	if w := f.send(c, &f.Buffer); w.Code != http.StatusSeeOther {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	if got := strings.Join(api.files, ", "); got != "a.txt 1048576, c.txt 3" {
		t.Errorf("the API got %s", got)
	}
	if len(api.created) != 1 || !strings.Contains(api.created[0], `"instructions":"short"`) {
		t.Errorf("the API was asked for %v, want the field after the file, too", api.created)
	}
}

// No byte of a file is read of a form without the token, nor of one whose token comes later.
func TestUploadWithoutToken(t *testing.T) {
	api := &uploadAPI{}
	c, token := newUploadConsole(t, api)
	for name, f := range map[string]*testForm{"none": newTestForm().field("text", "a"),
		"a false one":    newTestForm().field("form", strings.Repeat("0", 64)),
		"after the file": newTestForm().file("early", 1<<20).field("form", token),
		"as a file":      newTestForm().file(token, 0)} {
		f.file("a", 4<<20).Close()
		body := &countingReader{Reader: &f.Buffer}
		if w := f.send(c, body); w.Code != http.StatusForbidden || body.n > maxForm || len(api.files) > 0 {
			t.Errorf("%s: status %d, %d bytes read, files %v", name, w.Code, body.n, api.files)
		}
	}
}

// A form that is cut off within a file saves nothing of the file.
func TestUploadCutOff(t *testing.T) {
	api := &uploadAPI{}
	c, token := newUploadConsole(t, api)
	f := newTestForm().field("form", token).field("text", "a task").file("a", 1<<20)
	if w := f.send(c, io.LimitReader(&f.Buffer, 512<<10)); w.Code != http.StatusBadRequest || len(api.files) > 0 ||
		api.broken != 1 || len(api.created) > 0 {
		t.Errorf("status %d, files %v, %d broken requests, responses %v", w.Code, api.files, api.broken, api.created)
	}
}

// The fields of a form are held in memory, so they are bounded, whatever their encoding.
func TestFormBounds(t *testing.T) {
	c, token := newUploadConsole(t, &uploadAPI{})
	large := newTestForm().field("form", token).field("text", strings.Repeat("a", maxField+1))
	large.Close()
	many := newTestForm().field("form", token)
	for range maxParts + 1 {
		many.field("a", "")
	}
	many.Close()
	for name, test := range map[string]struct {
		f      *testForm
		status int
	}{"a large field": {large, http.StatusRequestEntityTooLarge}, "many fields": {many, http.StatusBadRequest}} {
		if w := test.f.send(c, &test.f.Buffer); w.Code != test.status {
			t.Errorf("%s: status %d, want %d", name, w.Code, test.status)
		}
	}
	body := &countingReader{Reader: strings.NewReader("form=" + token + "&text=" + strings.Repeat("a", 4<<20))}
	r := httptest.NewRequest(http.MethodPost, "/console/new", body)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	if c.ServeHTTP(w, r); w.Code != http.StatusRequestEntityTooLarge || body.n > 2*maxForm {
		t.Errorf("status %d after %d bytes, want a refusal after %d", w.Code, body.n, maxForm)
	}
}

// What was entered is shown again as code without an upload, and if the API refuses it.
func TestShowAsCode(t *testing.T) {
	api := &uploadAPI{}
	c, token := newUploadConsole(t, api)
	f := newTestForm().field("form", token).field("text", "a task").file("a", 10).field("instructions", "be short")
	f.Close()
	r := httptest.NewRequest(http.MethodPost, "/console/new?show=code", &f.Buffer)
	r.Header.Set("Content-Type", f.FormDataContentType())
	w := httptest.NewRecorder()
	if c.ServeHTTP(w, r); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "be short</textarea>") ||
		len(api.files) > 0 || len(api.created) > 0 {
		t.Errorf("status %d, files %v, responses %v: %s", w.Code, api.files, api.created, w.Body)
	}
}
