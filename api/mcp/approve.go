package mcp

import (
	"errors"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth/internal/rule"
)

// approval is the id of the question whether a call may run.
const approval = "approval"

// maxShown bounds the arguments of a call that its user sees, in bytes.
const maxShown = 4096

// approve has the user of a client approve a call. It returns the question until the client has answered it.
func approve(t *sdk.Tool, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	if answer, ok := req.Params.InputResponses[approval].(*sdk.ElicitResult); ok {
		if answer.Action != "accept" {
			return nil, errors.New("the user has not approved this call")
		}
		return nil, nil
	}
	if client := req.Session.InitializeParams(); client == nil || client.Capabilities == nil ||
		client.Capabilities.Elicitation == nil {
		return nil, errors.New("this connection needs the approval of each change, and the client cannot ask its user: " +
			"use a client with elicitation, or a URL without approval=always")
	}
	arguments := string(req.Params.Arguments)
	if len(arguments) > maxShown {
		arguments = arguments[:maxShown] + "…"
	}
	return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{approval: &sdk.ElicitParams{Mode: "form",
		Message:         fmt.Sprintf("Run %s (%s)? %s", t.Name, rule.Clip(t.Title), arguments),
		RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}}}}, nil
}
