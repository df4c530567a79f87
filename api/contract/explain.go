package contract

import (
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

var english = message.NewPrinter(language.English)

// explain reduces a validation error to its most relevant cause. If all alternatives fail,
// that is a cause in the alternative that fails deepest: those of another type fail immediately.
func explain(err error) error {
	e, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return err
	}
	cause, _ := deepest(e)
	_, schema, _ := strings.Cut(cause.SchemaURL, "#")
	return fmt.Errorf("at /%s: %s (%s)", strings.Join(cause.InstanceLocation, "/"),
		cause.ErrorKind.LocalizedString(english), schema)
}

// deepest returns the leaf of the cause tree that is deepest in the value, and its rank. A
// wrong "type" gets a lower rank.
func deepest(e *jsonschema.ValidationError) (leaf *jsonschema.ValidationError, rank int) {
	if len(e.Causes) == 0 {
		rank = 2 * len(e.InstanceLocation)
		if n := len(e.InstanceLocation); n > 0 && e.InstanceLocation[n-1] == "type" {
			rank -= 3
		}
		return e, rank
	}
	leaf, rank = deepest(e.Causes[0])
	for _, c := range e.Causes[1:] {
		if l, r := deepest(c); r > rank {
			leaf, rank = l, r
		}
	}
	return leaf, rank
}
