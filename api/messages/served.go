package messages

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// sealed is the prefix of the texts that clients send back without reading them.
const sealed = "berth.text.1."

func sealText(text string) string { return sealed + base64.RawURLEncoding.EncodeToString([]byte(text)) }

// unsealText returns a text that this server has sealed, or "".
func unsealText(s string) string {
	rest, ok := strings.CutPrefix(s, sealed)
	text, err := base64.RawURLEncoding.DecodeString(rest)
	if !ok || err != nil {
		return ""
	}
	return string(text)
}

// serverID returns the id of a server tool's call. Such ids have letters, digits and underscores only.
func serverID(prefix, id string) string {
	return prefix + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, id)
}

const (
	prefixServer = "srvtoolu_"
	prefixMCP    = "mcptoolu_"
)

// A servedItem is an item of a hosted tool as blocks of an answer.
type servedItem struct {
	blocks []any             // callOutput and resultOutput
	pages  map[string]string // the texts of pages that were found, by URL
	web    serverToolUsage

	request  *messageRequest
	searches *[]string         // ids of calls of the tool search without a result yet
	programs map[string]string // by call_id, the ids of calls that programs became

	// outputs returns the ids of the container's files, by path. It is called if a command has changed files.
	outputs func() map[string]berth.FileID
	// summary returns the summary of a compaction.
	summary func(berth.Item) (string, error)
}

func (s *servedItem) call(c callOutput)     { s.blocks = append(s.blocks, c) }
func (s *servedItem) result(r resultOutput) { s.blocks = append(s.blocks, r) }

// read reads an item of a hosted tool.
func (s *servedItem) read(it berth.Item) error {
	switch it.Type() {
	case berth.ItemWebSearchCall:
		var c berth.WebSearchCall
		if err := it.Decode(&c); err != nil {
			return err
		}
		s.readWeb(&c)
	case berth.ItemShellCall:
		var c berth.ShellCall
		if err := it.Decode(&c); err != nil {
			return err
		}
		for i, command := range c.Action.Commands {
			s.call(callOutput{Type: "server_tool_use", ID: commandID(c.CallID, i),
				Name: "bash_code_execution", Input: object("command", command), Caller: direct})
		}
	case berth.ItemShellCallOutput:
		var out berth.ShellCallOutput
		if err := it.Decode(&out); err != nil {
			return err
		}
		var files []any
		if out.Berth != nil {
			files = s.changed("bash_code_execution_output", out.Berth.Files)
		}
		for i, c := range out.Output {
			result := newBashResult(c)
			if i == len(out.Output)-1 { // which of the commands has changed a file is not known
				result.Content = append(result.Content, files...)
			}
			s.result(resultOutput{Type: "bash_code_execution_tool_result",
				ToolUseID: commandID(out.CallID, i), Content: result})
		}
	case berth.ItemCodeInterpreterCall:
		var c berth.CodeInterpreterCall
		if err := it.Decode(&c); err != nil {
			return err
		}
		id := serverID(prefixServer, c.ID)
		s.call(callOutput{Type: "server_tool_use", ID: id, Name: "code_execution",
			Input: object("code", c.Code), Caller: direct})
		result := newCodeResult(&c)
		if c.Berth != nil {
			result.Content = append(result.Content, s.changed("code_execution_output", c.Berth.Files)...)
		}
		s.result(resultOutput{Type: "code_execution_tool_result", ToolUseID: id, Content: result})
	case berth.ItemCompaction:
		block, err := s.compaction(it)
		if err != nil {
			return err
		}
		s.blocks = append(s.blocks, block)
	case berth.ItemTextEditorCall:
		var c berth.TextEditorCall
		if err := it.Decode(&c); err != nil {
			return err
		}
		s.readEditor(&c)
	case berth.ItemToolSearchCall:
		var c berth.ToolSearchCall
		if err := it.Decode(&c); err != nil {
			return err
		}
		s.readSearch(&c)
	case berth.ItemToolSearchOutput:
		var out berth.ToolSearchOutput
		if err := it.Decode(&out); err != nil {
			return err
		}
		s.readFound(&out)
	case berth.ItemProgram:
		var p berth.Program
		if err := it.Decode(&p); err != nil {
			return err
		}
		s.readProgram(&p)
	case berth.ItemProgramOutput:
		var out berth.ProgramOutput
		if err := it.Decode(&out); err != nil {
			return err
		}
		s.readProgramOutput(&out)
	case berth.ItemApprovalRequest:
		var a berth.ApprovalRequest
		if err := it.Decode(&a); err != nil {
			return err
		}
		s.blocks = append(s.blocks, textOutput{Type: "text", Text: approvalText(&a)})
	case berth.ItemMCPCall:
		var c berth.MCPCall
		if err := it.Decode(&c); err != nil {
			return err
		}
		s.readMCP(&c)
	}
	return nil
}

// approvalText says that a call did not run, because the operator of the server wants a person to approve it. A message
// has no form for that.
func approvalText(a *berth.ApprovalRequest) string {
	return "The call of " + a.Name + " did not run. This server requires approval of it: " + a.Arguments
}

// changed returns blocks for the files that a call has made or changed.
func (s *servedItem) changed(block string, changes []berth.FileChange) []any {
	var files []any
	var ids map[string]berth.FileID
	for _, f := range changes {
		if f.Type == "deleted" || s.outputs == nil {
			continue
		}
		if ids == nil {
			ids = s.outputs()
		}
		if id := ids[f.Path]; id != "" {
			files = append(files, fileOutput{block, id})
		}
	}
	return files
}

func commandID(call string, i int) string {
	id := serverID(prefixServer, call)
	if i > 0 {
		id += "_" + strconv.Itoa(i)
	}
	return id
}

// object returns an object with one text.
func object(name, text string) json.RawMessage {
	raw, _ := json.Marshal(map[string]string{name: text}) // texts always marshal
	return raw
}

type (
	bashResult struct {
		Type       string `json:"type"`
		Stdout     string `json:"stdout"`
		Stderr     string `json:"stderr"`
		ReturnCode int    `json:"return_code"`
		Content    []any  `json:"content"`
	}
	fileOutput struct {
		Type   string       `json:"type"`
		FileID berth.FileID `json:"file_id"`
	}
	toolError struct {
		Type      string `json:"type"`
		ErrorCode string `json:"error_code"`
	}
	searchHit struct {
		Type             string  `json:"type"` // "web_search_result"
		URL              string  `json:"url"`
		Title            string  `json:"title"`
		EncryptedContent string  `json:"encrypted_content"`
		PageAge          *string `json:"page_age"`
	}
	fetchedPage struct {
		Type        string          `json:"type"` // "web_fetch_result"
		URL         string          `json:"url"`
		Content     fetchedDocument `json:"content"`
		RetrievedAt *string         `json:"retrieved_at"`
	}
	fetchedDocument struct {
		Type      string          `json:"type"` // "document"
		Source    documentSource  `json:"source"`
		Title     *string         `json:"title"`
		Citations citationsConfig `json:"citations"` // Vercel's AI SDK refuses null
	}
	citationsConfig struct {
		Enabled bool `json:"enabled"`
	}
	documentSource struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	}
)

// timedOut is the return code of a command that ran into its time limit, as that of timeout(1).
const timedOut = 124

func newBashResult(c berth.ShellContent) bashResult {
	r := bashResult{Type: "bash_code_execution_result", Stdout: c.Stdout, Stderr: c.Stderr, ReturnCode: timedOut,
		Content: []any{}}
	if c.Outcome.ExitCode != nil {
		r.ReturnCode = *c.Outcome.ExitCode
	}
	return r
}

func newCodeResult(c *berth.CodeInterpreterCall) bashResult {
	r := bashResult{Type: "code_execution_result", Content: []any{}}
	for _, o := range c.Outputs {
		r.Stdout += o.Logs
	}
	if c.Berth != nil && c.Berth.Outcome != "" {
		r.ReturnCode = 1
		r.Stdout, r.Stderr = "", r.Stdout
	}
	return r
}

// readWeb reads an action on the web.
func (s *servedItem) readWeb(c *berth.WebSearchCall) {
	action, found := c.Action, c.Berth
	if action == nil {
		action = &berth.WebSearchAction{}
	}
	if found == nil {
		found = &berth.WebSearchBerth{}
	}
	id := serverID(prefixServer, c.ID)
	s.pages = map[string]string{}
	for _, r := range found.Results {
		s.pages[r.URL] = r.Text
	}
	failed := found.Error != "" || c.Status != string(berth.StatusCompleted)
	if action.Type == berth.WebSearchOpen || action.Type == berth.WebSearchFind {
		if found.Code != berth.WebSearchLimited {
			s.web.WebFetches++
		}
		s.call(callOutput{Type: "server_tool_use", ID: id, Name: familyFetch,
			Input: object("url", action.URL), Caller: direct})
		out := resultOutput{Type: "web_fetch_tool_result", ToolUseID: id, Caller: direct}
		if failed {
			out.Content = toolError{"web_fetch_tool_result_error", cmp.Or(found.Code, "url_not_accessible")}
		} else {
			out.Content = newFetchedPage(action.URL, found.Results)
		}
		s.result(out)
		return
	}
	if found.Code != berth.WebSearchLimited {
		s.web.WebSearches++
	}
	query := action.Query
	if len(action.Queries) > 1 {
		query = strings.Join(action.Queries, "; ")
	}
	s.call(callOutput{Type: "server_tool_use", ID: id, Name: familySearch, Input: object("query", query),
		Caller: direct})
	out := resultOutput{Type: "web_search_tool_result", ToolUseID: id, Caller: direct}
	if failed {
		out.Content = toolError{"web_search_tool_result_error", cmp.Or(found.Code, "unavailable")}
	} else {
		hits := []any{}
		for _, r := range found.Results {
			hit := searchHit{Type: "web_search_result", URL: r.URL, Title: r.Title, EncryptedContent: sealText(r.Text)}
			if r.Published != "" {
				hit.PageAge = &r.Published
			}
			hits = append(hits, hit)
		}
		out.Content = hits
	}
	s.result(out)
}

func newFetchedPage(url string, parts []berth.WebSearchResult) fetchedPage {
	now := time.Now().UTC().Format(time.RFC3339)
	p := fetchedPage{Type: "web_fetch_result", URL: url, RetrievedAt: &now, Content: fetchedDocument{Type: "document",
		Source: documentSource{Type: "text", MediaType: "text/plain"}}}
	var texts []string
	for _, part := range parts {
		if part.Title != "" {
			p.Content.Title = &part.Title
		}
		texts = append(texts, part.Text)
	}
	p.Content.Source.Data = strings.Join(texts, "\n\n")
	return p
}

// readMCP reads a call of an MCP server's tool.
func (s *servedItem) readMCP(c *berth.MCPCall) {
	id := serverID(prefixMCP, c.ID)
	s.call(callOutput{Type: "mcp_tool_use", ID: id, Name: c.Name, ServerName: c.ServerLabel,
		Input: inputOf(c.Arguments)})
	text, failed := "", c.Error != nil
	if c.Output != nil {
		text = *c.Output
	}
	if failed {
		text = errorText(c.Error)
	}
	s.result(resultOutput{Type: "mcp_tool_result", ToolUseID: id, IsError: &failed,
		Content: []any{textOutput{Type: "text", Text: text}}})
}

// errorText returns what went wrong in a call of an MCP server.
func errorText(e *berth.MCPError) string {
	if e.Message != "" {
		return e.Message
	}
	var parts []struct{ Text string }
	if json.Unmarshal(e.Content, &parts) == nil {
		var texts []string
		for _, p := range parts {
			texts = append(texts, p.Text)
		}
		return strings.Join(texts, "\n")
	}
	if e.Code != nil {
		return http.StatusText(*e.Code)
	}
	return e.Type
}
