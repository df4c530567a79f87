package messages

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/model"
)

// A request for which this server does nothing itself passes to an Anthropic upstream unchanged, and the answer comes
// back unchanged: signatures, cache marks and citations survive.

// ours are the marks of texts that only this server can read, in earlier answers.
var ours = [][]byte{[]byte(signed), []byte(sealed), []byte(compacted)}

// passes reports whether a request can pass to the upstream of its model.
func (d *Door) passes(m *messageRequest, body []byte) bool {
	if !d.upstreams.Serves(m.Model, model.EndpointMessages) || m.Thread.Type == "continue" {
		return false
	}
	if len(m.MCPServers) > 0 || m.Container.ID != "" || len(m.Container.Skills) > 0 ||
		slices.ContainsFunc(m.Tools, func(p toolParam) bool { return p.runsHere() }) ||
		slices.ContainsFunc(ours, func(mark []byte) bool { return bytes.Contains(body, mark) }) {
		return false
	}
	return !slices.ContainsFunc(m.Messages, func(t turn) bool { return t.Content.needServer() })
}

// runsHere reports whether calls of the tool run on this server.
func (t *toolParam) runsHere() bool {
	switch t.family() {
	case familySearch, familyFetch, familyCode, familyToolset:
		return true
	}
	return false
}

// needServer reports whether a block has a file of this server, or belongs to a tool that runs on it.
func (b blocks) needServer() bool {
	for i := range b {
		switch each := &b[i]; each.Type {
		case "server_tool_use":
			if !searchName(each.Name) {
				return true
			}
		case "mcp_tool_use", "container_upload":
			return true
		case "image", "document":
			var s source
			if json.Unmarshal(each.Source, &s) != nil || s.Type == "file" || s.Content.needServer() {
				return true
			}
		case "tool_result":
			if content, err := decodeBlocks(each.Content); err != nil || content.needServer() {
				return true
			}
		default:
			if strings.HasSuffix(each.Type, "_tool_result") && each.Type != "tool_search_tool_result" {
				return true
			}
		}
	}
	return false
}

// passed is a request that passes to an upstream.
type passed struct {
	*messageRequest
	body []byte
}

// forwarded returns the request for the upstream. header is that of the client's request.
func (m passed) forwarded(header http.Header) (engine.ForwardRequest, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(m.body, &fields); err != nil {
		return engine.ForwardRequest{}, fmt.Errorf("decode a checked body: %w", err)
	}
	for name, value := range fields {
		if string(value) == "null" {
			delete(fields, name)
		}
	}
	betas := header.Values(betaHeader)
	var inBody []string
	if json.Unmarshal(fields["anthropic_beta"], &inBody) == nil {
		betas = append(betas[:len(betas):len(betas)], inBody...)
	}
	delete(fields, "anthropic_beta")
	delete(fields, "thread") // another upstream may answer the next request
	forwarded := model.Forwarded{Endpoint: model.EndpointMessages, Fields: fields, Stream: m.Stream}
	if len(betas) > 0 {
		forwarded.Header = map[string][]string{http.CanonicalHeaderKey(betaHeader): {strings.Join(betas, ",")}}
	}
	return engine.ForwardRequest{Model: m.Model, MaxTokens: *m.MaxTokens, Forwarded: forwarded}, nil
}

// betaHeader is the header in which clients ask for beta features.
const betaHeader = "anthropic-beta"

// pass answers with the answer of the upstream.
func (d *Door) pass(x *exchange.Exchange, r *http.Request, c berth.Caller, m passed, gone func()) error {
	req, err := m.forwarded(r.Header)
	if err != nil {
		return err
	}
	x.Settle()
	if m.Stream {
		return stream(x, gone, func(out *exchange.EventWriter) error { return d.relay(r.Context(), c, req, out) })
	}
	var whole json.RawMessage
	for answer, err := range d.upstreams.Send(r.Context(), c, req) {
		if err != nil {
			return err
		}
		whole = answer
	}
	return x.JSON(http.StatusOK, whole) // after it was counted
}

// relay sends the events of the upstream.
func (d *Door) relay(ctx context.Context, c berth.Caller, req engine.ForwardRequest, out *exchange.EventWriter) error {
	for event, err := range d.upstreams.Send(ctx, c, req) {
		if err != nil {
			return err
		}
		var typed bare
		if err := json.Unmarshal(event, &typed); err != nil {
			return fmt.Errorf("decode event: %w", err)
		}
		if out.Raw(typed.Type, event) != nil {
			return errGone
		}
	}
	return nil
}
