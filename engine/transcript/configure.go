package transcript

import (
	"fmt"

	"github.com/berth-run/berth"
)

// Configure applies the configuration updates among the items of a response's context. A
// later update overrides the fields of an earlier one.
func Configure(body *berth.Response, items []berth.Item) error {
	for _, it := range items {
		if it.Type() != berth.ItemConfigurationUpdate {
			continue
		}
		var u berth.ConfigurationUpdate
		if err := it.Decode(&u); err != nil {
			return fmt.Errorf("item %s: %w", it.ID(), err)
		}
		if u.Reasoning != nil && u.Reasoning.Effort != nil {
			body.Reasoning.Effort = u.Reasoning.Effort
		}
		if u.Text != nil && len(u.Text.Format) > 0 {
			body.Text.Format = u.Text.Format
		}
	}
	return nil
}
