package store

import (
	"slices"
	"testing"
	"time"
)

func TestRunningUsage(t *testing.T) {
	const hour, start = 3600, 1_700_000_000 - 1_700_000_000%3600
	for name, tc := range map[string]struct {
		from, to int64
		want     []int64 // Start, Seconds of each
	}{
		"nothing":                   {start + 5, start + 5, nil},
		"a clock that was set back": {start + 9, start + 5, nil},
		"within a minute":           {start + 65, start + 70, []int64{start + 60, 5}},
		"over two hours":            {start + 3500, start + hour + 30, []int64{start + 3480, 100, start + hour, 30}},
		"whole hours":               {start, start + 2*hour, []int64{start, hour, start + hour, hour}},
	} {
		var got []int64
		for _, u := range (Running{Project: "p", Key: "k", MemoryLimit: "1g", Counted: tc.from}).Usage(tc.to) {
			if u.Project != "p" || u.Key != "k" || u.Name != "1g" || u.Kind != UsageContainer || u.Count != 0 {
				t.Errorf("%s: got %+v", name, u)
			}
			got = append(got, u.Start, u.Seconds)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
	var total int64
	for _, u := range (Running{}).Usage(start) { // since 1970
		total += u.Seconds
	}
	if want := int64(31 * 24 * hour); total != want {
		t.Errorf("a long time counts %d s, want %d", total, want)
	}
	if got := UsageMinute(time.Unix(start+119, 0)); got != start+60 {
		t.Errorf("minute: got %d, want %d", got, start+60)
	}
}

func TestEventPage(t *testing.T) {
	for _, tc := range []struct {
		sizes       []Size
		last, bytes int64
	}{
		{nil, 4, 0},
		{[]Size{{5, 2 * PageBytes}, {6, 1}}, 5, 2 * PageBytes},
		{[]Size{{5, 1}, {6, PageBytes - 1}, {7, 1}}, 6, PageBytes},
	} {
		if last, bytes := EventPage(4, tc.sizes); last != tc.last || bytes != tc.bytes {
			t.Errorf("%v: got %d, %d, want %d, %d", tc.sizes, last, bytes, tc.last, tc.bytes)
		}
	}
}

func TestPageFit(t *testing.T) {
	for _, tc := range []struct {
		page      Page
		sizes     []int64
		n         int
		shortened bool
	}{
		{Page{Limit: 2}, []int64{1, 1}, 2, false},
		{Page{Limit: 2}, []int64{1, 1, 1}, 2, true},
		{Page{Limit: 9, Bytes: 5}, []int64{9, 1}, 1, true},
		{Page{Limit: 9, Bytes: 5}, []int64{2, 3, 1}, 2, true},
		{Page{Limit: 9, Bytes: 5}, []int64{2, 3}, 9, false},
	} {
		if n, shortened, err := Fit(t.Context(), tc.page, tc.sizes); n != tc.n || shortened != tc.shortened ||
			err != nil {
			t.Errorf("%+v of %v: got %d, %t, %v, want %d, %t", tc.page, tc.sizes, n, shortened, err, tc.n, tc.shortened)
		}
	}
}
