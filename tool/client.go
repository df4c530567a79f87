package tool

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
)

// client is part of each tool that the client runs.
type client struct{}

func (client) ResumeCall(berth.Item, berth.Item, []berth.Event) (Call, error) {
	return nil, errNotHosted
}

// clientCall is part of each call that the client answers.
type clientCall struct{}

func (clientCall) Run(context.Context, Emitter) error { return errNotHosted }

var errNotHosted = errors.New("a call of the client's was to be run on the server")

// Unknown returns a call of a function that nobody offered. It is refused, and
// nothing of it is shown: the client could not answer it either.
func Unknown(name string) Call { return unknownCall{name: name} }

type unknownCall struct {
	clientCall
	name string
}

func (unknownCall) Item() berth.Item           { return berth.Item{} }
func (unknownCall) Write(string) []berth.Event { return nil }

func (c unknownCall) Close(string) ([]berth.Event, berth.Item, string) {
	return nil, berth.Item{}, fmt.Sprintf("There is no function named %q. Use one of the functions that you were given.", c.name)
}
