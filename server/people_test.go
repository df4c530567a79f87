package server

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/dextest"
	"github.com/berth-run/berth/people"
	"github.com/berth-run/berth/server/state"
)

// The audit record, the response and the container's own record have the name of the person who approved, attached
// and read.
func TestPersonIsRecorded(t *testing.T) {
	issuer := ""
	at, dir := signInServer(t, func(redirect string) string {
		issuer = dextest.Start(t, redirect)
		return issuer
	})
	open, err := state.OpenExisting(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	persons := people.New(people.Options{Objects: open.Store, Issuer: issuer, Life: time.Hour,
		Grants: []people.Grant{{Group: "engineers", Project: "proj_red", Role: berth.RoleMaintainer}}})
	session, err := persons.SignIn(t.Context(), people.Claims{Issuer: issuer, Subject: "1", Name: "Ada Lovelace",
		Email: "ada@example.com", Groups: []string{"engineers"}})
	if err != nil {
		t.Fatal(err)
	}
	call := func(method, path, kind string, body io.Reader, into any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, at+path, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+session.Tokens[0].Secret)
		req.Header.Set("Content-Type", kind)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: got %d %s, %v", method, path, resp.StatusCode, raw, err)
		}
		if into != nil {
			if err := json.Unmarshal(raw, into); err != nil {
				t.Fatal(err)
			}
		}
	}
	post := func(path, body string, into any) {
		t.Helper()
		call("POST", path, "application/json", strings.NewReader(body), into)
	}
	type response struct {
		ID     string
		Output []struct{ ID, Type string }
		Berth  struct {
			Approvals []map[string]any
		}
	}
	var asked, answered response
	post("/v1/responses", `{"model":"scripted","input":"`+"```sh\\ntrue\\n```"+`","tools":[{"type":"shell","environment":`+
		`{"type":"container_auto"}}],"berth":{"require_approval":"always"}}`, &asked)
	post("/v1/responses", `{"previous_response_id":"`+asked.ID+`","input":[{"type":"mcp_approval_response",`+
		`"approval_request_id":"`+asked.Output[0].ID+`","approve":false}],"berth":{"inherit":true}}`, &answered)
	if len(answered.Berth.Approvals) != 1 || answered.Berth.Approvals[0]["person"] != "ada@example.com" ||
		answered.Berth.Approvals[0]["key_id"] != session.Person.ID || answered.Berth.Approvals[0]["approve"] != false {
		t.Errorf("the response has the approvals %v", answered.Berth.Approvals)
	}
	var container, file struct{ ID string }
	post("/v1/containers", `{"name":"x"}`, &container)
	for range 2 { // the second has no entry
		post("/v1/containers/"+container.ID+"/exec", `{"command":["true"]}`, nil)
	}
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	_ = w.WriteField("purpose", "user_data")
	part, err := w.CreateFormFile("file", "a.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = part.Write([]byte("content"))
	_ = w.Close()
	call("POST", "/v1/files", w.FormDataContentType(), &form, &file)
	call("GET", "/v1/files/"+file.ID+"/content", "", nil, nil)
	call("DELETE", "/v1/containers/"+container.ID, "", nil, nil) // its entry is durable, with those before it

	var got []string
	for e, err := range audit.Entries(filepath.Join(dir, "audit"), "") {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Action {
		case audit.ApprovalGiven, audit.ApprovalRefused, audit.ContainerAttached, audit.FileRead:
			if e.Person != "ada@example.com" || string(e.Key) != session.Person.ID || e.Project != "proj_red" {
				t.Errorf("%s is of %q, %q, %q", e.Action, e.Person, e.Key, e.Project)
			}
			got = append(got, strings.Join([]string{string(e.Action), string(e.Container), e.Object, e.Name, e.Reason}, " "))
		}
	}
	want := []string{"approval.refused  " + answered.ID + " " + asked.Output[0].ID + " ",
		"container.attached " + container.ID + "   connection", "file.read  " + file.ID + "  GET /v1/files/{file}/content"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the record has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
