package berth

import "encoding/json"

// ItemConfigurationUpdate is the type of an input item that changes how the responses
// after it are made. No model is shown it.
const ItemConfigurationUpdate ItemType = "configuration_update"

// A ConfigurationUpdate sets fields of the requests that follow it in its chain or
// conversation, until another one sets them again.
type ConfigurationUpdate struct {
	ID        string   `json:"id"`
	Type      ItemType `json:"type"` // "configuration_update"
	Reasoning *struct {
		Effort *string `json:"effort"`
	} `json:"reasoning,omitempty"`
	Text *struct {
		Format json.RawMessage `json:"format"` // {"type":"text"} or json_schema
	} `json:"text,omitempty"`
}
