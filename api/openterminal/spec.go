package openterminal

import (
	_ "embed"
	"encoding/json"
)

// document describes the routes that are tools of models, as OpenAPI. Clients make their tools of it: the names of
// operations are those of tools.
//
//go:embed openapi.json
var document json.RawMessage
