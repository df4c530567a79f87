package console

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/berth-run/berth"
)

// maxTimeline is the number of pages of 100 snapshots that a timeline is chosen from.
const maxTimeline = 10

// A timelinePage is the page of a container's snapshots.
type timelinePage struct {
	Tab    tab
	Form   formToken
	Points []timelinePoint // the newest first
	More   bool            // older snapshots of the project were not read
}

// A timelinePoint is a moment of a container's life.
type timelinePoint struct {
	At       int64
	Label    string
	Snapshot *berth.Snapshot // nil for another moment
	From     string          // path of what the container was made of; "" if of a template
}

// show serves GET /console/containers/{container}/snapshots: how the container began, its snapshots, and its present.
func (p *timelinePage) show(v *visit) error {
	c, err := readContainer(v)
	if err != nil {
		return err
	}
	*p = timelinePage{Tab: tab{c, "snapshots", v.formToken()}, Form: v.formToken()}
	all, more, err := readSnapshots(v, c.ID)
	if err != nil {
		return err
	}
	p.More = more
	for i := range all {
		p.Points = append(p.Points, timelinePoint{At: all[i].CreatedAt, Label: all[i].Name, Snapshot: &all[i]})
	}
	p.Points = append(p.Points, startOf(v, c))
	slices.SortStableFunc(p.Points, func(a, b timelinePoint) int { return int(b.At - a.At) })
	return v.show(http.StatusOK, "timeline", "Snapshots", p)
}

// startOf returns how a container began.
func startOf(v *visit, c berth.Container) timelinePoint {
	start := timelinePoint{At: c.CreatedAt, Label: "Started from the template " + v.templateName(c.Berth.Template)}
	switch {
	case c.Berth.ForkedFrom != "":
		start.Label = "Forked from " + short(string(c.Berth.ForkedFrom))
		start.From = pathTo("/console/containers", c.Berth.ForkedFrom)
	case c.Berth.FromSnapshot != "":
		start.Label = "Restored from the snapshot " + short(string(c.Berth.FromSnapshot))
		start.From = "/console/snapshots"
	}
	return start
}

// readSnapshots reads the snapshots of a container, the newest first. more reports whether some were not read.
func readSnapshots(v *visit, id berth.ContainerID) (all []berth.Snapshot, more bool, err error) {
	query := url.Values{"limit": {"100"}, "order": {"desc"}}
	for range maxTimeline {
		var found list[berth.Snapshot]
		if err := v.get("/v1/snapshots?"+query.Encode(), &found); err != nil {
			return nil, false, err
		}
		for _, s := range found.Data {
			if s.ContainerID == id {
				all = append(all, s)
			}
		}
		if !found.HasMore {
			return all, false, nil
		}
		query.Set("after", found.LastID)
	}
	return all, true, nil
}
