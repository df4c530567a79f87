package e2e

import (
	"io"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/responses"
)

// TestMessages runs code with Anthropic's client, streamed or not, and continues in the same container with a
// message and with a response.
func TestMessages(t *testing.T) {
	s := newServer(t)
	c := anthropic.NewClient(option.WithBaseURL(s.url), option.WithAPIKey("none"))
	task := func(text, container string) anthropic.BetaMessageNewParams {
		p := anthropic.BetaMessageNewParams{Model: "scripted", MaxTokens: 1000,
			Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock(text))},
			Tools: []anthropic.BetaToolUnionParam{{
				OfCodeExecutionTool20250825: &anthropic.BetaCodeExecutionTool20250825Param{}}}}
		if container != "" {
			p.Container.OfString = anthropic.String(container)
		}
		return p
	}
	printed := func(m *anthropic.BetaMessage) (all []string) {
		for _, b := range m.Content {
			if b.Type == "bash_code_execution_tool_result" {
				r := b.AsBashCodeExecutionToolResult().Content
				all = append(all, strings.TrimSpace(r.Stdout+r.Stderr))
			}
		}
		return all
	}
	one, err := c.Beta.Messages.New(t.Context(), task(fence("echo 41 > n; export STEP=1", "echo $STEP; cat n"), ""))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"", "1\n41"}, printed(one)); diff != "" {
		t.Errorf("first message (-want +got):\n%s", diff)
	}
	if one.Container.ID == "" || one.Container.ExpiresAt.IsZero() || one.StopReason != "end_turn" {
		t.Fatalf("the message ends with %s in container %s", one.StopReason, one.Container.RawJSON())
	}
	stream := c.Beta.Messages.NewStreaming(t.Context(), task(fence("echo $(($(cat n) + 1)) >m; mv m n; cat n"), one.Container.ID))
	var two anthropic.BetaMessage
	for stream.Next() {
		if err := two.Accumulate(stream.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"42"}, printed(&two)); diff != "" || two.Container.ID != one.Container.ID {
		t.Errorf("second message, in %s (-want +got):\n%s", two.Container.ID, diff)
	}
	next := shellTask(fence("cat n"))
	next.Tools = []responses.ToolUnionParam{{OfShell: &responses.FunctionShellToolParam{
		Environment: responses.FunctionShellToolEnvironmentUnionParam{
			OfContainerReference: &responses.ContainerReferenceParam{ContainerID: one.Container.ID}}}}}
	three, err := s.client().Responses.New(t.Context(), next)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"42\n"}, stdouts(three)); diff != "" {
		t.Errorf("response in the same container (-want +got):\n%s", diff)
	}
}

// TestMessagesComputer runs the script of a skill that Anthropic's client has stored, in its newest version and a
// pinned one, and edits files of the same sandbox with the text editor.
func TestMessagesComputer(t *testing.T) {
	s := newServer(t)
	c := anthropic.NewClient(option.WithBaseURL(s.url), option.WithAPIKey("none"))
	files := func(word string) []io.Reader {
		return []io.Reader{anthropic.File(strings.NewReader(skillText), "tides/SKILL.md", "text/markdown"),
			anthropic.File(strings.NewReader("#!/bin/sh\necho "+word+" at $1\n"), "tides/scripts/tide.sh", "text/x-sh")}
	}
	skill, err := c.Beta.Skills.New(t.Context(), anthropic.BetaSkillNewParams{Files: files("low")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Beta.Skills.Versions.New(t.Context(), skill.ID,
		anthropic.BetaSkillVersionNewParams{Files: files("high")}); err != nil {
		t.Fatal(err)
	}
	ask := func(text string, container anthropic.BetaMessageNewParamsContainerUnion) *anthropic.BetaMessage {
		t.Helper()
		m, err := c.Beta.Messages.New(t.Context(), anthropic.BetaMessageNewParams{Model: "scripted", MaxTokens: 1000,
			Container: container,
			Messages:  []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock(text))},
			Tools: []anthropic.BetaToolUnionParam{{
				OfCodeExecutionTool20250825: &anthropic.BetaCodeExecutionTool20250825Param{}}}})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	var last *anthropic.BetaMessage
	for version, want := range map[string]string{"latest": "high at six", skill.LatestVersionID: "low at six"} {
		last = ask(fence("cd /home/oai/skills/tides-* && sh scripts/tide.sh six"),
			anthropic.BetaMessageNewParamsContainerUnion{OfContainers: &anthropic.BetaContainerParams{
				Skills: []anthropic.BetaSkillParams{{Type: "custom", SkillID: skill.ID,
					Version: anthropic.String(version)}}}})
		if raw := last.RawJSON(); !strings.Contains(raw, want) {
			t.Errorf("version %s: got %s, want %q", version, raw, want)
		}
	}

	edit := func(arguments string) string { return "```json text_editor_code_execution\n" + arguments + "\n```\n" }
	m := ask(edit(`{"command":"create","path":"/mnt/data/tide.txt","file_text":"low\nhigh\n"}`)+
		edit(`{"command":"str_replace","path":"/mnt/data/tide.txt","old_str":"low","new_str":"ebb"}`)+
		edit(`{"command":"view","path":"/mnt/data/tide.txt"}`)+
		edit(`{"command":"view","path":"/mnt/data/none"}`)+fence("cd /mnt/data; cat tide.txt; echo slack >>tide.txt; stat -c %U tide.txt"),
		anthropic.BetaMessageNewParamsContainerUnion{OfString: anthropic.String(last.Container.ID)})
	raw := m.RawJSON()
	for _, want := range []string{`"text_editor_code_execution_create_result"`, `"lines":["-low","+ebb"]`,
		`"content":"ebb\nhigh\n"`, `"error_code":"file_not_found"`, `"stdout":"ebb\nhigh\nuser\n"`} {
		if !strings.Contains(raw, want) {
			t.Errorf("the text editor: got %s, want %s", raw, want)
		}
	}
}
