// Package goclients uses clients of OpenAI's API for Go, other than OpenAI's own,
// against the server at OPENAI_BASE_URL. It is a module of its own, so that their
// dependencies are not the house's.
package goclients

import (
	"encoding/json"
	"os"
	"testing"
)

// The models of the server: one that recites inside it, and one that recites behind
// it, which speaks Chat Completions.
const (
	scripted = "scripted"
	reciter  = "reciter"
)

func baseURL(t *testing.T) string {
	t.Helper()
	url := os.Getenv("OPENAI_BASE_URL")
	if url == "" {
		t.Skip("skipped: OPENAI_BASE_URL names no server; make test-clients starts one")
	}
	return url
}

// sh is a message that has the scripted model run a command.
func sh(command string) string { return "```sh\n" + command + "\n```\n" }

// block is a message that has the reciter call a function.
func block(function string, arguments any) string {
	raw, err := json.Marshal(arguments)
	if err != nil {
		panic(err)
	}
	return "```" + function + "\n" + string(raw) + "\n```\n"
}

type port struct {
	Port string `json:"port"`
}

// twoTides asks for two calls of the function tide, one turn each.
var twoTides = block("tide", port{"Brest"}) + block("tide", port{"Kiel"})

const atKiel = "It came to this: high at noon in Kiel"

func tide(arguments string) string {
	var p port
	if err := json.Unmarshal([]byte(arguments), &p); err != nil {
		return err.Error()
	}
	return "high at noon in " + p.Port
}

// parameters are those of the function tide.
var parameters = map[string]any{"type": "object",
	"properties": map[string]any{"port": map[string]any{"type": "string"}}, "required": []string{"port"}}
