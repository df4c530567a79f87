package api_test

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/model"
)

// chained creates a chain of two responses with a container and a file. It returns the last
// response.
func (h *house) chained(model string) object {
	h.t.Helper()
	form, kind := upload("note.txt", strings.NewReader("a note"), "purpose", "user_data")
	file := h.call(200, "POST", "/v1/files", form, kind).id()
	first := h.call(200, "POST", "/v1/responses", `{"model":"`+model+`","input":[{"role":"user","content":[{"type":"input_text","text":"begin"},{"type":"input_file","file_id":"`+file+`"}]}],
		"tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`)
	return h.call(200, "POST", "/v1/responses",
		`{"model":"`+model+`","input":"go on","previous_response_id":"`+first.id()+`","tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`)
}

func shellTurn(command string) []any {
	return []any{model.Call{ID: "call_1", Name: "shell", Arguments: `{"commands":["` + command + `"]}`},
		model.Finish{Reason: model.FinishStop}}
}

func textTurn(text string) []any {
	return []any{model.Text{Text: text}, model.Finish{Reason: model.FinishStop}}
}

func (h *house) export(id, query string) []byte {
	h.t.Helper()
	resp := h.send(h.t.Context(), "GET", "/v1/responses/"+id+"/bundle"+query, nil)
	bundle, err := io.ReadAll(resp.Body)
	check(h.t, err)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/x-tar" {
		h.t.Fatalf("got %s %.300s", resp.Status, bundle)
	}
	return bundle
}

// A chain can be moved to another server with its files and its container, and continued
// there.
func TestBundle(t *testing.T) {
	t.Parallel()
	here := newHouse(t, nil, model.Rule{Match: "played",
		Provider: &playedModel{turns: [][]any{shellTurn("echo one > made"), textTurn("well"),
			shellTurn("echo two >> made"), textTurn("done")}}})
	last := here.chained("played")
	bundle := here.export(last.id(), "")

	played := &playedModel{turns: [][]any{shellTurn("cat made"), textTurn("it is there")}}
	there := newHouse(t, nil, model.Rule{Match: "played", Provider: played})
	done := there.call(200, "POST", "/v1/bundles", bytes.NewReader(bundle), "application/x-tar")
	if done.at("responses") != 2.0 || done.at("files") != 1.0 || done.at("response_id") == last.id() ||
		done.at("container_id") == nil {
		t.Errorf("got %v", done)
	}
	id := done.at("response_id").(string)
	copied := there.call(200, "GET", "/v1/responses/"+id, nil)
	if copied.at("status") != "completed" || itemTypesOf(copied) != itemTypesOf(last) ||
		copied.at("previous_response_id") == nil || copied.at("output", 2, "content", 0, "text") != "done" {
		t.Errorf("got %v", copied)
	}
	if events := there.rest(there.stream(t.Context(), "GET", "/v1/responses/"+id+"?stream=true",
		nil)); len(events) == 0 || events[len(events)-1].Type != "response.completed" {
		t.Errorf("got %d events", len(events))
	}
	next := there.call(200, "POST", "/v1/responses",
		`{"model":"played","input":"look","previous_response_id":"`+id+`","tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`)
	if got := next.at("output", 1, "output", 0, "stdout"); got != "one\ntwo\n" {
		t.Errorf("the container there has %q", got)
	}
	if got := len(played.asked[0].Items); got != 9 {
		t.Errorf("the model there saw %d items of the chain", got)
	}
	// A second import gets new identifiers.
	twice := there.call(200, "POST", "/v1/bundles", bytes.NewReader(bundle), "application/x-tar")
	if twice.at("response_id") == id {
		t.Error("a second import replaced the first")
	}
	without := here.call(200, "POST", "/v1/bundles", bytes.NewReader(here.export(last.id(), "?container=false")),
		"application/x-tar")
	if without.at("container_id") != nil || without.at("responses") != 2.0 {
		t.Errorf("got %v", without)
	}
	here.call(404, "GET", "/v1/responses/resp_none/bundle", nil)
}

// A damaged bundle is refused and creates no objects.
func TestBundleBroken(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil, model.Rule{Match: "played",
		Provider: &playedModel{turns: [][]any{shellTurn("echo one > made"), textTurn("well"), textTurn("done")}}})
	bundle := h.export(h.chained("played").id(), "")
	edited := func(edit func(name string, body []byte) (string, []byte)) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for in := tar.NewReader(bytes.NewReader(bundle)); ; {
			head, err := in.Next()
			if err == io.EOF {
				check(t, w.Close())
				return out.Bytes()
			}
			check(t, err)
			body, err := io.ReadAll(in)
			check(t, err)
			name, body := edit(head.Name, body)
			if name == "" {
				continue
			}
			check(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(body))}))
			_, err = w.Write(body)
			check(t, err)
		}
	}
	flip := func(prefix string) []byte {
		return edited(func(name string, body []byte) (string, []byte) {
			if strings.HasPrefix(name, prefix) {
				body[len(body)/2] ^= 1
			}
			return name, body
		})
	}
	before := h.call(200, "GET", "/v1/snapshots", nil)
	files := h.call(200, "GET", "/v1/files", nil)
	for name, broken := range map[string][]byte{
		"nothing": nil, "no tar": []byte("hello"), "cut": bundle[:len(bundle)/2],
		"a response changed": flip("responses/"), "a file changed": flip("files/"),
		"the layer changed": flip("container/"), "the manifest changed": edited(func(name string, body []byte) (string,
			[]byte) {
			return name, bytes.Replace(body, []byte("berth.session/1"), []byte("berth.session/9"), 1)
		}),
		"a file left out": edited(func(name string, body []byte) (string, []byte) {
			if strings.HasPrefix(name, "files/") {
				return "", nil
			}
			return name, body
		}),
		"a path": edited(func(name string, body []byte) (string, []byte) {
			return strings.Replace(name, "files/", "../", 1), body
		}),
	} {
		t.Run(name, func(t *testing.T) {
			h.call(400, "POST", "/v1/bundles", bytes.NewReader(broken), "application/x-tar")
		})
	}
	if diff := cmp.Diff(before, h.call(200, "GET", "/v1/snapshots", nil)); diff != "" {
		t.Errorf("snapshots were left (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(files, h.call(200, "GET", "/v1/files", nil)); diff != "" {
		t.Errorf("files were left (-before +after):\n%s", diff)
	}
}

// A replay reports where it differs from the record. A replay with another model shows both.
func TestReplay(t *testing.T) {
	t.Parallel()
	played := &playedModel{turns: [][]any{shellTurn("echo same | tee made"), textTurn("well"),
		shellTurn("cat made; echo $RANDOM$RANDOM$RANDOM"), textTurn("done")}}
	other := &playedModel{turns: [][]any{textTurn("I would not."), textTurn("Nor now.")}}
	h := newHouse(t, nil, model.Rule{Match: "played", Provider: played}, model.Rule{Match: "other", Provider: other})
	last := h.chained("played")
	asked := len(played.asked)
	first := last.at("previous_response_id").(string)
	same := h.call(200, "POST", "/v1/responses/"+first+"/replay", `{}`)
	if same.at("divergence") != nil || len(same["responses"].([]any)) != 1 ||
		len(same.at("responses", 0, "replayed").([]any)) != 3 {
		t.Errorf("got %v", same)
	}
	random := h.call(200, "POST", "/v1/responses/"+last.id()+"/replay", `{}`)
	if random.at("divergence", "response_id") != last.id() || random.at("divergence", "item") != 1.0 ||
		!strings.HasPrefix(random.at("divergence", "replayed").(string), "shell_call_output: exit 0\nstdout: same\n") {
		t.Errorf("got %v", random.at("divergence"))
	}
	if len(played.asked) != asked {
		t.Error("the model was called")
	}
	beside := h.call(200, "POST", "/v1/responses/"+last.id()+"/replay", `{"model":"other"}`)
	if beside.at("responses", 1, "replayed", 0) != "message: Nor now." || beside.at("divergence",
		"recorded") != "shell_call: echo same | tee made" {
		t.Errorf("got %v", beside)
	}
	h.call(404, "POST", "/v1/responses/resp_none/replay", `{}`)
	h.call(404, "POST", "/v1/responses/"+first+"/replay", `{"model":"missing"}`)
	if all := h.call(200, "GET", "/v1/containers", nil); len(all["data"].([]any)) != 1 {
		t.Errorf("containers of replays are left: %v", all)
	}
}
