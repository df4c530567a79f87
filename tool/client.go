package tool

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
)

// Client is embedded in each Tool that the client runs.
type Client struct{}

// ResumeCall returns an error: the server runs no such call.
func (Client) ResumeCall(berth.Item, berth.Item, []berth.Event) (Call, error) {
	return nil, errNotHosted
}

// ClientCall is embedded in each Call that the client answers.
type ClientCall struct{}

// Run returns an error: the server runs no such call.
func (ClientCall) Run(context.Context, Emitter) error { return errNotHosted }

var errNotHosted = errors.New("the server was asked to run a call of the client's")

// Unknown returns a call of a function that the model was not offered. It is refused,
// and nothing of it is shown: the client could not answer it either.
func Unknown(name string) Call { return unknownCall{name: name} }

type unknownCall struct {
	ClientCall
	name string
}

func (unknownCall) Item() berth.Item           { return berth.Item{} }
func (unknownCall) Write(string) []berth.Event { return nil }

func (c unknownCall) Close(string) ([]berth.Event, berth.Item, string) {
	return nil, berth.Item{}, fmt.Sprintf("There is no function named %q. Use one of the functions that you were given.", c.name)
}
