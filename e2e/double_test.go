package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/modeltest"
)

// newUpstream starts a server that speaks Chat Completions, and returns the
// environment with which a Berth asks it.
//
// It recites, as the model "scripted" does inside Berth: each fenced block of the
// last user message is a call, "```function" and then its arguments, one turn each;
// then it says what came of the last. "Say only this: " makes it say that. A client
// that lets its user write a prompt can so be brought to call any tool that it has. It also makes the searches that
// Claude Code asks another model for.
func newUpstream(t *testing.T) (double *modeltest.ChatHandler, env []string) {
	double = modeltest.NewChatServer(t, recite)
	double.Models = []string{"reciter", "gpt-5.5"}
	return double, []string{"OPENAI_BASE_URL=" + double.URL, "OPENAI_API_KEY=none"}
}

var fenced = regexp.MustCompile("(?s)```(\\S+)\n(.*?)\n?```")

func recite(n int, h *modeltest.Request) modeltest.Turn {
	var task string
	var outputs []string
	for _, m := range h.Messages {
		switch m.Role {
		case "user":
			task, outputs = m.Text, nil
		case "tool":
			outputs = append(outputs, m.Text)
		}
	}
	finish := model.Finish{Reason: model.FinishStop,
		Usage: berth.Usage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7}}
	blocks := fenced.FindAllStringSubmatch(task, -1)
	if query, ok := strings.CutPrefix(task, "Perform a web search for the query: "); ok {
		arguments, _ := json.Marshal(map[string]any{"type": "search", "queries": []string{query}}) // texts always marshal
		blocks = [][]string{{"", "web_search", string(arguments)}}
	}
	if done := len(outputs); done < len(blocks) {
		name, arguments := blocks[done][1], blocks[done][2]
		half := len(arguments) / 2
		return modeltest.Reply(model.Call{ID: fmt.Sprintf("call_%024d", n), Name: name, Arguments: arguments[:half]},
			model.Call{Arguments: arguments[half:]}, finish)
	}
	if _, only, ok := strings.Cut(task, "Say only this: "); ok { // Claude Code puts reminders before it
		return modeltest.Reply(model.Text{Text: only}, finish)
	}
	if len(blocks) == 0 {
		return modeltest.Reply(model.Text{Text: "You said: "}, model.Text{Text: task}, finish)
	}
	return modeltest.Reply(model.Text{Text: "It came to this: "}, model.Text{Text: outputs[len(outputs)-1]}, finish)
}
