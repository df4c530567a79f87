package threads

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

const picture = "data:image/png;base64,"

// toolLeg returns a response that called the hosted tools and cites what they found.
func toolLeg(text string, annotations ...string) *berth.Response {
	code := berth.NewItem(berth.CodeInterpreterCall{ID: "ci_1", Type: berth.ItemCodeInterpreterCall,
		Status: berth.StatusCompleted, Code: "plot()", ContainerID: "cntr_1",
		Outputs: []berth.CodeInterpreterOutput{{Type: "logs", Logs: "42"},
			{Type: "image", URL: picture + base64.StdEncoding.EncodeToString([]byte("png"))}}})
	search := berth.NewItem(berth.FileSearchCall{ID: "fs_1", Type: berth.ItemFileSearchCall, Status: "completed",
		Queries: []string{"tide"},
		Berth: &berth.FileSearchBerth{Results: []berth.FileSearchResult{{FileID: "file-9", Filename: "tides.md",
			Score: 0.5, Text: "noon"}}}})
	content := berth.Content{Type: "output_text", Text: text}
	for _, a := range annotations {
		content.Annotations = append(content.Annotations, json.RawMessage(a))
	}
	return leg(berth.StatusCompleted, code, search, berth.NewItem(berth.Message{ID: "msg_1", Type: berth.ItemMessage,
		Status: berth.StatusCompleted, Role: "assistant", Content: []berth.Content{content}}))
}

const (
	citesTides = `{"type":"file_citation","file_id":"file-9","filename":"tides.md","index":3}`
	citesAgain = `{"type":"file_citation","file_id":"file-9","filename":"tides.md","index":3}`
	citesTable = `{"type":"container_file_citation","file_id":"cfile_7","container_id":"cntr_1","filename":"a.csv","start_index":5,"end_index":10}`
)

// A step shows a call with what it found or made, and a message cites it with marks that
// are in its text.
func TestToolSteps(t *testing.T) {
	l := toolLeg("Ahé! /a.csv.", citesTides, citesAgain, citesTable)
	image, table := imageID(l.ID, 0, 1), citedID(l.ID, "cfile_7")
	r := &Record{Run: Run{Status: Queued,
		Tools: []berth.Tool{berth.NewTool(map[string]any{"type": "file_search",
			"file_search": map[string]any{"ranking_options": map[string]any{"score_threshold": 0.25}}})}},
		Legs: []Leg{{Response: "resp_1", At: 90, Started: true}}, Files: map[berth.FileID]bool{image: true,
			table: true}}
	run := r.View(l, time.Unix(200, 0))
	steps := r.Steps(&run, []*store.Response{{Body: l}})
	logs := "42"
	want := []ToolCall{
		{ID: "call_1", Type: "code_interpreter",
			CodeInterpreter: &CodeInterpreter{Input: "plot()",
				Outputs: []CodeOutput{{Type: "logs", Logs: &logs}, {Type: "image", Image: &FileReference{image}}}}},
		{ID: "call_1", Type: "file_search",
			FileSearch: &FileSearch{&SearchRanking{"auto", 0.25},
				[]SearchResult{{"file-9", "tides.md", 0.5, []SearchContent{{"text", "noon"}}}}}},
	}
	if len(steps) != 3 {
		t.Fatalf("got %d steps", len(steps))
	}
	for i, w := range want {
		if diff := cmp.Diff([]ToolCall{w}, *steps[i].StepDetails.ToolCalls); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
	if bare := steps[1].withoutContent(); (*bare.StepDetails.ToolCalls)[0].FileSearch.Results[0].Content != nil ||
		(*steps[1].StepDetails.ToolCalls)[0].FileSearch.Results[0].Content == nil {
		t.Error("withoutContent must remove the content from a copy")
	}
	m := r.messagesOf(&run, l)[0]
	if len(m.Content) != 2 || m.Content[0].ImageFile.FileID != image ||
		m.Content[1].Text.Value != "Ahé【2:0†source】【2:1†source】! /a.csv." {
		t.Fatalf("message: got %+v", m.Content)
	}
	text := []rune(m.Content[1].Text.Value)
	for _, a := range m.Content[1].Text.Annotations {
		if got := string(text[a.StartIndex:a.EndIndex]); got != a.Text {
			t.Errorf("annotation %q stands for %q", a.Text, got)
		}
	}
	if last := m.Content[1].Text.Annotations[2]; last.Type != "file_path" || last.Text != "/a.cs" ||
		last.FilePath.FileID != table {
		t.Errorf("got %+v", last)
	}
	var input berth.Message
	check(t, m.item().Decode(&input))
	if len(input.Content) != 1 || input.Content[0].Text != "Ahé! /a.csv." {
		t.Errorf("the model is shown %+v", input.Content)
	}
	r.Files = map[berth.FileID]bool{image: false}
	if m := r.messagesOf(&run, l)[0]; len(m.Content) != 1 || len(m.Content[0].Text.Annotations) != 2 {
		t.Errorf("without the files: got %+v", m.Content)
	}
}

// A stream has what the message and the steps have, however much of the text it has sent
// when the message ends.
func TestToolStream(t *testing.T) {
	for name, deltas := range map[string][]string{"in pieces": {"Ah", "é", citesTides, "! /a.csv."}, "at the end": nil,
		"broken off": {"Ahé", citesTides}} {
		l := toolLeg("Ahé! /a.csv.", citesTides, citesTable)
		r := &Record{Run: Run{Status: Queued}, Legs: []Leg{{Response: "resp_1", At: 90, Started: true}},
			Files: map[berth.FileID]bool{imageID(l.ID, 0, 1): true, citedID(l.ID, "cfile_7"): true}}
		stream := newEventStream(r, nil, nil, func() time.Time { return time.Unix(200, 0) })
		stream.bare = true
		var got []Event
		at, zero := 2, 0
		send := func(ev berth.Event) {
			t.Helper()
			events, err := stream.Apply(&ev)
			check(t, err)
			got = append(got, events...)
		}
		started := *l
		started.Output, started.Status = nil, berth.StatusInProgress
		send(berth.Event{Type: berth.EventCreated, Response: &started})
		for i, it := range l.Output {
			var open map[string]any
			check(t, it.Decode(&open))
			open["status"], open["content"], open["outputs"], open["code"] = "in_progress", []any{}, []any{}, ""
			send(berth.Event{Type: berth.EventOutputItemAdded, OutputIndex: &i, Item: new(berth.NewItem(open))})
			if i == at {
				send(berth.Event{Type: berth.EventContentPartAdded, OutputIndex: &at, ContentIndex: &zero,
					Part: &berth.Content{Type: "output_text"}})
				n := 0
				for _, d := range deltas {
					if d == citesTides {
						send(berth.Event{Type: berth.EventAnnotationAdded, OutputIndex: &at, ContentIndex: &zero,
							AnnotationIndex: &n, Annotation: json.RawMessage(d)})
						continue
					}
					send(berth.Event{Type: berth.EventOutputTextDelta, OutputIndex: &at, ContentIndex: &zero,
						Delta: berth.StringDelta(d)})
				}
			}
			send(berth.Event{Type: berth.EventOutputItemDone, OutputIndex: &i, Item: &it})
		}
		run := r.View(l, time.Unix(200, 0))
		want := r.messagesOf(&run, l)[0].Content
		if diff := cmp.Diff(want, folded(t, got)); diff != "" {
			t.Errorf("%s: the stream has another message (-want +got):\n%s", name, diff)
		}
	}
}

// folded returns the content of the message that a stream's pieces make.
func folded(t *testing.T, events []Event) []Content {
	t.Helper()
	var out []Content
	for _, ev := range events {
		d, ok := ev.Data.(messageDelta)
		if !ok {
			continue
		}
		for _, c := range d.Delta.Content {
			if c.Index == len(out) {
				out = append(out, Content{Type: c.Type, ImageFile: c.ImageFile})
			}
			if c.Text == nil {
				continue
			}
			p := &out[c.Index]
			if p.Text == nil {
				p.Text = &Text{Annotations: []Annotation{}}
				if c.Text.Annotations == nil {
					t.Error("the first piece has no list of annotations")
				}
			}
			p.Text.Value += c.Text.Value
			if c.Text.Annotations == nil {
				continue
			}
			for _, a := range *c.Text.Annotations {
				if *a.Index != len(p.Text.Annotations) || a.EndIndex > utf8.RuneCountInString(p.Text.Value) {
					t.Errorf("annotation %d has index %d and ends at %d", len(p.Text.Annotations), *a.Index, a.EndIndex)
				}
				a.Index = nil
				p.Text.Annotations = append(p.Text.Annotations, a)
			}
		}
	}
	return out
}
