package console

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

// TestDisks joins parts on one volume, and keeps those apart whose figures differ.
func TestDisks(t *testing.T) {
	parts := []berth.DiskStatus{
		{Area: "database", Bytes: 100, FreeBytes: 40},
		{Area: "files", Bytes: 100, FreeBytes: 10},
		{Area: "volumes", Bytes: 100, FreeBytes: 40},
		{Area: "images", Bytes: 100, FreeBytes: 40, Low: true},
	}
	want := []berth.DiskStatus{{Area: "database, volumes", Bytes: 100, FreeBytes: 40}, parts[1], parts[3]}
	if got := disks(parts); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if parts[0].Area != "database" {
		t.Error("the argument has changed")
	}
}

// TestHome: the page shows what waits with its command and two buttons, what runs, and what has failed, all as text.
func TestHome(t *testing.T) {
	hostile := `<img src=x onerror=alert(1)>`
	one := func(id string, status berth.Status) *summary {
		return &summary{Response: berth.Response{ID: berth.ResponseID(id), Status: status, Model: hostile,
			CreatedAt: time.Now().Unix(), Error: &berth.ResponseError{Code: "x", Message: hostile}}}
	}
	data := &homePage{Project: &projectHome{
		Waiting: []*waitingRun{{one("resp_w", berth.StatusCompleted), hostile, formToken{token: "f"}, "home",
			[]approval{{"mcpr_1", "shell", "berth", "git push " + hostile}}}},
		Calls: []waitingCall{{ID: "appr_1", Tool: "run", Title: hostile, Arguments: json.RawMessage("{\"command\":\"echo \u202e" +
			`<img src=x>"}`), Form: formToken{token: "f"}}},
		Running: []*runningRun{{one("resp_r", berth.StatusInProgress), hostile, hostile, 2}},
		Failed:  []*failedRun{{one("resp_f", berth.StatusFailed), hostile}},
	}}
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, "home", &page{Data: data}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"git push &lt;img", `value="approve"`, `value="deny"`, `name="call" value="mcpr_1"`,
		`name="back" value="home"`,
		`action="/console/approvals/appr_1"`, `echo \u{202E}&lt;img src=x&gt;</pre>`, "/console/responses/resp_r", "2: &lt;img", "Failed in the last 24 hours",
		"/console/responses/resp_f"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page lacks %q: %s", want, &b)
		}
	}
	if strings.Contains(b.String(), "<img src=x") {
		t.Error("the page has the text of a model as HTML")
	}
}
