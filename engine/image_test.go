package engine_test

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool/imagegeneration"
)

// A painter answers requests for images with events, or with an error after them.
type painter struct {
	model  string
	fields string
	edited string
	events []string
	err    error
}

func (p *painter) Generate(_ context.Context, _ berth.Caller, model string,
	fields map[string]json.RawMessage) iter.Seq2[[]byte, error] {
	raw, _ := json.Marshal(fields)
	p.model, p.fields = model, string(raw)
	return func(yield func([]byte, error) bool) {
		for _, ev := range p.events {
			if !yield([]byte(ev), nil) {
				return
			}
		}
		if p.err != nil {
			yield(nil, p.err)
		}
	}
}

// withImages returns a house whose images come from p.
func withImages(t *testing.T, p *painter, turns ...turn) *house {
	t.Helper()
	h := newHouse(t, turns...)
	h.stop()
	h.images = imagegeneration.Options{Model: "painter", Images: p}
	h.start()
	return h
}

func TestImageGeneration(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := &painter{events: []string{
			`{"type":"image_generation.partial_image","b64_json":"R0lGODlh","partial_image_index":0}`,
			// was not requested
			`{"type":"image_generation.partial_image","b64_json":"R0lGODlh","partial_image_index":-1}`,
			`{"type":"image_generation.completed","b64_json":"iVBORw0KGgo=","size":"1024x1024","quality":"low","background":"opaque","output_format":"webp"}`}}
		h := withImages(t, p, call("call_1", "image_generation", `{"prompt":"A lighthouse."}`), say("here"))
		const request = `{"model":"played","tools":[{"type":"image_generation","quality":"low","output_format":"webp","partial_images":1}]`
		id := h.create(request + `,"input":"x"}`).ID
		r := h.final(id)
		var got map[string]any
		decode(t, r.Output[0], &got)
		if !strings.HasPrefix(got["id"].(string), "ig_") {
			t.Errorf("the id is %v", got["id"])
		}
		delete(got, "id")
		const want = `{"type":"image_generation_call","status":"completed","background":"opaque","output_format":"webp","quality":"low","size":"1024x1024","revised_prompt":"A lighthouse.","result":"iVBORw0KGgo="}`
		if !sameJSON(t, asJSON(t, got), want) {
			t.Errorf("the item is %s", r.Output[0])
		}
		if !sameJSON(t, p.fields,
			`{"prompt":"A lighthouse.","n":1,"quality":"low","output_format":"webp","stream":true,"partial_images":1}`) ||
			p.model != "painter" {
			t.Errorf("the upstream got %s %s", p.model, p.fields)
		}
		var events []string
		for _, ev := range h.events(id) {
			if strings.Contains(string(ev.Type), "image") || ev.Item != nil &&
				ev.Item.Type() == berth.ItemImageGenerationCall {
				events = append(events, strings.TrimPrefix(string(ev.Type), "response.")+" "+ev.PartialImage)
			}
		}
		order := []string{"output_item.added ", "image_generation_call.in_progress ",
			"image_generation_call.generating ", "image_generation_call.partial_image R0lGODlh",
			"image_generation_call.completed ", "output_item.done "}
		if diff := cmp.Diff(order, events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if saw := asJSON(t, h.model.requests[1].Items); !strings.Contains(saw,
			"The image was generated and shown to the user. Its size is 1024x1024.") ||
			strings.Contains(saw, "iVBORw0KGgo=") {
			t.Errorf("the model saw %s", saw)
		}
	})
}

// What goes wrong is an output for the model, and the item has no image.
func TestImageGenerationFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, arguments string
		painter         painter
		want            string
	}{
		{"no prompt", `{}`, painter{}, "no description of an image"},
		{"not JSON", `{"prompt":`, painter{}, "not valid"},
		{"refused", `{"prompt":"x"}`,
			painter{err: berth.Invalid("prompt", "Your request was rejected by the safety system.")},
			"rejected by the safety system"},
		{"internal", `{"prompt":"x"}`, painter{err: context.DeadlineExceeded}, "the server's log"},
		{"nothing", `{"prompt":"x"}`, painter{events: []string{`{"data":[]}`}}, "sent no image"},
		{"not base64", `{"prompt":"x"}`, painter{events: []string{`{"data":[{"b64_json":"%%"}]}`}}, "is not an image"},
		{"a script", `{"prompt":"x"}`,
			painter{events: []string{`{"data":[{"b64_json":"PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg=="}]}`}},
			"is not an image"},
		{"a message for a terminal", `{"prompt":"x"}`, painter{err: berth.Invalid("prompt", "No.\x1b]0;x\x07")},
			"No. ]0;x "},
		{"too large", `{"prompt":"x"}`,
			painter{events: []string{`{"data":[{"b64_json":"` + strings.Repeat("A", 32<<20+4) + `"}]}`}},
			"larger than"},
	} {
		runInBubble(t, tc.name, func(t *testing.T) {
			h := withImages(t, &tc.painter, call("call_1", "image_generation", tc.arguments), say("sorry"))
			r := h.final(h.create(`{"model":"played","tools":[{"type":"image_generation"}],"input":"x"}`).ID)
			var c berth.ImageGenerationCall
			decode(t, r.Output[0], &c)
			if r.Status != berth.StatusCompleted || c.Status != "failed" || c.Result != nil ||
				!strings.Contains(c.Berth.Error, tc.want) {
				t.Errorf("status %s, item %.300s", r.Status, r.Output[0])
			}
			if saw := asJSON(t, h.model.requests[1].Items); !strings.Contains(saw, "No image was generated.") ||
				!strings.Contains(saw, tc.want) {
				t.Errorf("the model saw %.500s", saw)
			}
		})
	}
}

// Without a model for images the tool is refused.
func TestImageGenerationUnconfigured(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		_, err := h.tryCreate(t.Context(), `{"model":"played","tools":[{"type":"image_generation"}],"input":"x"}`)
		if e, ok := err.(*berth.Error); !ok || e.Code != berth.CodeInvalid || e.Param != "tools[0].type" ||
			!strings.Contains(e.Message, "image_generation.model") {
			t.Errorf("error %v", err)
		}
	})
}
