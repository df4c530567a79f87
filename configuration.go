package berth

import "encoding/json"

// ItemConfigurationUpdate is the type of an input item that changes settings of later
// responses. It is not sent to models.
const ItemConfigurationUpdate ItemType = "configuration_update"

// A ConfigurationUpdate sets request fields for the rest of its chain or conversation,
// until another update changes them.
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
