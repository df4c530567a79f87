package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// call writes the line that begins a call of a tool.
func (p *progress) call(format string, args ...any) {
	p.line("%s %s", p.paint("36", fmt.Sprintf("[%d] %5.1fs", p.turn, time.Since(p.started).Seconds())),
		fmt.Sprintf(format, args...))
}

// code shows the code of a call of the code interpreter, which runs next.
func (p *progress) code(code string) {
	p.turn++
	if code = strings.TrimSpace(code); p.fold > 0 || !strings.Contains(code, "\n") {
		p.call("> %s", firstLine(code))
		return
	}
	p.call(">")
	p.block(code)
}

// tool shows a completed call of a tool other than the shell.
func (p *progress) tool(it *berth.Item) {
	switch it.Type() {
	case berth.ItemCodeInterpreterCall:
		var c berth.CodeInterpreterCall
		if it.Decode(&c) == nil {
			p.container = c.ContainerID
			p.codeOutputs(&c)
		}
	case berth.ItemFileSearchCall:
		var c berth.FileSearchCall
		if it.Decode(&c) == nil {
			p.turn++
			p.call("search the files: %s", quoted(c.Queries))
			switch results := fileSearchResults(&c); {
			case c.Berth != nil && c.Berth.Error != "":
				p.failure(c.Berth.Error)
			default:
				p.line("    passages: %d", results)
			}
		}
	case berth.ItemWebSearchCall:
		var c berth.WebSearchCall
		if it.Decode(&c) == nil && c.Action != nil {
			p.turn++
			p.call("%s", webAction(c.Action))
		}
	case berth.ItemMCPCall:
		var c berth.MCPCall
		if it.Decode(&c) == nil {
			p.turn++
			p.call("%s.%s %s", inLine(c.ServerLabel), inLine(c.Name), firstLine(c.Arguments))
			if c.Output != nil {
				p.block(*c.Output)
			}
			if c.Error != nil {
				p.failure(mcpFailure(c.Error))
			}
		}
	case berth.ItemImageGenerationCall:
		var c berth.ImageGenerationCall
		if it.Decode(&c) == nil {
			p.turn++
			p.call("draw an image: %s", inLine(c.Status))
		}
	case berth.ItemComputerCall:
		var c berth.ComputerCall
		if it.Decode(&c) == nil {
			p.turn++
			p.call("use the computer: %s", computerActions(&c))
		}
	}
}

// codeOutputs shows what code printed and drew, and how it ended.
func (p *progress) codeOutputs(c *berth.CodeInterpreterCall) {
	images := 0
	for _, out := range c.Outputs {
		if out.Type == "image" {
			images++
			continue
		}
		p.block(out.Logs)
	}
	if images > 0 {
		p.line("    images: %d", images)
	}
	if c.Berth == nil {
		return
	}
	if c.Berth.Outcome != "" {
		p.failure(c.Berth.Outcome)
	}
	p.changes(c.Berth.Files, c.Berth.MoreFiles)
}

// block shows a text of several lines as the output of a command is shown.
func (p *progress) block(text string) {
	if text == "" {
		return
	}
	p.end()
	p.text(strings.TrimRight(text, "\n") + "\n")
	p.unfold()
}

func (p *progress) failure(text string) { p.line("    %s", p.paint("31", firstLine(text))) }

// fileSearchResults returns the number of passages that a search found.
func fileSearchResults(c *berth.FileSearchCall) int {
	if c.Results == nil && c.Berth != nil {
		return len(c.Berth.Results)
	}
	return len(c.Results)
}

func webAction(a *berth.WebSearchAction) string {
	switch {
	case a.Pattern != "":
		return fmt.Sprintf("find %q in %s", a.Pattern, inLine(a.URL))
	case a.URL != "":
		return "open " + inLine(a.URL)
	case len(a.Queries) > 0:
		return "search the web: " + quoted(a.Queries)
	}
	return "search the web: " + quoted([]string{a.Query})
}

func mcpFailure(e *berth.MCPError) string {
	if e.Message == "" {
		return string(e.Content)
	}
	return e.Message
}

func computerActions(c *berth.ComputerCall) string {
	actions := c.Actions
	if c.Action != nil {
		actions = []berth.ComputerAction{*c.Action}
	}
	var names []string
	for _, a := range actions {
		names = append(names, inLine(a.Type))
	}
	return strings.Join(names, ", ")
}

// quoted joins texts in quotes, without control characters.
func quoted(texts []string) string {
	var all []string
	for _, text := range texts {
		all = append(all, fmt.Sprintf("%q", inLine(text)))
	}
	return strings.Join(all, ", ")
}

// citations shows what the messages of a response cite, each once.
func (p *progress) citations(r *berth.Response) {
	shown := map[string]bool{}
	for _, it := range r.Output {
		var m berth.Message
		if it.Type() != berth.ItemMessage || it.Decode(&m) != nil {
			continue
		}
		for _, part := range m.Content {
			for _, raw := range part.Annotations {
				if line := citation(raw); line != "" && !shown[line] {
					shown[line] = true
					p.line("  cites %s", line)
				}
			}
		}
	}
}

// citation names what an annotation cites, or returns "".
func citation(raw json.RawMessage) string {
	var a struct {
		FileID   string `json:"file_id"`
		Filename string `json:"filename"`
		URL      string `json:"url"`
		Title    string `json:"title"`
	}
	if json.Unmarshal(raw, &a) != nil {
		return ""
	}
	switch {
	case a.URL != "" && a.Title != "":
		return inLine(a.Title) + "  " + inLine(a.URL)
	case a.URL != "":
		return inLine(a.URL)
	case a.Filename != "":
		return inLine(a.Filename) + "  " + inLine(a.FileID)
	}
	return ""
}
