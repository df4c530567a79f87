package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool/imagegeneration"
)

// step returns a step of an item that the upstream makes with its own tool.
func step(t *testing.T, index int, event string) model.Native {
	t.Helper()
	var ev berth.Event
	if err := json.Unmarshal([]byte(event), &ev); err != nil {
		t.Fatal(err)
	}
	return model.Native{Index: index, Event: ev}
}

const (
	imageAdded   = `{"type":"response.output_item.added","item":{"id":"ig_1","type":"image_generation_call","status":"in_progress"}}`
	imagePartial = `{"type":"response.image_generation_call.partial_image","item_id":"ig_1","partial_image_index":0,"partial_image_b64":"cA==","size":"1536x1024","quality":"low","background":"opaque","output_format":"webp"}`
	imageItem    = `{"id":"ig_1","type":"image_generation_call","status":"completed","output_format":"webp","result":"aQ==","revised_prompt":"A cat.","new":[1]}`
	imageDone    = `{"type":"response.output_item.done","item":` + imageItem + `}`
	askImage     = `{"model":"played","tools":[{"type":"image_generation","partial_images":1}]`
)

// image returns the steps of one image at an index.
func image(t *testing.T, index int) turn {
	return turn{step(t, index, imageAdded),
		step(t, index, `{"type":"response.image_generation_call.generating","item_id":"ig_1"}`),
		step(t, index, imagePartial), step(t, index, imageDone)}
}

// The items and events of an upstream's own tool reach the client unchanged, are stored, and
// go back to the upstream in the chain. No model for images is configured.
func TestNativeImage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, append(append(turn{model.Text{Text: "A cat."}}, image(t, 7)...), model.Text{Text: "Done."}),
			say("again"))
		h.model.native = []string{berth.ToolImageGeneration}
		id := h.create(askImage + `,"input":"x"}`).ID
		r := h.final(id)
		if !sameJSON(t, r.Output[1].String(), imageItem) {
			t.Errorf("the item is %s", r.Output[1])
		}
		if diff := cmp.Diff([]string{"message completed A cat.", "image_generation_call completed",
			"message completed Done."}, outline(t, r.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		var events []string
		for _, ev := range h.events(id) {
			if ev.OutputIndex != nil && *ev.OutputIndex == 1 {
				raw, _ := json.Marshal(ev)
				events = append(events,
					string(raw[:strings.Index(string(raw), `,"seq`)])+" "+ev.PartialImage+ev.Size+ev.ItemID)
			}
		}
		want := []string{`{"type":"response.output_item.added" `,
			`{"type":"response.image_generation_call.generating" ig_1`,
			`{"type":"response.image_generation_call.partial_image" cA==1536x1024ig_1`,
			`{"type":"response.output_item.done" `}
		if diff := cmp.Diff(want, events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		h.final(h.create(askImage + `,"input":"y","previous_response_id":"` + string(id) + `"}`).ID)
		first, second := h.model.requests[0], h.model.requests[1]
		if got := first.Tools[0].Native; got == nil || !sameJSON(t, string(got.Raw()),
			`{"type":"image_generation","partial_images":1}`) {
			t.Errorf("the upstream got the tool %+v", first.Tools[0])
		}
		if i := slices.IndexFunc(second.Items, func(it berth.Item) bool {
			return it.Type() == berth.ItemImageGenerationCall
		}); i < 0 || !sameJSON(t, second.Items[i].String(), imageItem) {
			t.Errorf("the upstream got the items %s", asJSON(t, second.Items))
		}

		// A request without the tool, or an upstream without it, gets the call of a function.
		h.final(h.create(`{"model":"played","input":"z","previous_response_id":"` + string(id) + `"}`).ID)
		if saw := asJSON(t, h.model.requests[2].Items); strings.Contains(saw, "aQ==") || !strings.Contains(saw,
			"The image was generated") {
			t.Errorf("without the tool the model saw %s", saw)
		}
	})
}

// A computer call of the upstream waits for the client, with its safety checks, and goes back
// with the screenshot.
func TestNativeComputer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const call = `{"id":"cu_1","type":"computer_call","status":"STATUS","call_id":"call_1","action":{"type":"click","button":"left","x":1,"y":2},"pending_safety_checks":[{"id":"cu_sc_1","code":"malicious_instructions","message":"m"}]}`
		finished := strings.Replace(call, "STATUS", "completed", 1)
		h := newHouse(t, turn{
			model.Item{Item: berth.NewItem(
				json.RawMessage(`{"type":"reasoning","summary":[],"encrypted_content":"x"}`))},
			step(t, 1, `{"type":"response.output_item.added","item":`+strings.Replace(call, "STATUS", "in_progress",
				1)+`}`),
			step(t, 1, `{"type":"response.output_item.done","item":`+finished+`}`),
		}, say("clicked"))
		h.model.native = []string{berth.ToolComputerPreview}
		first := h.final(h.create(withPreview + `,"input":"x"}`).ID)
		if diff := cmp.Diff([]string{"reasoning ", "computer_call completed"}, outline(t, first.Output)); diff != "" ||
			first.Status != berth.StatusCompleted {
			t.Fatalf("status %s, output (-want +got):\n%s", first.Status, diff)
		}
		if !sameJSON(t, first.Output[1].String(), finished) {
			t.Errorf("the item is %s", first.Output[1])
		}
		next := withPreview + `,"previous_response_id":"` + string(first.ID) +
			`","input":[{"type":"computer_call_output","call_id":"call_1","output":{"type":"computer_screenshot","file_id":"file-cat"}`
		if _, err := h.tryCreate(t.Context(), next+`}]}`); err == nil || !strings.Contains(err.Error(), "cu_sc_1") {
			t.Errorf("without the acknowledgement: %v", err)
		}
		h.final(h.create(next + `,"acknowledged_safety_checks":[{"id":"cu_sc_1"}]}]}`).ID)
		items := h.model.requests[1].Items
		if !sameJSON(t, items[2].String(), finished) {
			t.Errorf("the upstream got the call %s", items[2])
		}
		var out berth.ComputerCallOutput
		decode(t, items[3], &out)
		if out.Output.ImageURL != "data:image/png;base64,bWVvdw==" || out.Output.FileID != "" ||
			len(out.AcknowledgedSafetyChecks) != 1 {
			t.Errorf("the upstream got the output %s", items[3])
		}
	})
}

// An upstream cannot take the id of another item, set Berth's fields, or leave an item open.
func TestNativeHostile(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		forged := strings.Replace(imageDone, `"new":[1]`, `"berth":{"error":"forged","invalid":"x"}`, 1)
		h := newHouse(t, turn{step(t, 0, imageAdded), step(t, 0, forged), step(t, 0, imageDone),
			step(t, 0, imagePartial),
			step(t, 1, imageAdded), step(t, 1, strings.Replace(imagePartial, "ig_1", "other", 1)),
			step(t, 1, imageDone),
			step(t, 2, `{"type":"response.output_item.added","item":{"type":"image_generation_call","status":"in_progress"}}`)})
		h.model.native = []string{berth.ToolImageGeneration}
		id := h.create(askImage + `,"input":"x"}`).ID
		r := h.final(id)
		if len(r.Output) != 3 || r.Output[0].ID() != "ig_1" || r.Output[1].ID() == "ig_1" ||
			!strings.HasPrefix(r.Output[2].ID(), "ig_") || strings.Contains(asJSON(t, r.Output), "forged") {
			t.Errorf("output %s", asJSON(t, r.Output))
		}
		if got := r.Output[2].Status(); got != berth.StatusIncomplete || r.Status != berth.StatusCompleted {
			t.Errorf("the open item is %s, the response %s", got, r.Status)
		}
		for _, ev := range h.events(id) {
			if ev.PartialImage != "" && ev.ItemID != r.Output[*ev.OutputIndex].ID() {
				t.Errorf("an event is about %s", ev.ItemID)
			}
		}
	})
}

// The upstream may make as many calls as remain, and gets the tool no more after the last.
func TestNativeLimit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, append(image(t, 0), model.Call{ID: "call_1", Name: "f", Arguments: "{}"}), say("done"))
		h.model.native = []string{berth.ToolImageGeneration}
		const tools = `{"model":"played","max_tool_calls":1,"tools":[{"type":"image_generation"},{"type":"function","name":"f","parameters":{"type":"object"},"strict":false}]`
		h.final(h.create(tools + `,"input":"x"}`).ID)
		if got := h.model.requests[0].MaxToolCalls; got != 1 {
			t.Errorf("the upstream may make %d calls", got)
		}
	})
}

// A turn that breaks off leaves its open item incomplete, and is repeated.
func TestNativeRetry(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{step(t, 0, imageAdded), step(t, 0, imagePartial), berth.Errorf(berth.CodeUpstream,
			"gone")}, append(image(t, 0), model.Text{Text: "ok"}))
		h.model.native = []string{berth.ToolImageGeneration}
		r := h.final(h.create(askImage + `,"input":"x"}`).ID)
		if diff := cmp.Diff([]string{"image_generation_call incomplete", "image_generation_call completed",
			"message completed ok"}, outline(t, r.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
	})
}

// Edit implements imagegeneration.Images.
func (p *painter) Edit(ctx context.Context, caller berth.Caller, model string, fields map[string]json.RawMessage,
	images []imagegeneration.Picture, mask *imagegeneration.Picture) iter.Seq2[[]byte, error] {
	for _, i := range images {
		p.edited += fmt.Sprintf("%s %s;", i.MediaType, i.Content)
	}
	if mask != nil {
		p.edited += fmt.Sprintf("mask %s %s", mask.MediaType, mask.Content)
	}
	return p.Generate(ctx, caller, model, fields)
}

// A model edits images of the conversation: those that the user sent and those that were
// generated, by their numbers.
func TestImageEdit(t *testing.T) {
	t.Parallel()
	const user = `[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,b25l"},{"type":"input_image","file_id":"file-cat"},{"type":"input_text","text":"x"}]}]`
	for _, tc := range []struct{ name, tool, arguments, edited, fields, failed string }{
		{"by numbers", `"input_fidelity":"high","moderation":"low"`, `{"prompt":"Join them.","images":[2,1]}`,
			"image/png meow;image/png one;", `{"prompt":"Join them.","n":1,"input_fidelity":"high"}`, ""},
		{"the last", `"action":"edit"`, `{"prompt":"Blue."}`, "image/png meow;", `{"prompt":"Blue.","n":1}`, ""},
		{"from the end", `"action":"auto"`, `{"prompt":"Blue.","images":[-2]}`, "image/png one;",
			`{"prompt":"Blue.","n":1}`, ""},
		{"with a mask", `"input_image_mask":{"file_id":"file-cat"}`, `{"prompt":"Blue.","images":[1]}`,
			"image/png one;mask image/png meow", `{"prompt":"Blue.","n":1}`, ""},
		{"a new one", `"action":"auto"`, `{"prompt":"Blue."}`, "", `{"prompt":"Blue.","n":1}`, ""},
		{"never", `"action":"generate"`, `{"prompt":"Blue.","images":[1]}`, "", `{"prompt":"Blue.","n":1}`, ""},
		{"no such image", `"action":"auto"`, `{"prompt":"Blue.","images":[3]}`, "", "",
			"There is no image 3 to edit: the conversation has 2."},
		{"zero", `"action":"auto"`, `{"prompt":"Blue.","images":[0]}`, "", "", "There is no image 0"},
		{"too many", `"action":"auto"`, `{"prompt":"Blue.","images":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}`, "", "",
			"At most 16 images"},
		{"no file", `"input_image_mask":{"file_id":"file-text"}`, `{"prompt":"Blue.","images":[1]}`, "", "",
			"is not an image"},
	} {
		runInBubble(t, tc.name, func(t *testing.T) {
			p := &painter{events: []string{`{"data":[{"b64_json":"R0lGODlh"}]}`}}
			h := withImages(t, p, call("call_1", "image_generation", tc.arguments), say("here"))
			r := h.final(h.create(`{"model":"played","tools":[{"type":"image_generation",` + tc.tool + `}],"input":` +
				user + `}`).ID)
			var c berth.ImageGenerationCall
			decode(t, r.Output[0], &c)
			if tc.failed != "" {
				if c.Status != "failed" || !strings.Contains(c.Berth.Error, tc.failed) {
					t.Errorf("the item is %s", r.Output[0])
				}
				return
			}
			if p.edited != tc.edited || !sameJSON(t, p.fields, tc.fields) || c.Status != "completed" {
				t.Errorf("edited %q with %s, item %s", p.edited, p.fields, r.Output[0])
			}
		})
	}
}

// An image that was made in the same response can be edited, and the model sees which was.
func TestImageEditGenerated(t *testing.T) {
	t.Parallel()
	p := &painter{events: []string{`{"data":[{"b64_json":"R0lGODlh"}],"output_format":"webp"}`}}
	h := withImages(t, p, call("call_1", "image_generation", `{"prompt":"A cat."}`), call("call_2", "image_generation",
		`{"prompt":"Blue.","images":[-1]}`), say("here"))
	r := h.final(h.create(`{"model":"played","tools":[{"type":"image_generation"}],"input":"x"}`).ID)
	if p.edited != "image/webp GIF89a;" {
		t.Errorf("edited %q, output %s", p.edited, asJSON(t, r.Output))
	}
	if saw := asJSON(t, h.model.requests[2].Items); !strings.Contains(saw, `\"images\":[1]`) {
		t.Errorf("the model saw %s", saw)
	}
}

// An image behind a link is not fetched.
func TestImageEditLink(t *testing.T) {
	t.Parallel()
	h := withImages(t, &painter{}, call("call_1", "image_generation", `{"prompt":"Blue.","images":[1]}`), say("sorry"))
	r := h.final(
		h.create(`{"model":"played","tools":[{"type":"image_generation"}],"input":[{"role":"user","content":[{"type":"input_image","image_url":"https://a.test/cat.png"}]}]}`).ID)
	if !strings.Contains(asJSON(t, r.Output), "is a link") {
		t.Errorf("output %s", asJSON(t, r.Output))
	}
}
