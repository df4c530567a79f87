package console

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSortedRuns: the largest runs come first, of all that the list reads in its time, and the headings lead there.
func TestSortedRuns(t *testing.T) {
	now := time.Now().Unix()
	row := func(id string, age, took int64, tokens int, cost any) map[string]any {
		return map[string]any{"id": id, "status": "completed", "created_at": now - age, "completed_at": now - age + took,
			"usage": map[string]any{"total_tokens": tokens}, "cost": cost}
	}
	usd := func(v float64) any { return map[string]any{"value": v, "currency": "usd"} }
	api := &stubAPI{answers: map[string]any{"/v1/responses": listed(row("resp_a", 10, 9, 1, usd(0.25)),
		row("resp_b", 20, 1, 3, usd(3)), row("resp_c", 30, 2, 2, nil), row("resp_old", 9*24*3600, 2, 2, usd(9)))}}
	for sort, want := range map[string][]string{"cost": {"b", "a", "c"}, "tokens": {"b", "c", "a"}, "duration": {"a", "c", "b"},
		"": {"a", "b", "c"}, "nonsense": {"a", "b", "c"}} {
		page := api.page(t, "responses?"+url.Values{"sort": {sort}, "range": {"8d"}}.Encode())
		var got []string
		for _, part := range strings.Split(page, `class="main"><a href="/console/responses/resp_`)[1:] {
			got = append(got, part[:1])
		}
		if !slices.Equal(got, want) {
			t.Errorf("sort=%s: got %q, want %q", sort, got, want)
		}
		if sorted := strings.Contains(page, `aria-sort="descending"`); sorted != slices.Contains(sorts, sort) {
			t.Errorf("sort=%s: a heading says that it is sorted: %v", sort, sorted)
		}
		if !strings.Contains(page, "8 days") { // the chip of a span that the list does not offer
			t.Errorf("sort=%s: the span is not shown", sort)
		}
		if follows := strings.Contains(page, "data-events"); follows == slices.Contains(sorts, sort) {
			t.Errorf("sort=%s: the page follows the server: %v", sort, follows)
		}
	}
	for _, name := range []string{"0d", "-1d", "400d", "d", "7", "<img>", "99999999999999999999d"} {
		if got := rangeOf(name); got != 0 {
			t.Errorf("%q is a span of %v", name, got)
		}
	}
}
