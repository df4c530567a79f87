package tool

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// A Client is embedded in each Tool that the client runs.
type Client struct{}

// ResumeCall returns an error, because the server runs no such call.
func (Client) ResumeCall(berth.Item, berth.Item, []berth.Event) (Call, error) {
	return nil, errNotHosted
}

// A ClientCall is embedded in each Call that the client answers.
type ClientCall struct{}

// Run returns an error, because the server runs no such call.
func (ClientCall) Run(context.Context, Emitter) error { return errNotHosted }

var errNotHosted = errors.New("a call for the client cannot run on the server")

// NamedRules returns the rules for a kind of client tools that have names, as functions
// and custom tools have: offered for an entry of "tools", and the fields of calls and
// outputs besides those that every such item has. text is the field of a call that holds
// what the model wrote.
func NamedRules(offered rule.Rule, text string, output rule.Fields) Rules {
	name := rule.Text(1, 128)
	chosen := rule.Object(rule.Fields{"type": rule.AnyText, "name": name, "namespace": rule.NamespaceName}, "name")
	call := rule.Fields{"name": name, "namespace": rule.NamespaceName, text: rule.AnyText}
	return Rules{Tool: offered, Found: offered, Inner: offered, Choice: chosen, Subset: chosen,
		Call: rule.Call(call, "name", text), Output: rule.Call(output, "output")}
}

// Decode reads an entry of "tools" into T. what names its kind in the client's error.
func Decode[T any](t berth.Tool, what string) (T, error) {
	var decoded T
	if err := t.Decode(&decoded); err != nil {
		return decoded, berth.Invalid("", "Invalid %s: %v.", what, err)
	}
	return decoded, nil
}

// Unknown returns a call of a function that the model was not offered. Its Close refuses
// it, and the wire does not show it: the client could not answer it either.
func Unknown(name string) Call {
	return Refused(fmt.Sprintf("There is no function named %q. Use one of the functions that you were given.", name))
}
