package api_test

import (
	"encoding/json"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth/api/contract"
)

// An sdkProbe is an operation whose request the newest SDK describes.
type sdkProbe struct {
	path   string
	base   map[string]any
	params reflect.Type
}

var sdkProbes = []sdkProbe{
	{"/responses", map[string]any{"model": "scripted", "input": "hello"},
		reflect.TypeFor[responses.ResponseNewParams]()},
	{"/responses/compact", map[string]any{"model": "scripted", "input": "hello"},
		reflect.TypeFor[responses.ResponseCompactParams]()},
	{"/responses/input_tokens", map[string]any{"model": "scripted", "input": "hello"},
		reflect.TypeFor[responses.InputTokenCountParams]()},
	{"/chat/completions",
		map[string]any{"model": "scripted", "messages": []any{map[string]any{"role": "user", "content": "hello"}}},
		reflect.TypeFor[openai.ChatCompletionNewParams]()},
	{"/conversations", map[string]any{}, reflect.TypeFor[conversations.ConversationNewParams]()},
	{"/containers", map[string]any{"name": "x"}, reflect.TypeFor[openai.ContainerNewParams]()},
}

// Every field that the newest SDK can send, sent as null, and every type of an item, a tool
// or a part is known to the server. The document of package contract is older than the SDK.
func TestSDKFields(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	for _, p := range sdkProbes {
		unknown := map[string]bool{}
		refusal := func(body any) (e sdkRefusal) {
			raw, err := json.Marshal(body)
			check(t, err)
			resp := h.send(t.Context(), "POST", contract.Prefix+p.path, string(raw))
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			check(t, err)
			if resp.StatusCode < 300 || json.Unmarshal(answer, &e) != nil {
				return sdkRefusal{}
			}
			return e
		}
		w := sdkWalker{visit: func(at string, body any) {
			e := refusal(body)
			for _, whole := range wholeItems(body) {
				if e.Error.Code == "unknown_parameter" {
					e = refusal(whole)
				}
			}
			if strings.Contains(at, "[].tools[].environment") {
				return // a container is settled with the request's own tools only
			}
			badType := e.Error.Code == "invalid_value" && strings.HasSuffix(e.Error.Param, "type") &&
				strings.Contains(e.Error.Message, "Supported values")
			if e.Error.Code == "unknown_parameter" || badType {
				unknown[at+": "+e.Error.Message] = true
			}
		}}
		w.walk(p.params, "", func(v any) any {
			body := maps.Clone(p.base)
			for name, value := range v.(map[string]any) {
				body[name] = value
			}
			return body
		})
		for _, what := range slices.Sorted(maps.Keys(unknown)) {
			t.Errorf("POST %s: the SDK sends %s", p.path, what)
		}
		if w.visited == 0 {
			t.Errorf("POST %s: no field visited", p.path)
		}
	}
}

// sdkRefusal is the error of an answer.
type sdkRefusal struct {
	Error struct{ Code, Param, Message string }
}

// wholeItems returns bodies in which an item has what makes it a message or a call of a computer: the SDK's types of
// these have no default for it, and which fields an item may have depends on it.
func wholeItems(body any) (whole []any) {
	for _, list := range []string{"input", "items"} {
		items, ok := body.(map[string]any)[list].([]any)
		if !ok || len(items) != 1 {
			continue
		}
		item, ok := items[0].(map[string]any)
		if !ok || item["type"] != nil {
			continue
		}
		for name, value := range map[string]string{"role": "user", "type": "computer_call"} {
			copied, other := maps.Clone(body.(map[string]any)), maps.Clone(item)
			other[name] = value
			copied[list] = []any{other}
			whole = append(whole, copied)
		}
	}
	return whole
}

// The contract has every event and output item of the newest SDK.
func TestSDKEvents(t *testing.T) {
	t.Parallel()
	op := contract.Load().Find("POST", "/responses")
	var missing []string
	for _, method := range variants(reflect.TypeFor[responses.ResponseStreamEventUnion]()) {
		for _, kind := range constants(method) {
			if strings.HasPrefix(kind, "response.audio") { // of another API
				continue
			}
			if err := op.Event("", []byte(`{"type":"`+kind+`"}`)); err != nil && strings.Contains(err.Error(),
				"value must be") {
				missing = append(missing, kind)
			}
		}
	}
	if len(missing) > 0 {
		t.Errorf("the contract lacks events %q", missing)
	}
}

// variants returns the types that the As methods of a union return.
func variants(union reflect.Type) (all []reflect.Type) {
	for i := range union.NumMethod() {
		if m := union.Method(i); strings.HasPrefix(m.Name, "AsResponse") && m.Type.NumOut() == 1 {
			all = append(all, m.Type.Out(0))
		}
	}
	return all
}

// constants returns the values that the field Type of a struct may have.
func constants(t reflect.Type) []string {
	f, ok := t.FieldByName("Type")
	if !ok || f.Tag.Get("default") == "" {
		return nil
	}
	return []string{f.Tag.Get("default")}
}

// An sdkWalker visits the fields of the SDK's types of requests.
type sdkWalker struct {
	visit   func(at string, body any)
	within  []reflect.Type // against types that hold themselves
	visited int
}

// walk visits what a type can hold; wrap puts a value of it into a body.
func (w *sdkWalker) walk(t reflect.Type, at string, wrap func(any) any) {
	switch t.Kind() {
	case reflect.Pointer:
		w.walk(t.Elem(), at, wrap)
	case reflect.Slice:
		w.walk(t.Elem(), at+"[]", func(v any) any { return wrap([]any{v}) })
	case reflect.Struct:
		if slices.Contains(w.within, t) || len(w.within) > 12 || strings.HasPrefix(t.Name(), "Opt[") {
			return
		}
		w.within = append(w.within, t)
		defer func() { w.within = w.within[:len(w.within)-1] }()
		w.fields(t, at, wrap)
	}
}

func (w *sdkWalker) fields(t reflect.Type, at string, wrap func(any) any) {
	fixed := map[string]any{}
	for _, f := range reflect.VisibleFields(t) {
		if value := f.Tag.Get("default"); value != "" && len(f.Index) == 1 {
			fixed[jsonName(f)] = value
		}
	}
	for _, f := range reflect.VisibleFields(t) {
		if len(f.Index) > 1 || !f.IsExported() || f.Anonymous {
			continue
		}
		name := jsonName(f)
		if name == "" { // an alternative of a union
			w.walk(f.Type, at, wrap)
			continue
		}
		inside := func(v any) any {
			obj := maps.Clone(fixed)
			obj[name] = v
			return wrap(obj)
		}
		if fixed[name] == nil {
			w.visited++
			w.visit(at+"."+name, inside(empty(f.Type)))
		} else {
			w.visited++
			w.visit(at+"."+name, wrap(maps.Clone(fixed)))
		}
		w.walk(f.Type, at+"."+name, inside)
	}
}

// empty returns the value that an SDK shows for a field that is left out. Of a list the SDK
// sends no null.
func empty(t reflect.Type) any {
	if t.Kind() == reflect.Slice {
		return []any{}
	}
	return nil
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" {
		return ""
	}
	return name
}
