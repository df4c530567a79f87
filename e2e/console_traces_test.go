package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// TestConsoleTraces shows what an agent has traced, hostile names included, and deletes it.
func TestConsoleTraces(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 1200)
	b.open(s.url + "/console/traces")
	b.shows("main", "No trace yet")
	const hostile = `<img src=x onerror=\"window.pwned=1\">`
	s.trace(`{"object":"trace","id":"trace_1","workflow_name":"Sail ` + hostile + `","group_id":"` + hostile + `","metadata":null},
		{"object":"trace.span","id":"span_2","trace_id":"trace_1","parent_id":"span_1","started_at":"2026-01-01T00:00:00.500+00:00","ended_at":"2026-01-01T00:00:01+00:00","span_data":{"type":"function","name":"tide ` + hostile + `","input":"` + hostile + `"},"error":{"message":"` + hostile + `"}},
		{"object":"trace.span","id":"span_1","trace_id":"trace_1","parent_id":null,"started_at":"2026-01-01T00:00:00+00:00","ended_at":"2026-01-01T00:00:02+00:00","span_data":{"type":"agent","name":"Harbour"},"error":null},
		{"object":"trace.span","id":"span_3","trace_id":"trace_1","parent_id":"span_1","started_at":"2026-01-01T00:00:01+00:00","ended_at":"2026-01-01T00:00:02+00:00","span_data":{"type":"response","response_id":"resp_1/../../x\"><img src=x>"},"error":null}`)
	b.open(s.url + "/console/traces")
	b.shows("td", "2.0 s")
	checkHarmless(b, "traces", "main img")
	b.click("td a")
	b.shows(".waterfall tr.agent", "Harbour")
	b.shows(".waterfall tr.tool", "error: <img")
	b.click(".waterfall tr.tool a")
	b.until(`location.hash === "#span_2"`)
	checkHarmless(b, "a trace", "main img, main form:not([action$='/delete'])")
	b.click("main > details:last-of-type > summary")
	b.click("button.danger")
	b.shows("main", "No trace yet")
	b.checkQuiet()
}

// trace sends traces and spans as the Agents SDK does.
func (s *server) trace(items string) {
	s.t.Helper()
	resp, err := http.Post(s.url+"/v1/traces/ingest", "application/json", strings.NewReader(`{"data":[`+items+`]}`))
	if err != nil {
		s.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		s.t.Fatalf("got %s", resp.Status)
	}
}
