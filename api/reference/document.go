package reference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/contract"
)

// Options are what a document needs besides its routes.
type Options struct {
	Root, Module string                  // the directory and the path of the Go module, for comments
	Special      map[reflect.Type]object // schemas of types that marshal themselves
	// by the name of a schema of OpenAI's: a value of the type of its field "berth"
	Extensions map[string]any
}

const description = "Berth serves OpenAI's API for responses, containers and more, and routes of its own beside it. " +
	"Schemas of OpenAI's routes are those of OpenAI's document, without its prose. Berth refuses request fields that it does not serve with 400 and " +
	"the code unsupported_parameter or unsupported_value; " + berth.DocsURL +
	"divergences.md lists them. A route marked x-berth is not in OpenAI's document."

// document is a document that is being made.
type document struct {
	schemer
	operations map[string]map[string]object // by path and method
	ids        map[string]string            // patterns by operation id
	bodies     map[reflect.Type]string      // names of the components of requests
	problems   []string
}

// Document returns the OpenAPI document of the routes: one line for each path and schema, so
// that a diff shows which changed.
func Document(sections []Section, opts Options) ([]byte, error) {
	tree := contract.Tree()
	schemas := rename(tree["schemas"]).(object)
	d := &document{operations: map[string]map[string]object{}, ids: map[string]string{},
		bodies: map[reflect.Type]string{}}
	d.schemer = schemer{components: schemas, taken: map[string]bool{}, names: map[namedStruct]string{},
		special:  opts.Special,
		comments: &comments{opts.Root, opts.Module, map[string]map[string]string{}}}
	for name := range schemas {
		d.taken[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(opts.Extensions)) {
		d.extend(name, d.schema(reflect.TypeOf(opts.Extensions[name]), strings.HasPrefix(name, "Create")))
	}
	theirs := map[string]object{}
	for _, op := range tree["operations"].([]any) {
		op := rename(op).(object)
		theirs[op["method"].(string)+" "+contract.Prefix+unnamed(op["path"].(string))] = op
	}
	var tags []any
	for _, section := range sections {
		tags = append(tags, object{"name": section.Name})
		for _, r := range section.Routes {
			for _, method := range r.methods {
				op := theirs[method+" "+unnamed(r.path())]
				if (op == nil) != r.own() {
					d.problems = append(d.problems,
						fmt.Sprintf("%s: describe the types of Berth's own routes, and of no others", r.Pattern))
					continue
				}
				d.add(section, r, method, op)
			}
		}
	}
	if d.problems != nil {
		return nil, fmt.Errorf("reference: %s", strings.Join(d.problems, "; "))
	}
	return d.write(tags)
}

var parameter = regexp.MustCompile(`\{(\w+)(\.\.\.)?\}`)

// unnamed returns a path with the names of its parameters removed.
func unnamed(path string) string {
	return parameter.ReplaceAllString(strings.TrimSuffix(path, "{$}"), "{}")
}

// add adds the operation of a route. theirs is OpenAI's, or nil.
func (d *document) add(section Section, r *Route, method string, theirs object) {
	path := strings.TrimSuffix(r.path(), "{$}")
	op := object{"summary": r.Summary, "tags": []any{section.Name}, "operationId": d.id(r, method)}
	if theirs != nil {
		path = contract.Prefix + theirs["path"].(string)
		op["operationId"] = theirs["id"]
	} else {
		op["x-berth"] = true
		path = parameter.ReplaceAllStringFunc(path, parameterName)
	}
	if r.Page != "" {
		op["externalDocs"] = object{"url": berth.DocsURL + r.Page}
	}
	if r.keyless {
		op["security"] = []any{}
	}
	if was, taken := d.ids[op["operationId"].(string)]; taken {
		d.problems = append(d.problems, fmt.Sprintf("%s and %s have the same operation id %s", was, r.Pattern,
			op["operationId"]))
	}
	d.ids[op["operationId"].(string)] = r.Pattern
	d.parameters(op, r, path, theirs)
	d.request(op, r, method, theirs)
	d.responses(op, r, theirs)
	if d.operations[path] == nil {
		d.operations[path] = map[string]object{}
	}
	d.operations[path][strings.ToLower(method)] = op
}

// id returns the operation id of one of Berth's own routes, made of its summary: createVolume.
func (d *document) id(r *Route, method string) string {
	id := ""
	summary, _, _ := strings.Cut(r.Summary, ",")
	for _, word := range strings.FieldsFunc(summary, func(c rune) bool { return c == ' ' || c == '\'' || c == '-' }) {
		if !slices.Contains([]string{"a", "an", "the", "s"}, word) {
			id += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	if len(r.methods) > 1 {
		id += "By" + method[:1] + strings.ToLower(method[1:])
	}
	return strings.ToLower(id[:1]) + id[1:]
}

// parameterName returns the parameter of a path as OpenAI names its own: {container_id}.
func parameterName(p string) string {
	name := strings.Trim(p, "{}.")
	if !slices.Contains([]string{"port", "path", "link", "version"}, name) {
		name += "_id"
	}
	return "{" + name + "}"
}

func (d *document) parameters(op object, r *Route, path string, theirs object) {
	var all []any
	for _, m := range parameter.FindAllStringSubmatch(path, -1) {
		schema := object{"type": "string"}
		if m[1] == "port" {
			schema = object{"type": "integer"}
		}
		all = append(all, object{"name": m[1], "in": "path", "required": true, "schema": schema})
	}
	for _, p := range r.query {
		schema := object{"type": p.Type}
		if p.Enum != nil {
			schema["enum"] = p.Enum
		}
		all = append(all, object{"name": p.Name, "in": "query", "required": p.Required, "schema": schema,
			"description": p.Description})
	}
	if theirs != nil {
		query, _ := theirs["query"].([]any)
		for _, p := range query {
			p := maps.Clone(p.(object))
			p["in"] = "query"
			all = append(all, p)
		}
	}
	if all != nil {
		op["parameters"] = all
	}
}

func (d *document) request(op object, r *Route, method string, theirs object) {
	if theirs != nil {
		if content, ok := theirs["request"].(object); ok {
			op["requestBody"] = object{"required": true, "content": media(content)}
		}
		return
	}
	if r.body == nil || method == http.MethodGet || method == http.MethodHead {
		return
	}
	schema := object{"type": "string", "format": "binary"}
	if r.body.value != nil {
		schema = d.bodySchema(r)
	}
	op["requestBody"] = object{"required": r.body.required,
		"content": object{r.body.mediaType: object{"schema": schema}}}
}

// bodySchema returns the schema of a JSON body, with the fields that its rule requires. If two
// routes require different fields of the same type, only the first has a component.
func (d *document) bodySchema(r *Route) object {
	t := reflect.TypeOf(r.body.value)
	schema := d.fields(t, true)
	required, err := required(r.body.rule, schema["properties"].(object))
	if err != nil {
		d.problems = append(d.problems, r.Pattern+": "+err.Error())
	}
	if required != nil {
		schema["required"] = required
	}
	name, known := d.bodies[t]
	if !known {
		name = d.name(t, "")
		d.bodies[t], d.components[name] = name, schema
	}
	if reflect.DeepEqual(d.components[name], schema) {
		return object{"$ref": "#/components/schemas/" + name}
	}
	return schema
}

func (d *document) responses(op object, r *Route, theirs object) {
	failure := object{"$ref": "#/components/responses/Error"}
	out := object{"default": failure}
	op["responses"] = out
	if theirs != nil {
		for status, content := range theirs["answers"].(object) {
			if status < "400" {
				out[status] = object{"description": "Success", "content": media(content.(object))}
			}
		}
		return
	}
	answer := object{"description": "Success"}
	if r.upgrades {
		answer["description"] = "The connection is a WebSocket"
	}
	content := object{}
	for kind, value := range r.answers {
		var schema object
		switch value := value.(type) {
		case nil:
			schema = object{"type": "string", "format": "binary"}
		case alternatives:
			var any []any
			for _, v := range value {
				any = append(any, d.schema(reflect.TypeOf(v), false))
			}
			if schema = any[0].(object); len(any) > 1 {
				schema = object{"anyOf": any}
			}
		default:
			schema = d.schema(reflect.TypeOf(value), false)
		}
		content[kind] = object{"schema": schema}
	}
	if len(content) > 0 {
		answer["content"] = content
	}
	out[strconv.Itoa(r.status)] = answer
	if r.upgrades && len(content) > 0 {
		out["200"], out["101"] = object{"description": "Success", "content": content},
			object{"description": "The connection is a WebSocket"}
	}
}

// media wraps schemas by media type.
func media(schemas object) object {
	out := object{}
	for kind, schema := range schemas {
		out[kind] = object{"schema": schema}
	}
	return out
}

// extend adds the field "berth" to one of OpenAI's schemas.
func (d *document) extend(name string, schema object) {
	target, ok := d.components[name].(object)
	if !ok {
		d.problems = append(d.problems, "OpenAI's document has no schema "+name)
		return
	}
	if properties, ok := target["properties"].(object); ok {
		properties["berth"] = schema
		return
	}
	target["allOf"] = append(target["allOf"].([]any), object{"type": "object", "properties": object{"berth": schema}})
}

// rename returns a copy of a value of the contract in which references are OpenAPI's.
func rename(v any) any {
	switch v := v.(type) {
	case object:
		out := object{}
		for key, e := range v {
			if ref, ok := e.(string); ok && key == "$ref" {
				e = strings.Replace(ref, "#/schemas/", "#/components/schemas/", 1)
			}
			out[key] = rename(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = rename(e)
		}
		return out
	}
	return v
}

// write writes the document.
func (d *document) write(tags []any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	var failed error
	line := func(before string, v any) {
		out.WriteString(before)
		if err := enc.Encode(v); err != nil {
			failed = err
		}
		out.Truncate(out.Len() - 1)
	}
	line("{\"openapi\":\"3.1.0\",\n\"info\":", object{"title": "Berth", "version": "v1", "description": description,
		"license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"}})
	line(",\n\"servers\":", []any{object{"url": "/"}})
	line(",\n\"security\":", []any{object{"key": []any{}}})
	line(",\n\"tags\":", tags)
	before := ",\n\"paths\":{\n"
	for _, path := range slices.Sorted(maps.Keys(d.operations)) {
		line(before+strconv.Quote(path)+":", d.operations[path])
		before = ",\n"
	}
	line("},\n\"components\":{\"securitySchemes\":",
		object{"key": object{"type": "http", "scheme": "bearer",
			"description": "An API key. A server without keys needs none."}})
	line(",\n\"responses\":",
		object{"Error": object{"description": "Failure",
			"content": media(object{"application/json": object{"$ref": "#/components/schemas/ErrorResponse"}})}})
	before = ",\n\"schemas\":{\n"
	for _, name := range slices.Sorted(maps.Keys(d.components)) {
		line(before+strconv.Quote(name)+":", d.components[name])
		before = ",\n"
	}
	out.WriteString("}}}\n")
	return out.Bytes(), failed
}
