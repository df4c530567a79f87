package console

import "fmt"

// A badge shows a state: a word with an icon, in a colour. The word alone tells the state.
type badge struct {
	Class string // the state's own name
	Kind  string // class of its colour: good, bad, busy, wait or idle
	Icon  string // of the set of icons
	Label string
}

// badges are the states of responses, containers, deliveries, circuits and projects.
var badges = map[string]badge{
	"waiting":     {Kind: "wait", Icon: "hand", Label: "Needs approval"},
	"queued":      {Kind: "idle", Icon: "clock", Label: "Queued"},
	"in_progress": {Kind: "busy", Icon: "loader-circle", Label: "Running"},
	"completed":   {Kind: "good", Icon: "circle-check", Label: "Completed"},
	"incomplete":  {Kind: "bad", Icon: "triangle-alert", Label: "Incomplete"},
	"failed":      {Kind: "bad", Icon: "circle-x", Label: "Failed"},
	"cancelled":   {Kind: "idle", Icon: "ban", Label: "Cancelled"},
	"active":      {Kind: "good", Icon: "circle-play", Label: "Running"},
	"starting":    {Kind: "busy", Icon: "loader-circle", Label: "Starting"},
	"paused":      {Kind: "idle", Icon: "circle-pause", Label: "Paused"},
	"asleep":      {Kind: "idle", Icon: "moon", Label: "Asleep"},
	"stopped":     {Kind: "bad", Icon: "circle-x", Label: "Stopped"},
	"skipped":     {Kind: "idle", Icon: "circle-dashed", Label: "Skipped"},
	"ended":       {Kind: "idle", Icon: "circle-stop", Label: "Ended"},
	"delivered":   {Kind: "good", Icon: "circle-check", Label: "Delivered"},
	"pending":     {Kind: "busy", Icon: "clock", Label: "Pending"},
	"closed":      {Kind: "good", Icon: "circle-check", Label: "Healthy"},
	"half-open":   {Kind: "busy", Icon: "clock", Label: "Recovering"},
	"open":        {Kind: "bad", Icon: "circle-x", Label: "Down"},
	"validating":  {Kind: "busy", Icon: "loader-circle", Label: "Validating"},
	"finalizing":  {Kind: "busy", Icon: "loader-circle", Label: "Finalizing"},
	"cancelling":  {Kind: "busy", Icon: "loader-circle", Label: "Cancelling"},
	"expired":     {Kind: "idle", Icon: "clock", Label: "Expired"},
	"enabled":     {Kind: "good", Icon: "circle-check", Label: "Active"},
	"resting":     {Kind: "wait", Icon: "clock", Label: "Resting"},
	"archived":    {Kind: "idle", Icon: "circle-stop", Label: "Archived"},
}

// badgeOf returns the badge of a state. A state without one shows its name.
func badgeOf(state any) badge {
	name := fmt.Sprint(state)
	b, ok := badges[name]
	if !ok {
		b = badge{Kind: "idle", Icon: "circle-dashed", Label: name}
	}
	b.Class = name
	return b
}
