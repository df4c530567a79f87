// Package assistants is the Assistants API as a way to ask for responses.
//
// A Service knows no HTTP; a Door serves it. Assistants, threads, messages and runs are
// objects in the store. A run is a chain of responses, its legs: one from its start, and one from
// each submission of tool outputs, to the next halt. What the engine has done for a
// leg is in the leg's response, and a run's status, steps and messages are derived
// from there for each request (Record.View, Record.Steps), so no process has to live as
// long as a run. How a run has ended is saved once.
package assistants

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// The kinds of objects in the store. Messages and runs belong to their thread.
const (
	kindAssistant = store.KindAssistant
	kindThread    = store.KindThread
	kindMessage   = store.KindMessage
	kindRun       = store.KindRun

	// kindNext is the place after a run, or at the beginning of a thread. There is one, and
	// the run that acquires it never releases it, so two runs cannot follow the same one.
	kindNext = store.KindNextRun
)

// Prefixes of identifiers.
const (
	prefixAssistant = "asst_"
	prefixThread    = "thread_"
	prefixRun       = "run_"
	prefixStep      = "step_"
)

// orEmpty and the two after it fill in what the wire shows where nothing was given.
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

// notFound is OpenAI's answer to an id that is unknown or another project's.
func notFound(what, id string) error {
	return berth.Errorf(berth.CodeNotFound, "No %s found with id '%s'.", what, clip(id))
}

// clip shortens what a client sent for use in a message.
func clip(s string) string {
	const most = 100
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// derivedID is the id of what came of one place in a response's output. It is the
// same whenever it is derived.
func derivedID(prefix string, r berth.ResponseID, index int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", r, index))
	return prefix + hex.EncodeToString(sum[:24])
}
