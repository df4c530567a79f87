package openai

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// NativeTools are the types of hosted tools that an upstream may run itself.
var NativeTools = []string{berth.ToolImageGeneration, berth.ToolComputer, berth.ToolComputerPreview}

// nativeCalls are the types of the items of their calls.
var nativeCalls = map[string]berth.ItemType{
	berth.ToolImageGeneration: berth.ItemImageGenerationCall,
	berth.ToolComputer:        berth.ItemComputerCall,
	berth.ToolComputerPreview: berth.ItemComputerCall,
}

// HasTool implements model.ToolOwner.
func (p *Provider) HasTool(name, toolType string) bool {
	if p.opts.NativeTools != nil {
		return slices.Contains(p.opts.NativeTools, toolType)
	}
	return p.own && offers(name, toolType)
}

// generation matches the names of OpenAI's GPT models, with their version.
var generation = regexp.MustCompile(`^gpt-(\d+)(?:\.(\d+))?(o?)(?:-|$)`)

// special matches names of models that have no hosted tools for images and computers.
var special = regexp.MustCompile(`-(?:audio|realtime|search|transcribe|tts|codex|oss|chat-latest)`)

// offers reports whether one of OpenAI's own models has a tool, by its documentation.
func offers(name, toolType string) bool {
	if toolType == berth.ToolComputerPreview {
		return strings.HasPrefix(name, "computer-use-preview")
	}
	major, minor := 0, 0
	m := generation.FindStringSubmatch(name)
	if m != nil {
		major, _ = strconv.Atoi(m[1]) // digits; too many are no version
		minor, _ = strconv.Atoi(m[2])
	}
	if special.MatchString(name) {
		return false
	}
	switch toolType {
	case berth.ToolComputer:
		return major > 5 || major == 5 && minor >= 4
	case berth.ToolImageGeneration:
		return major >= 5 || major == 4 && (minor >= 1 || m[3] == "o") || name == "o3" || strings.HasPrefix(name,
			"o3-20")
	}
	return false
}

// native adds the call of a tool that the upstream has itself, or its output. It removes
// Berth's extensions, and outputs whose call is missing.
func (w *writer) native(it berth.Item) error {
	change := map[string]any{"berth": nil}
	prefix := berth.PrefixImageGeneration
	switch it.Type() {
	case berth.ItemComputerCallOutput:
		id := w.computers[it.CallID()]
		if id == "" {
			w.p.up.Log.Debug("dropped computer output without call", "call_id", it.CallID())
			return nil
		}
		change["call_id"], change["id"] = id, nil
		return w.write(it, change)
	case berth.ItemComputerCall:
		id := w.ids.For(it.CallID())
		w.computers[it.CallID()] = id
		change["call_id"], prefix = id, berth.PrefixComputerCall
	}
	if !strings.HasPrefix(it.ID(), prefix) {
		change["id"] = prefix + it.ID()
	}
	return w.write(it, change)
}

// nativeTypes returns the types of the items that the upstream makes with its own tools.
func nativeTypes(tools []berth.FunctionTool) map[berth.ItemType]bool {
	var types map[berth.ItemType]bool
	for _, t := range tools {
		if t.Native == nil {
			continue
		}
		if types == nil {
			types = map[berth.ItemType]bool{}
		}
		types[nativeCalls[t.Native.Type()]] = true
	}
	return types
}

// nativeItem appends the start or the end of an item of the upstream's own tools.
func (a *answer) nativeItem(ev *event, it berth.Item, out []model.Delta) ([]model.Delta, error) {
	item := a.open[ev.OutputIndex]
	if ev.Type == eventItemDone {
		delete(a.open, ev.OutputIndex)
	}
	if item == nil {
		return out, fmt.Errorf("%s: there is no item at %d", ev.Type, ev.OutputIndex)
	}
	if it.Type() == berth.ItemComputerCall {
		if ev.Type == eventItemAdded {
			item.callID = a.ids.For(it.CallID())
		}
		if it.CallID() != item.callID {
			var err error
			if it, err = it.With(map[string]any{"call_id": item.callID}); err != nil {
				return out, fmt.Errorf("%s: %w", ev.Type, err)
			}
		}
	}
	return append(out, model.Native{Index: ev.OutputIndex,
		Event: berth.Event{Type: berth.EventType(ev.Type), Item: &it}}), nil
}

// nativeEvent appends an event about an open item of the upstream's own tools. It leaves
// out events that are not the tool's.
func (a *answer) nativeEvent(ev *event, data []byte, item *openItem, out []model.Delta) ([]model.Delta, error) {
	if !strings.HasPrefix(ev.Type, "response."+string(item.native)+".") {
		return out, nil
	}
	var full berth.Event
	if err := json.Unmarshal(data, &full); err != nil {
		return out, fmt.Errorf("%s: %w", ev.Type, err)
	}
	full.SequenceNumber, full.OutputIndex = 0, nil
	return append(out, model.Native{Index: ev.OutputIndex, Event: full}), nil
}
