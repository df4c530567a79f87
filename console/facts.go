package console

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/berth-run/berth"
)

// maxLogPages is the number of pages of 100 commands that are read of a container's log.
const maxLogPages = 5

// A containerFacts is what the API knows of a container that a chain used.
type containerFacts struct {
	Container berth.Container
	Log       []berth.ContainerLog // the newest first
	Flows     []flow
}

// addTimes adds to the responses of a page where their time went, and to their shell calls how long
// they took.
func addTimes(v *visit, turns []*turnView) error {
	used := map[berth.ContainerID]*containerFacts{}
	for _, turn := range turns {
		id := containerOf([]*turnView{turn})
		if id == "" || used[id] != nil {
			continue
		}
		facts, err := readFacts(v, id)
		if err != nil {
			return err
		}
		used[id] = facts
	}
	took := map[string]int64{}
	for _, facts := range used {
		for _, l := range facts.Log {
			took[l.CallID] = max(took[l.CallID], l.DurationMS)
		}
	}
	attaches := v.formToken().May(attach)
	for _, turn := range turns {
		for _, e := range turn.Output {
			e.Took = took[e.ID()]
		}
		if attaches {
			findFiles(turn.Output, func(id berth.ContainerID) bool {
				return used[id] != nil && used[id].Container.Status != berth.ContainerRunning
			})
		}
		turn.Time = newWaterfall("time-"+string(turn.ID), barsOf(turn, used, time.Now()), false)
	}
	return nil
}

// readFacts reads the known facts of a container: none if it was deleted. The record of its
// connections is read if it may connect at all.
func readFacts(v *visit, id berth.ContainerID) (*containerFacts, error) {
	path := "/v1/containers/" + url.PathEscape(string(id))
	facts := &containerFacts{}
	var err error
	facts.Container, err = lookAt(v, id)
	if f, ok := errors.AsType[*failure](err); ok && f.Status == http.StatusNotFound {
		return facts, nil
	}
	if err != nil {
		return nil, err
	}
	if facts.Log, _, err = readLog(v, id); err != nil {
		return nil, err
	}
	if facts.Container.NetworkPolicy.Type == "disabled" {
		return facts, nil
	}
	var audit list[flow]
	if err := v.get(path+"/audit", &audit); err != nil {
		return nil, err
	}
	facts.Flows = audit.Data
	return facts, nil
}

// readLog returns the last commands of a container, the newest first, and whether there are more.
func readLog(v *visit, id berth.ContainerID) (all []berth.ContainerLog, more bool, err error) {
	query := url.Values{"order": {"desc"}, "limit": {"100"}}
	for range maxLogPages {
		var log list[berth.ContainerLog]
		if err := v.get("/v1/containers/"+url.PathEscape(string(id))+"/logs?"+query.Encode(), &log); err != nil {
			return nil, false, err
		}
		all, more = append(all, log.Data...), log.HasMore
		if !more {
			break
		}
		query.Set("after", log.LastID)
	}
	return all, more, nil
}

// barsOf returns the steps of a response, which has run until end, that happened in the container.
func (f *containerFacts) barsOf(r *berth.Response, end int64) []bar {
	var bars []bar
	began := r.CreatedAt * 1000
	if start := f.Container.Berth.Start; start != nil && start.RequestedAtMS >= began && start.RequestedAtMS <= end {
		bars = append(bars, bar{Kind: "container", Name: "start container (" + start.How + ")",
			Link:  "/console/containers/" + string(f.Container.ID),
			Start: start.RequestedAtMS, Took: start.DurationMS})
	}
	for _, l := range f.Log {
		if l.ResponseID != r.ID || l.StartedAtMS == 0 {
			continue
		}
		b := bar{Kind: "command", Name: line(l.Command), Depth: 1, Start: l.StartedAtMS, Took: l.DurationMS}
		if failed(l.Outcome) {
			b.Error = outcome(l.Outcome)
		}
		b.call = l.CallID
		bars = append(bars, b)
	}
	for _, flow := range f.Flows {
		at := flow.Time.UnixMilli() - flow.Milliseconds
		if at < began || at > end {
			continue
		}
		switch flow.Action {
		case "egress.ended":
			bars = append(bars, bar{Kind: "network", Name: flow.Host + " (" + size(flow.Sent) + " sent, " +
				size(flow.Received) + " received)", Depth: 2, Start: at, Took: flow.Milliseconds})
		case "egress.refused":
			bars = append(bars, bar{Kind: "network", Name: flow.Host, Error: "refused: " + flow.Reason, Depth: 2,
				Start: at})
		}
	}
	return bars
}
