// Package threads implements the assistants, threads and runs of OpenAI's Assistants API with responses.
//
// A Service implements the operations; api/assistants serves them over HTTP. Assistants, threads,
// messages and runs are objects in the store. A run is a chain of responses, called legs.
// The first leg starts with the run, each further one with a submission of tool outputs.
// A leg ends when the run ends or waits for outputs. For each request, the status, steps
// and messages of a run are derived from the responses of its legs (Record.View,
// Record.Steps), so no process has to live as long as a run. The end of a run is saved
// once.
package threads

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// The kinds of objects in the store. The parent of messages and runs is their thread.
const (
	kindAssistant = store.KindAssistant
	kindThread    = store.KindThread
	kindMessage   = store.KindMessage
	kindRun       = store.KindRun

	// kindNext is the slot after a run, or at the start of a thread. The run that follows
	// creates it, and only one run can, so two runs cannot follow the same one.
	kindNext = store.KindNextRun
)

// Prefixes of identifiers.
const (
	prefixAssistant = "asst_"
	prefixThread    = "thread_"
	prefixRun       = "run_"
	prefixStep      = "step_"
)

// orEmpty, orEmptyMap and orRaw return the default of an absent value.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func orEmptyMap(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func orRaw(raw json.RawMessage, otherwise string) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage(otherwise)
	}
	return raw
}

// notFound returns OpenAI's error for an id that is unknown or belongs to another project.
func notFound(what, id string) error {
	return berth.Errorf(berth.CodeNotFound, "No %s found with id '%s'.", what, rule.Clip(id))
}

// derivedID returns the id of the step or message that is derived from an item of a
// response's output. The same item always has the same id.
func derivedID(prefix string, r berth.ResponseID, index int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", r, index))
	return prefix + hex.EncodeToString(sum[:24])
}
