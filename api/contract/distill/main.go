// Command distill reduces OpenAI's OpenAPI document to the parts that package contract
// needs: the operations in scope and the names, types and structure of their schemas,
// without prose.
//
//	go run ./api/contract/distill openapi.json >api/contract/contract.json
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// scope are the paths in scope, including those below them.
var scope = []string{"/responses", "/conversations", "/containers", "/files", "/uploads", "/batches", "/models",
	"/chat/completions",
	"/assistants", "/threads", "/embeddings", "/moderations", "/skills", "/vector_stores", "/organization/costs",
	"/organization/usage/completions", "/organization/usage/embeddings", "/organization/usage/moderations",
	"/organization/usage/code_interpreter_sessions"}

// exact are further paths in scope, without those below them.
var exact = []string{"/organization/admin_api_keys", "/organization/admin_api_keys/{key_id}", "/organization/projects",
	"/organization/projects/{project_id}",
	"/organization/projects/{project_id}/archive", "/organization/projects/{project_id}/api_keys",
	"/organization/projects/{project_id}/api_keys/{api_key_id}"}

// streamed are schemas of events, to which no operation refers.
var streamed = []string{"AssistantStreamEvent"}

// prose are keywords that do not restrict values. "format" is one of them, because no
// validator checks values such as "uri"; schema keeps "binary", which generators of clients need.
var prose = []string{"description", "title", "example", "examples", "deprecated", "default", "discriminator", "format",
	"externalDocs"}

var methods = []string{"get", "post", "put", "patch", "delete"}

type object = map[string]any

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "distill:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: distill openapi.json")
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	var doc struct {
		Paths      map[string]object
		Components object
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return err
	}
	d := distiller{components: doc.Components, schemas: object{}}
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		if inScope(path) {
			d.path(path, doc.Paths[path])
		}
	}
	for _, name := range streamed {
		d.reach("#/components/schemas/" + name)
	}
	return d.write(os.Stdout)
}

// write writes one operation or schema a line, so that a diff shows which changed.
func (d *distiller) write(w io.Writer) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	line := func(before string, v any) error {
		out.WriteString(before)
		err := enc.Encode(v)
		out.Truncate(out.Len() - 1)
		return err
	}
	comma := "{\"operations\":[\n"
	for _, op := range d.operations {
		if err := line(comma, op); err != nil {
			return err
		}
		comma = ",\n"
	}
	comma = "],\n\"schemas\":{\n"
	for _, name := range slices.Sorted(maps.Keys(d.schemas)) {
		if err := line(comma+fmt.Sprintf("%q:", name), d.schemas[name]); err != nil {
			return err
		}
		comma = ",\n"
	}
	out.WriteString("}}\n")
	_, err := out.WriteTo(w)
	return err
}

func inScope(path string) bool {
	if strings.Contains(path, "?") {
		return false
	}
	return slices.Contains(exact, path) || slices.ContainsFunc(scope, func(s string) bool {
		return path == s || strings.HasPrefix(path, s+"/")
	})
}

type distiller struct {
	components object
	schemas    object // the schemas reached so far
	operations []object
}

func (d *distiller) path(path string, item object) {
	for _, method := range methods {
		op, ok := item[method].(object)
		if !ok {
			continue
		}
		out := object{"method": strings.ToUpper(method), "path": path, "id": op["operationId"], "answers": object{}}
		var parameters []any
		shared, _ := item["parameters"].([]any)
		own, _ := op["parameters"].([]any)
		for _, p := range slices.Concat(shared, own) {
			p := d.follow(p.(object))
			if p["in"] == "query" {
				parameters = append(parameters, object{"name": p["name"], "required": p["required"] == true,
					"schema": d.schema(p["schema"], false)})
			}
		}
		if parameters != nil {
			out["query"] = parameters
		}
		if body, ok := op["requestBody"].(object); ok {
			out["request"] = d.content(d.follow(body))
		}
		for status, answer := range op["responses"].(object) {
			out["answers"].(object)[status] = d.content(d.follow(answer.(object)))
		}
		d.operations = append(d.operations, out)
	}
}

// content returns the schemas of a body by its media type.
func (d *distiller) content(body object) object {
	out := object{}
	content, _ := body["content"].(object)
	for kind, media := range content {
		out[kind] = d.schema(media.(object)["schema"], false)
	}
	return out
}

// follow resolves a reference to a parameter or body.
func (d *distiller) follow(o object) object {
	ref, ok := o["$ref"].(string)
	if !ok {
		return o
	}
	kind, name, _ := strings.Cut(strings.TrimPrefix(ref, "#/components/"), "/")
	return d.components[kind].(object)[name].(object)
}

// schema returns a schema without its prose. It replaces oneOf by anyOf, because the
// document's alternatives are not always disjoint.
func (d *distiller) schema(v any, names bool) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = d.schema(e, false)
		}
		return out
	case object:
		if ref, ok := v["$ref"].(string); ok && !names {
			return object{"$ref": "#/schemas/" + d.reach(ref)}
		}
		out := object{}
		for key, e := range v {
			switch {
			case names:
				out[key] = d.schema(e, false)
			case key == "format" && e == "binary":
				out[key] = e
			case key == "nullable" || slices.Contains(prose, key) || strings.HasPrefix(key, "x-") ||
				strings.HasPrefix(key, "$"):
			case key == "oneOf":
				out["anyOf"] = d.schema(e, false)
			case key == "required":
				out[key] = distinct(e.([]any))
			case key == "enum" || key == "const":
				out[key] = e
			default:
				out[key] = d.schema(e, key == "properties")
			}
		}
		if v["nullable"] == true && !names {
			return object{"anyOf": []any{out, object{"type": "null"}}}
		}
		return out
	}
	return v
}

func (d *distiller) reach(ref string) string {
	name := strings.TrimPrefix(ref, "#/components/schemas/")
	if d.schemas[name] == nil {
		d.schemas[name] = object{} // the schema may refer to itself
		d.schemas[name] = d.schema(d.components["schemas"].(object)[name], false)
	}
	return name
}

func distinct(names []any) []any {
	out := []any{}
	for _, n := range names {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}
