package scim

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// maxOperations bounds the operations of a request.
const maxOperations = 1000

// A patch is a PatchOp.
type patch struct {
	Schemas    []string
	Operations []operation
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *patch) UnmarshalJSON(raw []byte) error {
	type plain patch
	if err := json.Unmarshal(raw, (*plain)(p)); err != nil {
		return err
	}
	if !slices.Contains(p.Schemas, schemaPatch) {
		return invalid("invalidSyntax", "schemas lacks "+schemaPatch+".")
	}
	if len(p.Operations) == 0 || len(p.Operations) > maxOperations {
		return invalid("invalidSyntax", "Operations has none, or more than 1000.")
	}
	for _, o := range p.Operations {
		switch op := strings.ToLower(o.Op); {
		case op != "add" && op != "replace" && op != "remove":
			return invalid("invalidSyntax", "op is none of add, replace and remove.")
		case op == "remove" && o.Path == "":
			return invalid("noTarget", "remove needs a path.")
		case op != "remove" && len(o.Value) == 0:
			return invalid("invalidValue", op+" needs a value.")
		case len(o.Path) > maxFilter:
			return invalid("invalidPath", "The path is too long.")
		}
	}
	return nil
}

// An operation changes attributes. Entra ID begins its op with a capital letter.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"`
}

// each calls set with each attribute that the operation changes: the path in lower case, and the value, which is nil
// for one that is removed. Without a path, the value has the attributes.
func (o operation) each(set func(path string, value json.RawMessage) error) error {
	if strings.EqualFold(o.Op, "remove") {
		return set(attributeOf(o.Path), nil)
	}
	if o.Path != "" {
		return set(attributeOf(o.Path), o.Value)
	}
	var attributes map[string]json.RawMessage
	if json.Unmarshal(o.Value, &attributes) != nil {
		return invalid("invalidValue", "Without a path, the value is an object.")
	}
	for name, value := range attributes {
		if err := set(attributeOf(name), value); err != nil {
			return err
		}
	}
	return nil
}

// oneMember matches the path of one member, as Okta sends it.
var oneMember = regexp.MustCompile(`(?i)^members\[\s*value\s+eq\s+"([^"\\]*)"\s*\]$`)
