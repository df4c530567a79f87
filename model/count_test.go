package model_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

func message(role, text string) berth.Item {
	return berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: role,
		Content: []berth.Content{{Type: "input_text", Text: text}}})
}

// Token counts of text equal those of OpenAI's tokenizer for o200k_base.
func TestEstimateText(t *testing.T) {
	for text, want := range map[string]int{
		"":                             0,
		"hello world":                  2,
		"tiktoken is great!":           6,
		"お誕生日おめでとう":                    8,
		"antidisestablishmentarianism": 6,
		"2 + 2 = 4":                    7,
	} {
		if got := model.EstimateItem(message("user", text)) - model.EstimateItem(message("user", "")); got != want {
			t.Errorf("%q: got %d tokens, want %d", text, got, want)
		}
	}
}

func TestEstimateRequest(t *testing.T) {
	bare := model.Estimate(&model.Request{})
	image := func(detail string) berth.Item {
		return berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: "user",
			Content: []berth.Content{{Type: "input_image", ImageURL: "data:image/png;base64,AA", Detail: detail}}})
	}
	file := func(kind, data string) berth.Item {
		return berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: "user",
			Content: []berth.Content{{Type: "input_file",
				FileData: "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString([]byte(data))}}})
	}
	for name, c := range map[string]struct {
		req  model.Request
		want int // in addition to the empty request
	}{
		"instructions": {model.Request{Instructions: "hello world"}, 3 + 2},
		"message":      {model.Request{Items: []berth.Item{message("user", "hello world")}}, 3 + 2},
		"tool": {model.Request{Tools: []berth.FunctionTool{{Name: "hello", Description: "hello world"}}},
			8 + 1 + 2},
		"schema": {model.Request{Text: berth.TextConfig{Format: json.RawMessage(
			`{"type":"json_schema","schema":{}}`)}}, 1},
		"image":      {model.Request{Items: []berth.Item{image("auto")}}, 3 + 765},
		"glance":     {model.Request{Items: []berth.Item{image("low")}}, 3 + 85},
		"text file":  {model.Request{Items: []berth.Item{file("text/plain; charset=utf-8", "hello world")}}, 3 + 2},
		"other file": {model.Request{Items: []berth.Item{file("application/pdf", strings.Repeat("x", 3000))}}, 3 + 60},
		"call": {model.Request{Items: []berth.Item{berth.NewItem(
			berth.FunctionCall{Type: berth.ItemFunctionCall, Name: "hello", Arguments: "{}"})}}, 6 + 1 + 1},
		"output": {model.Request{Items: []berth.Item{berth.NewItem(
			berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput,
				Output: json.RawMessage(`"hello world"`)})}}, 3 + 2},
		"parts": {model.Request{Items: []berth.Item{berth.NewItem(
			berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput,
				Output: json.RawMessage(
					`[{"type":"input_text","text":"hello world"},{"type":"input_image","image_url":"data:,"}]`)})}},
			3 + 2 + 765},
		"reasoning": {model.Request{Items: []berth.Item{berth.NewItem(berth.Reasoning{Type: berth.ItemReasoning,
			Content: []berth.Content{{Type: "reasoning_text", Text: "hello world"}}})}}, 2},
	} {
		if got := model.Estimate(&c.req) - bare; got != c.want {
			t.Errorf("%s: got %d tokens, want %d", name, got, c.want)
		}
	}
}

// Text beyond maxExact is extrapolated from the text before it.
func TestEstimateLong(t *testing.T) {
	const sentence = "The quick brown fox jumps over the lazy dog. "
	one := model.EstimateItem(message("user", strings.Repeat(sentence, 1000)))
	for _, times := range []int{10, 1000} {
		got := model.EstimateItem(message("user", strings.Repeat(sentence, 1000*times)))
		if want := one * times; got < want*99/100 || got > want*101/100 {
			t.Errorf("%d times as long: got %d tokens, want about %d", times, got, want)
		}
	}
}

func BenchmarkEstimate(b *testing.B) {
	req := &model.Request{Items: []berth.Item{message("user",
		strings.Repeat("The quick brown fox jumps over the lazy dog. ", 10_000))}}
	b.SetBytes(450_000)
	for b.Loop() {
		model.Estimate(req)
	}
}
