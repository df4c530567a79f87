// Package mcp is the mcp tool, with which a model uses the tools of servers that speak the
// Model Context Protocol. A server is remote, or it is a command that runs in a container
// and speaks over its standard input and output.
//
// What a server sends is untrusted: its list of tools is bounded and checked, its output
// reaches the model as data, and a remote server is reached only at addresses that the
// operator allows.
package mcp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/internal/ration"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
)

// Options are what the tool needs of the server.
type Options struct {
	Containers Containers
	Gate       *egress.Gate  // to remote servers; nil refuses them
	Timeout    time.Duration // of a call; default 2 minutes
	Decoding   *ration.Pool  // bounds the memory for what servers send; nil means no limit
	Log        *slog.Logger  // default slog.Default
}

// Kind returns the mcp tool.
func Kind(opts Options) tool.Kind {
	if opts.Timeout <= 0 {
		opts.Timeout = 2 * time.Minute
	}
	opts.Log = cmp.Or(opts.Log, slog.Default())
	return tool.Kind{
		Type: berth.ToolMCP, Rules: rules,
		Source: func(c tool.Context, t berth.Tool) (tool.Source, error) { return newSource(opts, c.Caller, t) },
		Show:   show, Listing: berth.ItemMCPListTools, ListingPrefix: berth.PrefixMCPListTools,
		Container: &tool.Container{Environment: environmentOf, Settle: settle},
		Calls: &tool.Calls{Call: berth.ItemMCPCall, CallPrefix: berth.PrefixMCPCall,
			LowerCall: lowerCall, LowerOutput: lowerOutput, Answer: answer, Fill: fill, Mark: markOf,
			Hosted: func(berth.Item) bool { return true }, Outcome: outcome, Draft: tool.FieldDraft("arguments")},
	}
}

const (
	maxURL    = 4096
	maxHeader = 16 << 10 // of a value, in bytes
)

func rules(*tool.Registry) tool.Rules {
	label := rule.Matching(rule.NamePattern, 64)
	filter := rule.Object(rule.Fields{"tool_names": toolNames, "read_only": rule.Boolean})
	chosen := rule.Object(rule.Fields{"type": rule.AnyText, "server_label": label, "name": rule.Text(1, 256)},
		"server_label")
	return tool.Rules{
		Tool: offered(rule.Object(rule.Fields{
			"type": rule.AnyText, "server_label": label, "server_url": serverURL, "server_description": rule.Text(0,
				4096),
			"connector_id": connector, "tunnel_id": rule.Unsupported,
			"authorization": rule.Text(1, maxHeader), "headers": headers,
			"allowed_tools": either(toolNames, filter), "allowed_callers": rule.Callers, "defer_loading": notDeferred,
			"require_approval": either(rule.OneOf("always", "never"),
				rule.Object(rule.Fields{"always": filter, "never": filter})),
			"berth": rule.Object(rule.Fields{
				"command":     rule.AtLeastOne(rule.List(rule.Text(1, 32<<10), 256)),
				"environment": rule.ByType(environments),
				"credentials": rule.OneOf(berth.CredentialsNotStored),
			}),
		}, "server_label")),
		Choice: chosen, Subset: chosen,
		Call: rule.Item(rule.Fields{
			"status":       rule.OneOf("in_progress", "completed", "incomplete", "calling", "failed"),
			"server_label": rule.Text(1, 256), "name": rule.Text(1, 256), "arguments": rule.Text(0, rule.MaxOutput),
			"output": rule.Text(0, rule.MaxOutput), "error": either(rule.Text(0, rule.MaxOutput), rule.AnyObject),
			"approval_request_id": rule.Text(1, 256),
		}, "server_label", "name", "arguments"),
		Listing: rule.Item(rule.Fields{
			"server_label": rule.Text(1, 256), "error": rule.Anything,
			"tools": rule.List(rule.OpenObject(rule.Fields{
				"name": rule.Text(1, 256), "description": rule.AnyText, "input_schema": rule.AnyObject,
				"annotations": rule.OpenObject(rule.Fields{"read_only": rule.Boolean}),
			}, "name", "input_schema"), maxTools),
		}, "server_label", "tools"),
	}
}

var toolNames = rule.List(rule.Text(1, 256), maxTools)

// environments are the rules for the containers of a command, by type.
var environments = map[string]rule.Rule{
	berth.EnvironmentAuto: rule.Object(rule.Fields{
		"type": rule.AnyText, "file_ids": rule.List(rule.Text(1, 256), 50), "memory_limit": rule.MemoryLimit,
		"network_policy": rule.ByType(rule.NetworkPolicies),
		"berth": rule.ContainerSource(rule.Fields{"on_lost": rule.OneOf(string(berth.OnLostFail),
			string(berth.OnLostNew))}),
	}),
	berth.EnvironmentReference: rule.Object(rule.Fields{"type": rule.AnyText, "container_id": rule.Text(1, 256)},
		"container_id"),
}

// either checks an object by the second rule, and other values by the first.
func either(short, object rule.Rule) rule.Rule {
	return func(at string, v any) error {
		if _, ok := v.(map[string]any); ok {
			return object(at, v)
		}
		return short(at, v)
	}
}

// offered makes the rule of the tool check how its fields go together.
func offered(r rule.Rule) rule.Rule {
	return func(at string, v any) error {
		if err := r(at, v); err != nil {
			return err
		}
		t := v.(map[string]any)
		own, _ := t["berth"].(map[string]any)
		command := own["command"] != nil
		given, _ := t["headers"].(map[string]any)
		switch {
		case t["server_label"] == tool.ApprovalLabel:
			return rule.Errorf("invalid_value", rule.Join(at, "server_label"),
				"Invalid value: '%s'. This label is the server's own; choose another.", tool.ApprovalLabel)
		case command && (t["server_url"] != nil || t["headers"] != nil || t["authorization"] != nil):
			return rule.Errorf("invalid_value", rule.Join(at, "berth.command"),
				"A server is either remote or a command: 'berth.command' excludes 'server_url', 'headers' and 'authorization'.")
		case !command && t["server_url"] == nil:
			return rule.Missing(rule.Join(at, "server_url"))
		case !command && own["environment"] != nil:
			return rule.Missing(rule.Join(at, "berth.command"))
		case t["authorization"] != nil && slices.ContainsFunc(slices.Collect(maps.Keys(given)), func(name string) bool {
			return strings.EqualFold(name, "authorization")
		}):
			return rule.Errorf("invalid_value", rule.Join(at, "authorization"),
				"Set either 'authorization' or an 'Authorization' header, not both.")
		}
		return nil
	}
}

func connector(at string, v any) error {
	name, ok := v.(string)
	if !ok {
		return rule.WrongType(at, "a string", v)
	}
	return rule.Errorf("unsupported_value", at,
		"Unsupported value: '%s'. This server has no connectors. Name an MCP server for the service with 'server_url'.",
		rule.Clip(name))
}

func notDeferred(at string, v any) error {
	if err := rule.Boolean(at, v); err != nil || v == false {
		return err
	}
	return rule.Errorf("unsupported_value", at,
		"Unsupported value: '%s' cannot be true for an MCP server. Shorten its list with 'allowed_tools' instead.", at)
}

func serverURL(at string, v any) error {
	if err := rule.Text(1, maxURL)(at, v); err != nil {
		return err
	}
	u, err := url.Parse(v.(string))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil ||
		u.Fragment != "" {
		return rule.Errorf("invalid_value", at,
			"Invalid '%s': expected an http or https URL without user and fragment.", at)
	}
	return nil
}

// reserved are the headers that the protocol sets.
var reserved = []string{"Accept", "Connection", "Content-Length", "Content-Type", "Host", "Last-Event-Id",
	"Mcp-Protocol-Version", "Mcp-Session-Id",
	"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func headers(at string, v any) error {
	all, ok := v.(map[string]any)
	if !ok {
		return rule.WrongType(at, "an object", v)
	}
	if len(all) > 64 {
		return rule.Errorf("invalid_value", at, "Invalid '%s': %d headers. At most 64 are allowed.", at, len(all))
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		where := rule.Join(at, name)
		if err := rule.Text(0, maxHeader)(where, all[name]); err != nil {
			return err
		}
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(all[name].(string)) {
			return rule.Errorf("invalid_value", where, "Invalid '%s': not a valid HTTP header.", where)
		}
		if slices.Contains(reserved, http.CanonicalHeaderKey(name)) {
			return rule.Errorf("invalid_value", where, "Invalid '%s': the protocol sets this header itself.", where)
		}
	}
	return nil
}

// show returns the tool without credentials: without headers, authorization and the query
// of its URL.
func show(t berth.Tool) (berth.Tool, error) {
	fields := map[string]json.RawMessage{}
	decoded, err := tool.Decode[berth.MCPTool](t, "MCP tool")
	if err != nil {
		return t, err
	}
	if err := t.Decode(&fields); err != nil {
		return t, err
	}
	delete(fields, "authorization")
	for name, value := range map[string]string{"allowed_tools": "null", "require_approval": `"always"`} {
		if fields[name] == nil || string(fields[name]) == "null" {
			fields[name] = json.RawMessage(value)
		}
	}
	fields["headers"] = json.RawMessage("null")
	address, query, _ := strings.Cut(decoded.ServerURL, "?")
	if address != "" {
		fields["server_url"] = berth.StringDelta(address)
	}
	if query != "" || decoded.Authorization != "" || len(decoded.Headers) > 0 {
		fields["berth"] = json.RawMessage(`{"credentials":"` + berth.CredentialsNotStored + `"}`)
	}
	return berth.NewTool(fields), nil
}

// environmentOf returns the environment of a server that is a command, or nil.
func environmentOf(t berth.Tool) (*berth.ShellToolEnvironment, error) {
	decoded, err := tool.Decode[berth.MCPTool](t, "MCP tool")
	if err != nil || decoded.Berth == nil || len(decoded.Berth.Command) == 0 {
		return nil, err
	}
	if decoded.Berth.Environment == nil {
		return &berth.ShellToolEnvironment{Type: berth.EnvironmentAuto}, nil
	}
	return decoded.Berth.Environment, nil
}

// settle returns the tool with a reference to its container.
func settle(t berth.Tool, id berth.ContainerID) (berth.Tool, error) {
	fields := map[string]json.RawMessage{}
	var own map[string]json.RawMessage
	if err := t.Decode(&fields); err != nil {
		return t, err
	}
	if err := json.Unmarshal(fields["berth"], &own); err != nil {
		return t, fmt.Errorf("decode extension of tool: %w", err)
	}
	var err error
	if own["environment"], err = json.Marshal(berth.ShellEnvironment{Type: berth.EnvironmentReference,
		ContainerID: id}); err != nil {
		return t, err
	}
	if fields["berth"], err = json.Marshal(own); err != nil {
		return t, err
	}
	return berth.NewTool(fields), nil
}

// nulls are the fields of a call that the wire shows as null when a client omits them.
var nulls = []string{"approval_request_id", "error", "output"}

func fill(it berth.Item, add map[string]any) error {
	held := map[string]json.RawMessage{}
	if err := it.Decode(&held); err != nil {
		return err
	}
	for _, name := range nulls {
		if held[name] == nil {
			add[name] = nil
		}
	}
	return nil
}

// markOf returns the request for approval that a call was made for.
func markOf(it berth.Item) berth.CallBerth {
	var call struct {
		ApprovalRequestID string `json:"approval_request_id"`
	}
	_ = it.Decode(&call) // an unreadable mark counts as none
	return berth.CallBerth{ApprovalRequestID: call.ApprovalRequestID}
}

func outcome(it berth.Item) tool.Outcome {
	if it.Status() == berth.StatusFailed {
		return tool.Failed
	}
	return tool.OK
}
