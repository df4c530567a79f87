// Package berth holds the nouns of Berth, the agent runtime that its users own:
// responses, items, events, tools, containers and files, each with exactly the
// JSON that OpenAI's Responses API gives it on the wire.
//
// There is one set of types in the house. The door decodes into them, the store
// keeps their JSON, the event stream sends it. What Berth does not know — a new
// field, a new type of item — survives the round trip untouched.
//
// Read in this order: Response (response.go) is one request and all that is done
// to answer it; it is the fold of its Events (event.go); its input and output
// are Items (item.go); a Tool (tool.go) is what a model may call; the shell tool
// runs in a Container (container.go). docs/life-of-a-response.md follows one
// request through the packages.
//
// The HTTP API is the promise. Go packages carry none before version 1.
package berth
