package scim

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
)

// A filter compares an attribute with a text.
type filter struct{ attribute, value string }

// comparison matches a filter of RFC 7644 with one comparison: providers ask for users and groups by a name or an id.
var comparison = regexp.MustCompile(`(?i)^\s*([a-z$.:0-9]+)\s+eq\s+("(?:[^"\\]|\\.)*")\s*$`)

// maxFilter bounds the text of a filter.
const maxFilter = 1024

// filterOf returns the filter of a request, or nil, in which attributes have lower case. The attributes must be among
// those that are known.
func filterOf(r *http.Request, known ...string) (*filter, error) {
	text := r.URL.Query().Get("filter")
	if text == "" {
		return nil, nil
	}
	found := comparison.FindStringSubmatch(text)
	if found == nil || len(text) > maxFilter {
		return nil, invalid("invalidFilter", "Expected a filter such as userName eq \"ada@example.com\".")
	}
	f := &filter{attribute: attributeOf(found[1])}
	if err := json.Unmarshal([]byte(found[2]), &f.value); err != nil {
		return nil, invalid("invalidFilter", "The text of the filter is not valid.")
	}
	for _, k := range known {
		if strings.EqualFold(k, f.attribute) {
			return f, nil
		}
	}
	return nil, invalid("invalidFilter", "Expected a filter by "+strings.Join(known, " or ")+".")
}

// attributeOf returns the name of an attribute in lower case, without the schema of the resource.
func attributeOf(path string) string {
	path = strings.ToLower(strings.TrimSpace(path))
	for _, schema := range []string{schemaUser, schemaGroup} {
		path = strings.TrimPrefix(path, strings.ToLower(schema)+":")
	}
	return path
}
