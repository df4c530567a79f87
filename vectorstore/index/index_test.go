package index

import (
	"strings"
	"testing"
)

func newIndex(t *testing.T, passages ...Passage) *Index {
	t.Helper()
	x, err := New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	if err := x.Add(t.Context(), passages); err != nil {
		t.Fatal(err)
	}
	return x
}

func keys(hits []Hit) (out []int64) {
	for _, h := range hits {
		out = append(out, h.Key)
	}
	return out
}

// Scores do not depend on the number of passages alone, so that a threshold works in a
// store of one file, too.
func TestScores(t *testing.T) {
	score := func(x *Index, query string) float64 {
		t.Helper()
		hits, err := x.Text(t.Context(), query, 1, nil)
		if err != nil || len(hits) != 1 || hits[0].Key != 1 || hits[0].Score <= 0 || hits[0].Score > 1 {
			t.Fatalf("%q: got %v, %v", query, hits, err)
		}
		return hits[0].Score
	}
	one := Passage{Key: 1, Name: "tides.md", Text: "High water is at noon."}
	small := newIndex(t, one)
	large := newIndex(t, one)
	for i := range int64(300) {
		if err := large.Add(t.Context(),
			[]Passage{{Key: i + 2, Name: "other.md", Text: "Ropes, knots and sails."}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []*Index{small, large} {
		all, half := score(x, "high water noon"), score(x, "high water tomorrow night")
		if all < 0.3 || half > 0.7*all {
			t.Errorf("got scores %v and %v", all, half)
		}
		if repeated := score(x, "tides"); repeated <= all {
			t.Errorf("a word of the name has the score %v", repeated)
		}
	}
}

func TestText(t *testing.T) {
	x := newIndex(t,
		Passage{Key: 1, Name: "tides.md", Text: "The harbour is deep. Ships anchor at noon."},
		Passage{Key: 2, Name: "rope.md", Text: "A bowline is a knot. Knots hold anchors."},
		Passage{Key: 3, Name: "anchor.md", Text: "Nothing of the kind."})
	for query, want := range map[string][]int64{
		"what is a KNOT?":                {2},
		"harbour":                        {1},
		`"; DROP TABLE passages; --`:     nil,
		`NEAR(a b) OR * AND ^ { } name:`: nil,
		"the":                            {3, 1},
		"":                               nil,
	} {
		hits, err := x.Text(t.Context(), query, 10, nil)
		if err != nil {
			t.Errorf("%q: %v", query, err)
		}
		got := keys(hits)
		if len(got) != len(want) || len(want) == 1 && got[0] != want[0] {
			t.Errorf("%q: got %v, want %v", query, got, want)
		}
	}
	hits, err := x.Text(t.Context(), "anchor", 10, nil)
	if err != nil || len(hits) != 3 || hits[0].Key != 3 || hits[0].Score <= 0 {
		t.Errorf("a name's word counts more: got %v, %v", hits, err)
	}
	if hits, _ := x.Text(t.Context(), "anchor", 1, func(k int64) bool {
		return k == 2
	}); len(hits) != 1 || hits[0].Key != 2 {
		t.Errorf("accept: got %v", hits)
	}
	if err := x.Remove(t.Context(), []int64{3, 1}); err != nil {
		t.Fatal(err)
	}
	if hits, _ := x.Text(t.Context(), "anchor harbour nothing", 10, nil); len(hits) != 1 || hits[0].Key != 2 {
		t.Errorf("after Remove: got %v", hits)
	}
}

func TestVector(t *testing.T) {
	x := newIndex(t, Passage{Key: 1, Text: "a", Vector: []float32{1, 0}}, Passage{Key: 2, Text: "b",
		Vector: []float32{0.6, 0.8}}, Passage{Key: 3, Text: "c"})
	if got := keys(x.Vector([]float32{0, 1}, 5, nil)); len(got) != 2 || got[0] != 2 {
		t.Errorf("got %v", got)
	}
	if got := x.Vector([]float32{1, 0, 0}, 5, nil); len(got) != 0 {
		t.Errorf("a vector of another length: got %v", got)
	}
}

// No query is an error, whatever it contains.
func FuzzText(f *testing.F) {
	x, err := New(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { x.Close() })
	if err := x.Add(f.Context(), []Passage{{Key: 1, Text: "one two"}}); err != nil {
		f.Fatal(err)
	}
	f.Add(`one" OR "two`)
	f.Add("\x00 NOT ß")
	f.Fuzz(func(t *testing.T, query string) {
		if _, err := x.Text(t.Context(), query, 3, nil); err != nil && !strings.Contains(err.Error(), "context") {
			t.Errorf("%q: %v", query, err)
		}
	})
}
