package reference

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// metaschema is the OpenAPI Initiative's schema of OpenAPI 3.1 documents, of 2022-10-07.
//
//go:embed oas31.json
var metaschema []byte

// Validate checks that a document is one of OpenAPI 3.1 and that each schema of its components,
// with all schemas to which it refers, is one of JSON Schema.
func Validate(doc []byte) error {
	const meta, name = "oas31.json", "openapi.json"
	c := jsonschema.NewCompiler()
	for url, text := range map[string][]byte{meta: metaschema, name: doc} {
		tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err == nil {
			err = c.AddResource(url, tree)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", url, err)
		}
	}
	form, err := c.Compile(meta)
	if err != nil {
		return fmt.Errorf("compile the schema of OpenAPI: %w", err)
	}
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return fmt.Errorf("read document: %w", err)
	}
	if err := form.Validate(tree); err != nil {
		return fmt.Errorf("validate document: %w", err)
	}
	return walkSchemas(tree, "", func(pointer string) error {
		if _, err := c.Compile(name + "#" + pointer); err != nil {
			return fmt.Errorf("schema at %s: %w", pointer, err)
		}
		return nil
	})
}

// walkSchemas visits the pointers of the schemas of components, parameters and bodies.
func walkSchemas(v any, at string, visit func(pointer string) error) error {
	switch v := v.(type) {
	case object:
		for key, e := range v {
			pointer := at + "/" + escape.Replace(key)
			if key == "schema" || at == "/components/schemas" {
				if err := visit(pointer); err != nil {
					return err
				}
				continue
			}
			if err := walkSchemas(e, pointer, visit); err != nil {
				return err
			}
		}
	case []any:
		for i, e := range v {
			if err := walkSchemas(e, fmt.Sprintf("%s/%d", at, i), visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// escape escapes a key in a JSON pointer of a URL's fragment.
var escape = strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D", "*", "%2A")
