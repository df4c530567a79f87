// Package contract holds the part of OpenAI's OpenAPI document that Berth serves, and checks
// answers against it, in tests.
package contract

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:generate sh -c "go run ./distill \"$OPENAPI\" >contract.json"

//go:embed contract.json
var text string

// url identifies the document in the schema compiler.
const url = "contract.json"

// A Document is the contract: its operations and their schemas. It is safe for
// concurrent use.
type Document struct {
	Operations []*Operation
	Schemas    map[string]any // by name, as JSON

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

// An Operation is a method of a path.
type Operation struct {
	ID      string // OpenAI's operationId
	Method  string
	Path    string // below /v1, with its parameters: /responses/{response_id}
	Query   []Parameter
	Request map[string]any            // schemas by media type
	Answers map[string]map[string]any // schemas by status and media type

	document *Document
	pointer  string
}

// A Parameter is a parameter of the query.
type Parameter struct {
	Name     string
	Required bool
	Schema   any
}

// Load reads the contract.
var Load = sync.OnceValue(func() *Document {
	d, err := load(Tree())
	if err != nil {
		panic(err) // the embedded file is broken
	}
	return d
})

// Tree returns the contract as JSON: its "operations" and "schemas". Numbers are json.Numbers.
// The caller may change it.
func Tree() map[string]any {
	tree, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		panic(err) // the embedded file is broken
	}
	amend(tree.(map[string]any))
	return tree.(map[string]any)
}

// load reads a tree.
func load(tree map[string]any) (*Document, error) {
	d := &Document{compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}}
	if err := d.compiler.AddResource(url, tree); err != nil {
		return nil, fmt.Errorf("read schemas: %w", err)
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("encode document: %w", err)
	}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("decode document: %w", err)
	}
	for i, op := range d.Operations {
		op.document, op.pointer = d, fmt.Sprintf("/operations/%d", i)
	}
	return d, nil
}

// Find returns the operation of a request, or nil. A path without parameters takes
// precedence over one with parameters.
func (d *Document) Find(method, path string) *Operation {
	var found *Operation
	for _, op := range d.Operations {
		if op.Method == method && op.matches(path) &&
			(found == nil || strings.Count(op.Path, "{") < strings.Count(found.Path, "{")) {
			found = op
		}
	}
	return found
}

func (op *Operation) matches(path string) bool {
	want, got := strings.Split(op.Path, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if want[i] != got[i] && (!strings.HasPrefix(want[i], "{") || got[i] == "") {
			return false
		}
	}
	return true
}

func (op *Operation) String() string { return op.Method + " " + op.Path }

// CheckRequest checks the body of a request.
func (op *Operation) CheckRequest(kind string, body []byte) error {
	if op.Request[kind] == nil {
		return fmt.Errorf("%s does not accept %s", op, kind)
	}
	return op.document.check(op.pointer+"/request/"+strings.ReplaceAll(kind, "/", "~1"), body)
}

// Answer checks the body of an answer. Event checks those of streams.
func (op *Operation) Answer(status int, kind string, body []byte) error {
	if status >= http.StatusBadRequest {
		return op.document.check("/schemas/ErrorResponse", body)
	}
	kinds, known := op.Answers[fmt.Sprint(status)]
	if !known {
		return fmt.Errorf("%s does not answer %d", op, status)
	}
	if kind != "application/json" {
		return nil // bytes, which no schema describes
	}
	if _, known := kinds[kind]; !known {
		if len(kinds) > 0 {
			return fmt.Errorf("%s does not answer %s", op, kind)
		}
		return nil
	}
	return op.document.check(op.schema(status, kind), body)
}

// Event checks one event of a stream: against the schema for the "type" of its data or, for
// the Assistants API, against the schema for its name.
func (op *Operation) Event(name string, data []byte) error {
	const kind = "text/event-stream"
	schema, known := op.Answers["200"][kind]
	if !known {
		return fmt.Errorf("%s answers no stream", op)
	}
	if ref, _ := schema.(map[string]any); ref["$ref"] == assistantEvents {
		named, err := json.Marshal(map[string]any{"event": name, "data": json.RawMessage(data)})
		if err != nil {
			return err
		}
		return op.document.check(op.schema(http.StatusOK, kind), named)
	}
	var ev struct{ Type string }
	_ = json.Unmarshal(data, &ev) // the check below reports invalid JSON
	if slices.Contains(extensions, ev.Type) {
		return nil
	}
	for _, name := range op.document.alternatives(schema) {
		if slices.Contains(op.document.typesOf(name), ev.Type) {
			return op.document.check("/schemas/"+name, data)
		}
	}
	return op.document.check(op.schema(http.StatusOK, kind), data)
}

// alternatives returns the names of the alternative schemas.
func (d *Document) alternatives(schema any) (names []string) {
	s, _ := schema.(map[string]any)
	if ref, ok := s["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, "#/schemas/")
		below, _ := d.Schemas[name].(map[string]any)
		if below["anyOf"] == nil {
			return []string{name}
		}
		s = below
	}
	alternatives, _ := s["anyOf"].([]any)
	for _, a := range alternatives {
		names = append(names, d.alternatives(a)...)
	}
	return names
}

// typesOf returns the allowed values of an object's "type".
func (d *Document) typesOf(name string) (types []string) {
	schema, _ := d.Schemas[name].(map[string]any)
	properties, _ := schema["properties"].(map[string]any)
	kind, _ := properties["type"].(map[string]any)
	enum, _ := kind["enum"].([]any)
	for _, v := range enum {
		types = append(types, fmt.Sprint(v))
	}
	return types
}

func (op *Operation) schema(status int, kind string) string {
	return fmt.Sprintf("%s/answers/%d/%s", op.pointer, status, strings.ReplaceAll(kind, "/", "~1"))
}

// check validates JSON against the schema at a place in the document.
func (d *Document) check(pointer string, body []byte) error {
	schema, err := d.compile(pointer)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(body)))
	if err != nil {
		return fmt.Errorf("decode body: %w", err)
	}
	return explain(schema.Validate(v))
}

func (d *Document) compile(pointer string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.compiled[pointer]; s != nil {
		return s, nil
	}
	s, err := d.compiler.Compile(url + "#" + pointer)
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", pointer, err)
	}
	d.compiled[pointer] = s
	return s, nil
}
