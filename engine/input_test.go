package engine_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/berth-run/berth"
)

// Files and images named by id reach the model as data, and remain ids in the stored
// items.
func TestFilesByID(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("a cat"))
		r := h.final(h.create(`{"model":"played","input":[{"type":"message","role":"user","content":[
		{"type":"input_text","text":"what is it?"},{"type":"input_image","file_id":"file-cat","detail":"low"},{"type":"input_file","file_id":"file-cat"}]}]}`).ID)
		var m berth.Message
		decode(t, h.model.requests[0].Items[0], &m)
		const url = "data:image/png;base64,bWVvdw=="
		if len(m.Content) != 3 || m.Content[1].ImageURL != url || m.Content[1].Detail != "low" ||
			m.Content[2].FileData != url || m.Content[2].Filename != "cat.png" {
			t.Errorf("the model saw %+v", m.Content)
		}
		rec, err := h.store.GetResponse(t.Context(), project, r.ID)
		if err != nil || !strings.Contains(asJSON(t, rec.Input), "file-cat") || strings.Contains(asJSON(t, rec.Input),
			"base64") {
			t.Errorf("the record: %v, %v", rec.Input, err)
		}
	})
}

// A file that is not an image, by its name and its content, is refused as an image.
func TestTextAsImage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		image := func(id string) string {
			return `{"model":"played","input":[{"role":"user","content":"Look."},{"role":"user","content":[{"type":"input_text","text":"?"},{"type":"input_image","file_id":"` + id + `"}]}]}`
		}
		h := newHouse(t, say("a cat"))
		_, err := h.tryCreate(t.Context(), image("file-text"))
		const at = "input[1].content[1].file_id"
		const want = "Invalid '" + at +
			"': the file 'file-text' is not an image. Send it as a part of type 'input_file'."
		if e, ok := errors.AsType[*berth.Error](err); !ok || e.Code != berth.CodeInvalid || e.Param != at ||
			e.Message != want {
			t.Errorf("got %v, want %s", err, want)
		}
		h.final(h.create(image("file-gif")).ID)
		if got := asJSON(t, h.model.requests[0].Items); !strings.Contains(got, "data:image/gif;base64,") {
			t.Errorf("an image without an extension: the model saw %s", got)
		}
	})
}
