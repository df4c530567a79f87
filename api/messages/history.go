package messages

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// A history converts messages to items. Calls of the client's tools must be followed by their results.
type history struct {
	items   []berth.Item
	places  []string          // of the items
	files   map[string]string // the places of the blocks with uploaded files, by id
	uploads []berth.FileID
	waiting []string // ids of calls without a result yet
	at      string   // the place of the current block
	// calls of server tools without a result yet
	served []contentBlock
	// functions that a search finds, by name
	functions  map[string]berth.Tool
	referenced map[string]bool   // tools to which results of the client's search refer
	programs   map[string]string // by the id of its block, the call_id of a program
	open       []berth.Content   // of the message that the current blocks form
	role       string            // of this message
}

func (h *history) read(turns []turn) error {
	for i, m := range turns {
		h.at = fmt.Sprintf("messages[%d]", i)
		role := m.Role
		if role == "system" {
			role = "developer"
		}
		if err := h.checkWaiting(m); err != nil {
			return err
		}
		h.role = role
		for j := range m.Content {
			h.at = fmt.Sprintf("messages[%d].content[%d]", i, j)
			if err := h.block(&m.Content[j]); err != nil {
				return err
			}
		}
		h.close()
		h.unserved()
		if len(h.waiting) > 0 && (m.Role != "assistant" || i == len(turns)-1) {
			return h.unanswered()
		}
	}
	return nil
}

// checkWaiting refuses a message that does not begin with the results of the calls before it.
func (h *history) checkWaiting(m turn) error {
	if len(h.waiting) == 0 || m.Role != "assistant" && len(m.Content) > 0 && m.Content[0].Type == "tool_result" {
		return nil // whether all results are there shows the end of the message
	}
	return h.unanswered()
}

func (h *history) unanswered() error {
	return berth.Invalid(h.at,
		"`tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
		strings.Join(h.waiting[:min(len(h.waiting), 10)], ", "))
}

func (h *history) add(body any) {
	h.items, h.places = append(h.items, berth.NewItem(body)), append(h.places, h.at)
}

// close ends the message that the current blocks form.
func (h *history) close() {
	if len(h.open) > 0 {
		h.add(berth.Message{Type: berth.ItemMessage, Role: h.role, Content: h.open})
	}
	h.open = nil
}

// unserved gives the calls of server tools that have no result one that says so.
func (h *history) unserved() {
	for _, c := range h.served {
		h.serve(c, contentBlock{Type: "none", ToolUseID: c.ID})
	}
	h.served = nil
}

func (h *history) block(b *contentBlock) error {
	h.note(b, h.at)
	switch b.Type {
	case "tool_result":
		return h.result(b)
	case "tool_use":
		h.close()
		h.waiting = append(h.waiting, b.ID)
		h.add(calledFunction{berth.FunctionCall{Type: berth.ItemFunctionCall, CallID: b.ID, Name: b.Name,
			Arguments: string(b.Input)}, h.callerOf(b)})
	case "thinking", "redacted_thinking":
		h.close()
		h.think(b)
	case "server_tool_use", "mcp_tool_use":
		h.close()
		if call, fingerprint, ok := readProgramID(b.ID); ok {
			h.program(b, call, fingerprint)
			return nil
		}
		h.served = append(h.served, *b)
	case "compaction":
		h.close()
		h.compacted(b)
	case "container_upload":
		if h.role != "assistant" {
			h.uploads = append(h.uploads, berth.FileID(b.FileID))
		}
	case "fallback":
	default:
		if strings.HasSuffix(b.Type, "_tool_result") {
			h.close()
			if call := h.programs[b.ToolUseID]; call != "" {
				h.programOutput(b, call)
				return nil
			}
			i := slices.IndexFunc(h.served, func(c contentBlock) bool { return c.ID == b.ToolUseID })
			if i < 0 {
				return berth.Invalid(h.at, "`tool_use_id` %s has no `server_tool_use` block before it in the message.",
					b.ToolUseID)
			}
			c := h.served[i]
			h.served = slices.Delete(h.served, i, i+1)
			h.serve(c, *b)
			return nil
		}
		content, err := b.contents()
		if err != nil {
			return err
		}
		if h.role == "assistant" {
			for i := range content {
				if content[i].Type == "input_text" {
					content[i].Type = "output_text"
				}
			}
			content = slices.DeleteFunc(content, func(c berth.Content) bool {
				return c.Type != "output_text" || c.Text == ""
			})
		}
		h.open = append(h.open, content...)
	}
	return nil
}

// note notes the place of a block with an uploaded file.
func (h *history) note(b *contentBlock, at string) {
	var s source
	switch b.Type {
	case "container_upload":
		h.files[b.FileID] = at
	case "image", "document":
		decodeInput(b.Source, &s)
		h.files[s.FileID] = at
		for i := range s.Content {
			h.note(&s.Content[i], fmt.Sprintf("%s.source.content[%d]", at, i))
		}
	case "tool_result":
		content, _ := decodeBlocks(b.Content) // checked
		for i := range content {
			h.note(&content[i], fmt.Sprintf("%s.content[%d]", at, i))
		}
	}
}

// result adds the result of a call.
func (h *history) result(b *contentBlock) error {
	i := slices.Index(h.waiting, b.ToolUseID)
	if i < 0 {
		return berth.Invalid(h.at,
			"unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
			b.ToolUseID)
	}
	h.waiting = slices.Delete(h.waiting, i, i+1)
	h.close()
	output, err := b.output()
	if err != nil {
		return err
	}
	content, err := decodeBlocks(b.Content)
	if err != nil {
		return err
	}
	for _, c := range content {
		if c.Type == "tool_reference" {
			h.referenced[c.ToolName] = true
		}
	}
	h.add(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, CallID: b.ToolUseID, Output: output})
	return nil
}

// failed introduces the result of a call that failed. Responses has no field for that.
const failed = "The tool reported an error:"

// output returns a tool_result's content as the output of a function.
func (b *contentBlock) output() (json.RawMessage, error) {
	content, err := decodeBlocks(b.Content)
	if err != nil {
		return nil, err
	}
	var parts []berth.Content
	text := true
	for i := range content {
		more, err := content[i].contents()
		if err != nil {
			return nil, err
		}
		for _, c := range more {
			text = text && c.Type == "input_text"
		}
		parts = append(parts, more...)
	}
	if b.IsError {
		parts = slices.Insert(parts, 0, berth.Content{Type: "input_text", Text: failed})
	}
	if !text {
		return json.Marshal(parts)
	}
	var texts []string
	for _, p := range parts {
		texts = append(texts, p.Text)
	}
	return json.Marshal(strings.Join(texts, "\n"))
}

// decodeBlocks decodes blocks that a rule has checked.
func decodeBlocks(raw json.RawMessage) (blocks, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var content blocks
	if err := json.Unmarshal(raw, &content); err != nil {
		return nil, fmt.Errorf("decode content: %w", err)
	}
	return content, nil
}

// contents returns a block of input as the parts of a message.
func (b *contentBlock) contents() ([]berth.Content, error) {
	text := func(s string) []berth.Content { return []berth.Content{{Type: "input_text", Text: s}} }
	switch b.Type {
	case "text":
		return text(b.Text), nil
	case "search_result":
		found, err := decodeBlocks(b.Content)
		var from string
		_ = json.Unmarshal(b.Source, &from) // checked
		return text(tagged("search_result", [][2]string{{"source", from}, {"title", b.Title}}, found.text("\n"))), err
	case "tool_reference":
		return text("The tool " + b.ToolName + " is available."), nil
	}
	var s source
	if err := json.Unmarshal(b.Source, &s); err != nil {
		return nil, fmt.Errorf("decode source: %w", err)
	}
	if b.Type == "image" {
		c := berth.Content{Type: "input_image", Detail: "auto", ImageURL: s.URL, FileID: s.FileID}
		if s.Type == "base64" {
			c.ImageURL = "data:" + s.MediaType + ";base64," + s.Data
		}
		return []berth.Content{c}, nil
	}
	return b.document(s)
}

// document returns a document as the parts of a message. One of text becomes text, which every model reads.
func (b *contentBlock) document(s source) ([]berth.Content, error) {
	about := [][2]string{{"title", b.Title}, {"context", b.Context}}
	switch s.Type {
	case "text":
		return []berth.Content{{Type: "input_text", Text: tagged("document", about, s.Data)}}, nil
	case "content":
		parts := []berth.Content{{Type: "input_text", Text: strings.TrimSuffix(tagged("document", about, ""),
			"</document>")}}
		for i := range s.Content {
			more, err := s.Content[i].contents()
			if err != nil {
				return nil, err
			}
			parts = append(parts, more...)
		}
		return append(parts, berth.Content{Type: "input_text", Text: "</document>"}), nil
	}
	c := berth.Content{Type: "input_file", FileURL: s.URL, FileID: s.FileID}
	if s.Type == "base64" {
		c.FileData, c.Filename = "data:application/pdf;base64,"+s.Data, b.Title
		if !strings.HasSuffix(strings.ToLower(c.Filename), ".pdf") {
			c.Filename = strings.TrimSpace(c.Filename+" document") + ".pdf"
		}
	}
	if b.Context == "" {
		return []berth.Content{c}, nil
	}
	return []berth.Content{{Type: "input_text", Text: "About the next document: " + b.Context}, c}, nil
}

// tagged returns a text between tags with those attributes that are not empty.
func tagged(tag string, attributes [][2]string, text string) string {
	var b strings.Builder
	b.WriteString("<" + tag)
	for _, a := range attributes {
		if a[1] != "" {
			fmt.Fprintf(&b, " %s=%q", a[0], a[1])
		}
	}
	fmt.Fprintf(&b, ">\n%s\n</%s>", text, tag)
	return b.String()
}

// signed is the prefix of signatures that this server has made. A signature holds the id and the encrypted content of
// a reasoning item.
const signed = "berth.thought.1."

// maxID bounds the ids of reasoning items.
const maxID = 128

// The texts of a signed thought: its encrypted content has the text, or the text is a summary.
const (
	textInside = "c"
	textBeside = "s"
)

// signature returns the signature of a reasoning item.
func signature(r *berth.Reasoning) string {
	where := textBeside
	if len(r.Content) > 0 {
		where = textInside
	}
	id := strings.TrimPrefix(r.ID, berth.PrefixReasoning)
	return signed + strings.Join([]string{where, id, r.EncryptedContent}, ".")
}

// think adds a thought. One that another server has signed is text only.
func (h *history) think(b *contentBlock) {
	r := berth.Reasoning{Type: berth.ItemReasoning, Summary: []berth.Content{}}
	rest, ours := strings.CutPrefix(b.Signature+b.Data, signed)
	parts := strings.SplitN(rest, ".", 3)
	ours = ours && len(parts) == 3 && len(parts[1]) <= maxID
	switch {
	case ours:
		r.ID, r.EncryptedContent = berth.PrefixReasoning+parts[1], parts[2]
	case b.Thinking == "":
		return
	default:
		r.ID = berth.NewID(berth.PrefixReasoning)
	}
	if b.Thinking != "" && (!ours || parts[0] == textBeside || r.EncryptedContent == "") {
		r.Summary = []berth.Content{{Type: "summary_text", Text: b.Thinking}}
	}
	h.add(r)
}

// A servedResult is the content of a server tool's result in an earlier answer. Which fields are set depends on the
// type.
type servedResult struct {
	Type       string          `json:"type"`
	ErrorCode  string          `json:"error_code"`
	Stdout     string          `json:"stdout"`
	Stderr     string          `json:"stderr"`
	ReturnCode int             `json:"return_code"`
	URL        string          `json:"url"`
	Content    json.RawMessage `json:"content"`
}

// noResult is the output of a call whose result is not in the history.
const noResult = "The call has no result."

// serve adds the items of a call of a server tool and its result in an earlier answer.
func (h *history) serve(c, result contentBlock) {
	var one servedResult
	_ = json.Unmarshal(result.Content, &one) // a list, or of another form, which becomes text
	var input struct {
		Query   string `json:"query"`
		URL     string `json:"url"`
		Command string `json:"command"`
	}
	decodeInput(c.Input, &input)
	switch {
	case c.Type == "mcp_tool_use":
		h.serveMCP(c, result)
	case searchName(c.Name) && h.functions != nil:
		h.serveToolSearch(result)
	case c.Name == familySearch && input.Query != "":
		h.serveSearch(input.Query, result)
	case c.Name == familyFetch && one.Type == "web_fetch_result":
		h.servePage(one)
	case c.Name == "bash_code_execution" && one.Type == "bash_code_execution_result" && input.Command != "":
		h.add(berth.ShellCall{Type: berth.ItemShellCall, CallID: c.ID, Status: berth.StatusCompleted,
			Action: berth.ShellAction{Commands: []string{input.Command}}})
		h.add(berth.ShellCallOutput{Type: berth.ItemShellCallOutput, CallID: c.ID, Status: berth.StatusCompleted,
			Output: []berth.ShellContent{{Stdout: one.Stdout, Stderr: one.Stderr,
				Outcome: berth.ShellOutcome{Type: "exit", ExitCode: &one.ReturnCode}}}})
	case c.Name == editorName:
		h.serveEditor(c, result)
	default:
		h.serveAny(c, result)
	}
}

// decodeInput decodes an object. Fields of other types count as absent.
func decodeInput(raw json.RawMessage, to any) { _ = json.Unmarshal(raw, to) }

// serveAny adds a call of which this server knows nothing as that of a function.
func (h *history) serveAny(c, result contentBlock) {
	output := string(result.Content)
	if output == "" {
		output = noResult
	}
	h.add(berth.FunctionCall{Type: berth.ItemFunctionCall, CallID: c.ID, Name: c.Name, Arguments: string(c.Input)})
	h.add(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, CallID: c.ID,
		Output: berth.StringDelta(output)})
}

func (h *history) serveSearch(query string, result contentBlock) {
	call := berth.WebSearchCall{ID: berth.NewID(berth.PrefixWebSearch), Type: berth.ItemWebSearchCall,
		Status: string(berth.StatusCompleted),
		Action: &berth.WebSearchAction{Type: berth.WebSearchSearch, Query: query, Queries: []string{query}},
		Berth:  &berth.WebSearchBerth{}}
	var hits []searchHit
	if json.Unmarshal(result.Content, &hits) != nil {
		var failure toolError
		decodeInput(result.Content, &failure)
		call.Status, call.Berth.Error = string(berth.StatusFailed), "The search failed: "+rule.Clip(failure.ErrorCode)
	}
	for _, hit := range hits {
		call.Berth.Results = append(call.Berth.Results, berth.WebSearchResult{URL: hit.URL, Title: hit.Title,
			Text: unsealText(hit.EncryptedContent)})
	}
	h.add(call)
}

func (h *history) servePage(page servedResult) {
	var doc fetchedDocument
	_ = json.Unmarshal(page.Content, &doc) // a PDF has no text here
	found := berth.WebSearchResult{URL: page.URL, Text: doc.Source.Data}
	if doc.Title != nil {
		found.Title = *doc.Title
	}
	if doc.Source.Type != "text" {
		found.Text = ""
	}
	h.add(berth.WebSearchCall{ID: berth.NewID(berth.PrefixWebSearch), Type: berth.ItemWebSearchCall,
		Status: string(berth.StatusCompleted), Action: &berth.WebSearchAction{Type: berth.WebSearchOpen, URL: page.URL},
		Berth: &berth.WebSearchBerth{Results: []berth.WebSearchResult{found}}})
}

func (h *history) serveMCP(c, result contentBlock) {
	call := berth.MCPCall{ID: berth.NewID(berth.PrefixMCPCall), Type: berth.ItemMCPCall, Status: berth.StatusCompleted,
		Arguments: string(c.Input), Name: c.Name, ServerLabel: c.ServerName}
	var content blocks
	text := noResult
	if len(result.Content) > 0 && json.Unmarshal(result.Content, &content) == nil {
		text = content.text("\n")
	}
	if result.IsError {
		call.Status, call.Error = berth.StatusFailed, &berth.MCPError{Type: berth.MCPExecutionError, Message: text}
	} else {
		call.Output = &text
	}
	h.add(call)
}
