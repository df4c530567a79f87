package console

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/berth-run/berth"
)

// visitOf returns a visit of a page whose API is a handler.
func visitOf(t *testing.T, api http.HandlerFunc, target string) *visit {
	t.Helper()
	v, err := New(api, slog.New(slog.DiscardHandler)).visit(httptest.NewRecorder(),
		httptest.NewRequest(http.MethodGet, target, nil))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestFind: a search reads pages until it has enough rows, and leads to the pages after them.
func TestFind(t *testing.T) {
	const total = 1500
	asked := 0
	api := func(w http.ResponseWriter, r *http.Request) {
		asked++
		first, _ := strconv.Atoi(r.URL.Query().Get("after")) // 0 at the start
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		var page list[berth.File]
		for i := first + 1; i <= min(first+limit, total); i++ {
			page.Data = append(page.Data, berth.File{ID: berth.FileID(strconv.Itoa(i)), Filename: fmt.Sprintf("Chart %04d.csv", i)})
		}
		page.LastID, page.HasMore = strconv.Itoa(first+len(page.Data)), first+limit < total
		_ = json.NewEncoder(w).Encode(page)
	}
	text := textIn(func(f berth.File) []string { return []string{f.Filename} })
	for _, tt := range []struct {
		query       string
		rows, asked int
		next        string
	}{{"", 50, 1, "/console/files?after=50"}, {"?q=chart", 100, 1, "/console/files?after=100&q=chart"},
		{"?q=+CHART+0777+", 1, searchPages, "/console/files?after=1000&q=CHART+0777"},
		{"?q=none&after=1000", 0, 5, ""}, {"?q=1200&after=1000", 1, 5, ""}} {
		asked = 0
		var p rows[berth.File]
		if err := p.find(visitOf(t, api, "/console/files"+tt.query), "/v1/files", text); err != nil {
			t.Fatal(err)
		}
		if len(p.Rows) != tt.rows || asked != tt.asked || p.Next != tt.next {
			t.Errorf("%s: got %d rows of %d pages, and %q; want %d, %d, %q", tt.query, len(p.Rows), asked, p.Next, tt.rows,
				tt.asked, tt.next)
		}
	}
}

// TestTagged: a tag is a name with its value, whatever characters they have.
func TestTagged(t *testing.T) {
	s := &summary{Response: berth.Response{Metadata: map[string]string{"team": "red", "a:b": "c"}}}
	for tag, want := range map[string]bool{"": true, "team:red": true, "a:b:c": true, "team:": false, "team:blue": false,
		"red": false} {
		if got := tagged(s, tag); got != want {
			t.Errorf("%q: got %v", tag, got)
		}
	}
}

// TestRunCosts: a container costs what its responses cost, each once; one that was deleted costs nothing.
func TestRunCosts(t *testing.T) {
	spent := func(id string) string {
		return `{"id":"` + id + `","cost":{"value":0.5,"currency":"usd"},"berth":{"usage":[{"upstream":"u","model":"m","turns":1,"cost":{"value":0.5,"currency":"usd"}}]}}`
	}
	read := 0
	api := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/responses":
			fmt.Fprint(w, `{"data":[`+spent("resp_1")+`,{"id":"resp_free"}]}`)
		case "/v1/responses/resp_old":
			read++
			fmt.Fprint(w, spent("resp_old"))
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":{"message":"gone"}}`)
		}
	}
	v := visitOf(t, api, "/console/containers")
	costs, err := readCosts(v)
	if err != nil {
		t.Fatal(err)
	}
	logOf := func(ids ...berth.ResponseID) (log []berth.ContainerLog) {
		for _, id := range ids {
			log = append(log, berth.ContainerLog{ResponseID: id})
		}
		return log
	}
	for range 2 { // the second time, all are known
		sum, err := costs.of(v, logOf("resp_1", "resp_1", "", "resp_free", "resp_old", "resp_gone"))
		if err != nil || sum == nil || sum.Value.String() != "1" || sum.Currency != "usd" {
			t.Fatalf("got %+v, %v, want 1 usd", sum, err)
		}
	}
	if read != 1 {
		t.Errorf("an older response was read %d times", read)
	}
	if sum, err := costs.of(v, logOf("resp_free")); sum != nil || err != nil {
		t.Errorf("without a price: got %+v, %v", sum, err)
	}
	costs.left = 0
	if sum, err := costs.of(v, logOf("resp_1", "resp_other")); sum != nil || err != nil {
		t.Errorf("more than may be read: got %+v, %v", sum, err)
	}
}
