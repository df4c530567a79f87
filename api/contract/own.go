package contract

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Own reads the operations of an OpenAPI document that are marked x-berth, those that are not
// OpenAI's, as far as they answer with JSON or events.
func Own(openapi []byte) (*Document, error) {
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(bytes.ReplaceAll(openapi, []byte("#/components/schemas/"),
		[]byte("#/schemas/"))))
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	doc := tree.(map[string]any)
	operations := []any{}
	for path, item := range doc["paths"].(map[string]any) {
		path, below := strings.CutPrefix(path, Prefix)
		for method, op := range item.(map[string]any) {
			op := op.(map[string]any)
			if !below || op["x-berth"] != true || strings.HasSuffix(path, "/{path}") {
				continue
			}
			operations = append(operations, map[string]any{"method": strings.ToUpper(method), "path": path,
				"answers": answers(op["responses"])})
		}
	}
	return load(map[string]any{"operations": operations, "schemas": doc["components"].(map[string]any)["schemas"]})
}

// answers returns the schemas of an operation's answers by status and media type.
func answers(responses any) map[string]any {
	out := map[string]any{}
	for status, answer := range responses.(map[string]any) {
		if status == "default" {
			continue
		}
		kinds := map[string]any{}
		content, _ := answer.(map[string]any)["content"].(map[string]any)
		for _, kind := range []string{"application/json", "text/event-stream"} {
			if media, ok := content[kind].(map[string]any); ok {
				kinds[kind] = media["schema"]
			}
		}
		out[status] = kinds
	}
	return out
}
