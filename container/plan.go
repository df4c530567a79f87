package container

import (
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/skills"
)

// defaultMemory is the memory limit of containers without one.
const defaultMemory = "1g"

// A plan is a validated create request.
type plan struct {
	requestedAt time.Time
	cause       trace.Span // of the request; nil if a former process received it
	body        *berth.Container
	template    sandbox.Template
	env         []string // the template's and the request's values
	files       []berth.FileID
	skills      []*skills.Install
	from        *snapshot.Record // nil without a snapshot

	copies      *contentCopy // of a fork; nil for other containers
	requestEnv  []string
	restarted   bool // the server died during an earlier start
	networkOnly bool // only the network of the earlier start is missing

	policy     *berth.NetworkPolicy // with its secrets
	transforms []egress.Transform
	network    *network // the forked container's, in place of policy; or nil
}

// started describes a start that ends now.
func (pl *plan) started(how string, now time.Time) *berth.ContainerStart {
	return &berth.ContainerStart{How: how, RequestedAtMS: pl.requestedAt.UnixMilli(),
		DurationMS: max(0, now.Sub(pl.requestedAt).Milliseconds())}
}

// memory returns the memory snapshot that the sandbox is restored from, or nil.
func (pl *plan) memory() *snapshot.Record {
	if pl.from == nil || !pl.from.Snapshot.Memory {
		return nil
	}
	return pl.from
}

// withMemory reports whether the sandbox starts with running processes.
func (pl *plan) withMemory() bool {
	return pl.memory() != nil || pl.copies != nil && pl.copies.memory
}
