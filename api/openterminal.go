package api

import (
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/openterminal"
	"github.com/berth-run/berth/container/process"
)

// A TerminalContainer describes the containers of the users of Open Terminal's API.
type TerminalContainer = openterminal.ContainerSpec

// OpenTerminalOptions are the parts of Open Terminal's API. It uses the sessions of MCPOptions.
type OpenTerminalOptions struct {
	Processes *process.Service // nil does not serve it
	Container TerminalContainer
	Prompt    string // see openterminal.Options
}

// newOpenTerminal returns the door of Open Terminal's API, or nil if it is not served.
func newOpenTerminal(o Options, ex *exchange.Server) *openterminal.Door {
	if o.OpenTerminal.Processes == nil || o.MCP.Sessions == nil {
		return nil
	}
	return openterminal.New(openterminal.Options{Exchange: ex, Containers: o.Containers, Sessions: o.MCP.Sessions,
		Processes: o.OpenTerminal.Processes, Placement: o.Exchange.Placement, Container: o.OpenTerminal.Container,
		Prompt: o.OpenTerminal.Prompt, Log: o.Exchange.Log})
}
