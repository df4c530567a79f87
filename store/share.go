package store

import (
	"context"

	"github.com/berth-run/berth"
)

// A ShareKind names a limit of a project that the servers of a cluster divide.
type ShareKind string

// Numbers limit how much exists at the same time; rates limit how much is used in a minute.
const (
	ShareResponses  ShareKind = "responses"  // a number: a server whose lease has ended has none
	ShareContainers ShareKind = "containers" // a number: a silent server keeps its own
	ShareRequests   ShareKind = "requests"   // a rate: responses
	ShareWrites     ShareKind = "writes"     // a rate: requests without a model
	ShareTokens     ShareKind = "tokens"     // a rate
)

// IsRate reports whether the limit is a rate.
func (k ShareKind) IsRate() bool {
	return k == ShareRequests || k == ShareWrites || k == ShareTokens
}

// A Want is what a server wants of a limit.
type Want struct {
	Kind  ShareKind
	Limit int64 // of all servers together; of a rate, for each minute

	// Used is granted in any case, also beyond the limit. Of a number it is what the server has
	// now. Of a rate it is what the server has used without a share, or, if negative, what it
	// returns.
	Used int64

	// Need to Ask is wanted besides Used: at most Ask, and nothing if it would be less than Need.
	Need, Ask int64
}

// A Share is what a server has of a limit.
type Share struct {
	Got  int64   // of a number, all that the server may have; of a rate, what was added
	Left float64 // the rest for all servers; negative if they have more than the limit
}

// Shares divides the limits of projects among the servers of a cluster, by the clock of the store.
// A store that several servers can use concurrently implements it beside Members.
type Shares interface {
	// Draw sets what a server has of limits of a project, in one transaction. It returns a
	// share for each want.
	Draw(ctx context.Context, server string, p berth.ProjectID, wants ...Want) ([]Share, error)

	// ForgetShares removes what a server had of numbers. A server calls it when it starts.
	ForgetShares(ctx context.Context, server string) error
}
