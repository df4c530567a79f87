package forward

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/clock"
)

var some = []*audit.Entry{
	{Seq: 7, Time: time.Unix(1, 500).UTC(), Action: audit.ContainerCreated, Container: "cntr_1", Project: "proj_a",
		Key: "key_1"},
	{Seq: 8, Time: time.Unix(2, 0).UTC(), Action: audit.EgressRefused, Container: "cntr_1", Host: "evil.example",
		Port: 443, Reason: "not allowed"},
}

// An answer is what a server of a test gives.
type answer struct {
	status int
	body   string
	header http.Header
}

// serve serves an answer, and returns the address and the requests with their bodies.
func serve(t *testing.T, a *answer) (url string, requests func() []*http.Request, bodies func() []string) {
	t.Helper()
	var got []*http.Request
	var texts []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		got, texts = append(got, r), append(texts, string(raw))
		for name := range a.header {
			w.Header().Set(name, a.header.Get(name))
		}
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, func() []*http.Request { return got }, func() []string { return texts }
}

func TestWebhook(t *testing.T) {
	a := &answer{status: 204}
	url, requests, bodies := serve(t, a)
	key := []byte("0123456789abcdef")
	w, err := NewWebhook(http.DefaultTransport, url, map[string]string{"Authorization": "Bearer x"}, "berth+1234",
		"whsec_"+base64.StdEncoding.EncodeToString(key), Berth, clock.System)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Send(t.Context(), some); err != nil {
		t.Fatal(err)
	}
	r, body := requests()[0], bodies()[0]
	h := r.Header
	mac := hmac.New(sha256.New, key)
	io.WriteString(mac, h.Get("webhook-id")+"."+h.Get("webhook-timestamp")+"."+body)
	if got := h.Get("webhook-signature"); got != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
		t.Errorf("signature: got %s", got)
	}
	if h.Get("webhook-id") != "berth+1234:7-8" || h.Get("Authorization") != "Bearer x" {
		t.Errorf("got the headers %v", h)
	}
	var content struct {
		Record  string
		Entries []audit.Entry
	}
	if err := json.Unmarshal([]byte(body), &content); err != nil || content.Record != "berth+1234" ||
		len(content.Entries) != 2 || content.Entries[1].Host != "evil.example" {
		t.Errorf("got %s, %v", body, err)
	}
	for status, want := range map[int]string{500: "500", 302: "302", 200: ""} {
		a.status, a.header = status, http.Header{"Location": {url + "/elsewhere"}}
		err := w.Send(t.Context(), some)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d: got %v", status, err)
		}
	}
	for _, r := range requests() {
		if r.URL.Path == "/elsewhere" {
			t.Error("a redirect was followed")
		}
	}
	for _, secret := range []string{"", "abc", "whsec_!", "whsec_" + base64.StdEncoding.EncodeToString([]byte("short"))} {
		if _, err := NewWebhook(http.DefaultTransport, url, nil, "r", secret, Berth, clock.System); err == nil {
			t.Errorf("the secret %q: no error", secret)
		}
	}
}

func TestOTLP(t *testing.T) {
	a := &answer{status: 200, body: `{"partialSuccess":{}}`}
	url, requests, bodies := serve(t, a)
	o := NewOTLP(http.DefaultTransport, url+"/v1/logs", nil, map[string]string{"service.name": "berth"}, Berth, clock.System)
	defer o.Close()
	if err := o.Send(t.Context(), some); err != nil {
		t.Fatal(err)
	}
	if requests()[0].URL.Path != "/v1/logs" || requests()[0].Header.Get("Content-Type") != "application/json" {
		t.Errorf("got %+v", requests()[0])
	}
	for _, want := range []string{`"timeUnixNano":"1000000500"`, `"severityNumber":13`, `"eventName":"egress.refused"`,
		`{"key":"service.name","value":{"stringValue":"berth"}}`,
		`{"key":"berth.audit.sequence","value":{"stringValue":"8"}}`} {
		if !strings.Contains(bodies()[0], want) {
			t.Errorf("%s does not contain %s", bodies()[0], want)
		}
	}
	for body, want := range map[string]string{
		`{"partialSuccess":{"rejectedLogRecords":"1","errorMessage":"too old"}}`: `rejected 1 of 2 entries: "too old"`,
		`<html>`: "no JSON", "": "", "{}": "",
	} {
		a.body = body
		if err := o.Send(t.Context(), some); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", body, err, want)
		}
	}
}

// The formats have the fields by which a SIEM finds entries.
func TestFormats(t *testing.T) {
	for _, tt := range []struct {
		format Format
		entry  *audit.Entry
		want   []string
	}{
		{Berth, some[0], []string{`"seq":7`, `"action":"container.created"`, `"hash":"`}},
		{ECS, some[0], []string{`"@timestamp":"1970-01-01T00:00:01.0000005Z"`, `"category":["configuration"]`,
			`"container":{"id":"cntr_1"}`, `"organization":{"id":"proj_a"}`, `"user":{"id":"key_1"}`, `"outcome":"success"`}},
		{ECS, some[1], []string{`"category":["network"]`, `"type":["denied"]`, `"outcome":"failure"`,
			`"destination":{"domain":"evil.example","port":443}`, `"reason":"not allowed"`}},
		{OCSF, some[0], []string{`"class_uid":6003`, `"type_uid":600301`, `"time":1000`, `"operation":"container.created"`,
			`"actor":{"user":{"uid":"key_1"}}`, `{"type":"container","uid":"cntr_1"}`}},
		{OCSF, some[1], []string{`"class_uid":4001`, `"type_uid":400105`, `"status_id":2`,
			`"dst_endpoint":{"hostname":"evil.example","port":443}`}},
		{OCSF, &audit.Entry{Action: audit.PersonRefused, Name: "mallory"},
			[]string{`"class_uid":3002`, `"activity_id":1`, `"status_id":2`, `"name":"mallory"`}},
	} {
		raw, err := tt.format.encode(tt.entry)
		if err != nil || !json.Valid(raw) {
			t.Fatalf("%s: %v: %s", tt.format, err, raw)
		}
		for _, want := range tt.want {
			if !strings.Contains(string(raw), want) {
				t.Errorf("%s: %s does not contain %s", tt.format, raw, want)
			}
		}
	}
}
