package console

import (
	"bytes"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestForms: a form without the token of its session changes nothing.
func TestForms(t *testing.T) {
	var posts int
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			posts++
		}
		_, _ = io.WriteString(w, `{"data":[],"id":"resp_1"}`)
	})
	c := New(api, slog.New(slog.DiscardHandler))
	for _, path := range []string{"responses/resp_1/cancel", "responses/resp_1/continue", "responses/resp_1/approvals", "approvals/appr_1",
		"new", "sign-in", "sign-out", "projects/p/limit", "projects/p/archive"} {
		for _, token := range []string{"", "form=", "form=" + strings.Repeat("0", 64)} {
			r := httptest.NewRequest(http.MethodPost, "/console/"+path,
				strings.NewReader(token+"&text=x&mcpr_1=approve"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			if c.ServeHTTP(w, r); w.Code != http.StatusForbidden || posts != 0 {
				t.Errorf("%s with %q: status %d, %d requests to the API", path, token, w.Code, posts)
			}
		}
	}
}

// TestUploadOfStrangers: a large form is not read if the API refuses its sender.
func TestUploadOfStrangers(t *testing.T) {
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":{"message":"No."}}`)
	})
	c := New(api, slog.New(slog.DiscardHandler))
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	part, err := form.CreateFormFile("file", "a")
	if err == nil {
		_, err = part.Write(make([]byte, 1<<20))
	}
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/console/new", &b)
	r.Header.Set("Content-Type", form.FormDataContentType())
	w := httptest.NewRecorder()
	before := b.Len()
	if c.ServeHTTP(w, r); w.Code != http.StatusUnauthorized || b.Len() != before {
		t.Errorf("status %d, %d of %d bytes were read", w.Code, before-b.Len(), before)
	}
}

// TestCode: a request as a program has the text of the user, whatever it contains.
func TestCode(t *testing.T) {
	text := `It's "quoted" \ $(id) ` + "`x` </script> \u2028 \n end"
	p := task{Model: "m", Text: text, Tools: []string{"shell", "code_interpreter"}, Approve: true,
		Hosts: "a.example, *.b.example"}
	codes, err := codeOf(p.request(nil), "https://berth.example/v1")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{
		{"curl https://berth.example/v1/responses", `It'\''s \"quoted\" \\ $(id)`, `"allowed_domains"`, `"*.b.example"`, `"require_approval": "always"`},
		{`OpenAI(base_url="https://berth.example/v1")`, "</script>", `extra_body={"berth": {"require_approval": "always"}}`, `model="m"`, `"type": "container_auto"`},
		{`It's \"quoted\" \\ $(id)`, `"container_auto"`},
	} {
		for _, part := range want {
			if !strings.Contains(codes[i].Text, part) {
				t.Errorf("%s lacks %s:\n%s", codes[i].Name, part, codes[i].Text)
			}
		}
	}
	if got := python(map[string]any{"a": []any{true, nil, 1.5, "x"},
		"b": false}); got != `{"a": [True, None, 1.5, "x"], "b": False}` {
		t.Errorf("got %s", got)
	}
}
