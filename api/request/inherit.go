package request

import (
	"github.com/berth-run/berth"
)

// Inherit sets the fields that a request omits to those of the request of its previous response.
// It leaves out those that concern a single request, and those that belong to the chain.
func Inherit(req, previous *berth.ResponseRequest) error {
	from := *previous
	from.Input, from.Prompt, from.PromptItems, from.PreviousResponseID, from.Conversation = nil, nil, nil, "", nil
	from.Store, from.Stream, from.StreamOptions, from.Background, from.Metadata = nil, false, nil, false, nil
	own := *req.Berth
	if from.Berth != nil {
		kept := *from.Berth
		if own.Checks != nil {
			kept.Checks = own.Checks
		}
		if own.Budget != nil {
			kept.Budget = own.Budget
		}
		if own.RequireApproval != nil {
			kept.RequireApproval = own.RequireApproval
		}
		own = kept
	}
	from.Berth = nil
	if err := fillIn(req, &from); err != nil {
		return err
	}
	own.Inherit = false // a stored request is complete
	req.Berth = &own
	return nil
}
