package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/berth-run/berth"
)

// Filters select by fields of any depth, by patterns, and by elements of lists. All must match.
func TestFilters(t *testing.T) {
	type object struct {
		ID       string            `json:"id"`
		Path     string            `json:"path"`
		Size     int64             `json:"size"`
		Paused   bool              `json:"paused"`
		Gone     *string           `json:"gone"`
		Tags     []string          `json:"tags,omitempty"`
		Metadata map[string]string `json:"metadata"`
	}
	objects := []object{
		{ID: "a", Path: "/x/one", Size: 9007199254740993, Tags: []string{"red", "blue"}, Metadata: map[string]string{"user": "eve"}},
		{ID: "b", Path: "/x/two", Paused: true, Gone: new("yes"), Metadata: map[string]string{"user": "bob"}},
	}
	for filters, want := range map[string]string{
		"":                               "a b",
		"id=a":                           "a",
		"id=[ab]":                        "a b",
		"id=c":                           "",
		"path=*one":                      "a",
		"size=9007199254740993":          "a",
		"paused=true":                    "b",
		"gone=":                          "a",
		"gone=yes":                       "b",
		"tags=blue":                      "a",
		"metadata.user=b*":               "b",
		"metadata.none=b*":               "",
		"metadata=*":                     "",
		"metadata.user=*,path=/x/*,id=b": "b",
	} {
		l := &listing{quiet: true}
		if filters != "" {
			l.filters = strings.Split(filters, ",")
		}
		var out bytes.Buffer
		if err := printList(&out, l, objects, func(o object) string { return o.ID }, "", nil); err != nil {
			t.Errorf("%s: %v", filters, err)
		}
		if got := strings.Join(strings.Fields(out.String()), " "); got != want {
			t.Errorf("%s: got %q, want %q", filters, got, want)
		}
	}
}

func TestWrongFilters(t *testing.T) {
	for text, want := range map[string]string{
		"name":     `--filter: "name" is not FIELD=PATTERN, such as name=test-*`,
		"=x":       `--filter: "=x" is not FIELD=PATTERN, such as name=test-*`,
		"name=[":   `--filter: "name=[" is not FIELD=PATTERN, such as name=test-*`,
		"colour=x": `--filter: there is no field "colour" here; there are: bytes, `,
	} {
		err := printList(&bytes.Buffer{}, &listing{filters: []string{text}}, []*berth.Volume{}, nil, "", nil)
		if _, usage := err.(usageError); !usage || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
