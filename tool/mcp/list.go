package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// listTime bounds the time to connect to a server and to list its tools.
const listTime = 60 * time.Second

// Known implements tool.Source. The list must have been made with the same allowed_tools,
// or with none.
func (s *source) Known(items []berth.Item) ([]tool.Listed, bool) {
	for _, it := range slices.Backward(items) {
		var l berth.MCPListTools
		if it.Type() != berth.ItemMCPListTools || it.Decode(&l) != nil || l.ServerLabel != s.Label() {
			continue
		}
		if l.Error != nil || it.Status() == berth.StatusIncomplete || l.Berth != nil &&
			!reflect.DeepEqual(l.Berth.AllowedTools, s.tool.AllowedTools) {
			return nil, false
		}
		return s.bind(l.Tools), true
	}
	return nil, false
}

// bind returns the tools of a list that the request allows. Of tools with one name only the
// first counts.
func (s *source) bind(list []berth.MCPListedTool) []tool.Listed {
	var out []tool.Listed
	seen := map[string]bool{}
	for _, l := range list {
		if !seen[l.Name] && s.tool.AllowedTools.Selects(l) {
			out = append(out, tool.Listed{Name: l.Name, Tool: serverTool{s, l}})
		}
		seen[l.Name] = true
	}
	return out
}

// Load implements tool.Source.
func (s *source) Load(ctx context.Context, out tool.Emitter) ([]tool.Listed, error) {
	item := berth.MCPListTools{ID: berth.NewID(berth.PrefixMCPListTools), Type: berth.ItemMCPListTools,
		ServerLabel: s.Label(), Tools: []berth.MCPListedTool{}}
	index, err := out.Add(ctx, berth.NewItem(item))
	if err != nil {
		return nil, err
	}
	if err := out.Emit(ctx, index, berth.Event{Type: berth.EventMCPListInProgress, ItemID: item.ID}); err != nil {
		return nil, err
	}
	list, err := s.list(ctx)
	if err != nil {
		return nil, s.unlisted(ctx, out, index, item, err)
	}
	item.Tools = list
	if s.tool.AllowedTools != nil {
		item.Berth = &berth.MCPListBerth{AllowedTools: s.tool.AllowedTools}
	}
	if err := out.Emit(ctx, index, berth.Event{Type: berth.EventMCPListCompleted, ItemID: item.ID}); err != nil {
		return nil, err
	}
	if err := out.Done(ctx, index, berth.NewItem(item)); err != nil {
		return nil, err
	}
	return s.bind(list), nil
}

// unlisted closes the item of a list that could not be made, and returns the error that
// fails the response.
func (s *source) unlisted(ctx context.Context, out tool.Emitter, index int, item berth.MCPListTools, err error) error {
	if errors.Is(context.Cause(ctx), tool.ErrDetached) {
		return context.Cause(ctx)
	}
	secrets := s.redactor()
	why := secrets.Replace(s.explain(err))
	cause := context.Cause(ctx)
	if cause != nil {
		why = "The list was cancelled."
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), cancelGrace)
		defer cancel()
	}
	item.Error = &why
	closed := errors.Join(out.Emit(ctx, index, berth.Event{Type: berth.EventMCPListFailed, ItemID: item.ID}),
		out.Done(ctx, index, berth.NewItem(item)))
	if cause != nil || closed != nil {
		return errors.Join(cause, closed)
	}
	// which is logged
	return &berth.Error{Code: berth.CodeDependency, Param: "tools", Err: errors.New(secrets.Replace(err.Error())),
		Message: fmt.Sprintf("Error retrieving tool list from MCP server: '%s'. %s", s.Label(), why)}
}

// list returns the server's tools that the request allows. It leaves out those that cannot be
// used, and logs them.
func (s *source) list(ctx context.Context) ([]berth.MCPListedTool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTime, errTimeout)
	defer cancel()
	l := listing{source: s, list: []berth.MCPListedTool{}, names: map[string]bool{}, secrets: s.redactor()}
	defer l.log()
	left := int64(maxList)
	defer s.release()
	for page, cursor := 0, ""; ; page++ {
		var got *sdk.ListToolsResult
		err := s.with(ctx, left, func(ctx context.Context, c *sdk.ClientSession) (err error) {
			got, err = c.ListTools(ctx, &sdk.ListToolsParams{Cursor: cursor})
			if err != nil {
				return fmt.Errorf("list tools: %w", err)
			}
			return nil
		})
		if s.session != nil {
			l.omitted.join(s.session.fault.takeOmitted())
			left -= s.session.intake.received()
			s.release()
		}
		if err != nil {
			return nil, err
		}
		for _, t := range got.Tools {
			if l.add(t); l.size > maxSchemas || len(l.list) > maxTools {
				return nil, badList(
					fmt.Sprintf(
						"It offers more than %d tools, or more than %d bytes about them. Choose some with 'allowed_tools'.",
						maxTools, maxSchemas))
			}
		}
		if cursor = got.NextCursor; cursor == "" {
			return l.list, l.problem()
		}
		if page == maxPages {
			return nil, badList(fmt.Sprintf("Its list of tools has more than %d pages.", maxPages))
		}
	}
}

// A listing is a list of tools that is being made.
type listing struct {
	source  *source
	list    []berth.MCPListedTool
	names   map[string]bool // of list
	usable  int             // tools that can be used, also those that the request does not allow
	size    int             // of descriptions and schemas in list, in bytes
	omitted omissions
	secrets *strings.Replacer
}

// add adds a tool that can be used and that the request allows.
func (l *listing) add(t *sdk.Tool) {
	listed, wrong := toolOf(t, l.secrets)
	if wrong == "" && l.names[listed.Name] {
		wrong = "its name is that of an earlier tool"
	}
	if wrong != "" {
		l.omitted.add(l.secrets.Replace(t.Name), wrong)
		return
	}
	l.usable++
	if l.source.tool.AllowedTools.Selects(listed) {
		l.names[listed.Name] = true
		l.list = append(l.list, listed)
		l.size += len(listed.InputSchema) + len(listed.Description)
	}
}

// problem returns an error if the server has tools and none of them can be used.
func (l *listing) problem() error {
	if l.usable > 0 || l.omitted.count == 0 {
		return nil
	}
	return badList(fmt.Sprintf("None of its %d tools can be used. The first is left out: %s.", l.omitted.count,
		l.omitted.reasons[0]))
}

func (l *listing) log() {
	if l.omitted.count > 0 {
		l.source.opts.Log.Warn("left out tools of an MCP server", "server_label", l.source.Label(), "response",
			l.source.caller.Response,
			"count", l.omitted.count, "first", l.secrets.Replace(strings.Join(l.omitted.reasons, "; ")))
	}
}

// A badList error is the fault of a list of tools, for the client.
type badList string

func (b badList) Error() string { return string(b) }

// toolOf returns a tool as items list it, without the request's credentials. wrong is why
// models cannot be offered it, or "". A schema that has one, or
// is not one of an object, is replaced by one that allows any object: the upstream would
// refuse the whole request.
func toolOf(t *sdk.Tool, secrets *strings.Replacer) (listed berth.MCPListedTool, wrong string) {
	switch {
	case t.Name == "":
		return listed, "it has no name"
	case len(t.Name) > maxName || !utf8.ValidString(t.Name):
		return listed, fmt.Sprintf("its name has more than %d bytes, or is not UTF-8", maxName)
	case secrets.Replace(t.Name) != t.Name:
		return listed, "its name contains a credential of the request"
	}
	listed = berth.MCPListedTool{Name: t.Name, Description: tool.Shorten(secrets.Replace(t.Description),
		maxDescription), Annotations: &berth.MCPAnnotations{}}
	if t.Annotations != nil {
		listed.Annotations.ReadOnly = t.Annotations.ReadOnlyHint
	}
	schema, ok := t.InputSchema.(map[string]any)
	if ok && schema["type"] == nil {
		schema["type"] = "object"
	}
	raw, err := json.Marshal(schema)
	switch {
	case ok && len(raw) > maxSchema:
		return listed, fmt.Sprintf("its schema has more than %d bytes", maxSchema)
	case ok && err == nil && schema["type"] == "object" && berth.SchemaProblem(schema) == "" &&
		secrets.Replace(string(raw)) == string(raw):
		listed.InputSchema = raw
	default:
		listed.InputSchema = json.RawMessage(`{"type":"object","additionalProperties":true}`)
	}
	return listed, ""
}
