package console

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"

	"github.com/berth-run/berth"
)

// A containerPage is the page of a container.
type containerPage struct {
	berth.Container
	Tab   tab
	Form  formToken
	Stats *berth.ContainerStats // nil if it does not run
	Log   []berth.ContainerLog  // the last commands, the newest first
	Older bool                  // there are more

	CPU, Memory *sparkline // over its life; nil if nothing is known

	Cost    *berth.Cost // of the responses that ran in it; nil if it is not known
	Partial bool        // others ran in it, whose commands were not read

	Template string      // name of its template
	Origin   *originView // what it was made of; nil for its template

	Run      berth.ResponseID // that has used it first; "" if none
	RunTitle string
}

// show serves GET /console/containers/{container}.
func (p *containerPage) show(v *visit) error {
	path := "/v1/containers/" + url.PathEscape(v.r.PathValue("container"))
	var err error
	if p.Container, err = readContainer(v); err != nil {
		return err
	}
	if p.Status == berth.ContainerRunning {
		var stats berth.ContainerStats
		err := v.get(path+"/stats", &stats)
		if err == nil {
			p.Stats = &stats
			before, err := readHistory(v, p.ID)
			if err != nil && !refused(err) {
				return err
			}
			p.CPU, p.Memory = sparksOf(latestOf(before, sampleOf(stats), 0), stats.Memory.LimitBytes)
		} else if _, ok := errors.AsType[*failure](err); !ok {
			return err // a *failure means that it has ended since
		}
	}
	var log list[berth.ContainerLog]
	if err := v.get(path+"/logs?order=desc&limit=50", &log); err != nil {
		return err
	}
	p.Log, p.Older = log.Data, log.HasMore
	if err := p.readCost(v); err != nil {
		return err
	}
	var first list[berth.ContainerLog]
	if err := v.get(path+"/logs?order=asc&limit=1", &first); err != nil {
		return err
	}
	if len(first.Data) > 0 && first.Data[0].ResponseID != "" {
		title, err := readRunTitle(v, first.Data[0].ResponseID)
		if err != nil {
			return err
		}
		p.Run, p.RunTitle = first.Data[0].ResponseID, title
	}
	if p.Origin, err = readOrigin(v, p.Container); err != nil {
		return err
	}
	p.Template = v.templateName(p.Berth.Template)
	p.Tab, p.Form = tab{Container: p.Container, Form: v.formToken()}, v.formToken()
	return v.show(http.StatusOK, "container", cmp.Or(p.Name, "Container"), p)
}

// readCost reads what the responses cost that ran in the container, as far as its log tells.
func (p *containerPage) readCost(v *visit) error {
	log, more, err := readLog(v, p.ID)
	if err != nil {
		return err
	}
	costs, err := readCosts(v)
	if err != nil {
		return err
	}
	p.Partial = more
	p.Cost, err = costs.of(v, log)
	return err
}

// An originView is what a container was made of, beside its template.
type originView struct{ What, Name, ID, Path string }

// readOrigin returns the snapshot or the container that a container was made of; nil for none.
func readOrigin(v *visit, c berth.Container) (*originView, error) {
	if id := c.Berth.ForkedFrom; id != "" {
		return &originView{"Forked from", short(string(id)), string(id), pathTo("/console/containers", id)}, nil
	}
	id := c.Berth.FromSnapshot
	if id == "" {
		return nil, nil
	}
	o := &originView{"Restored from", short(string(id)), string(id), "/console/snapshots"}
	var s berth.Snapshot
	if err := v.get(pathTo("/v1/snapshots", id), &s); err != nil {
		if refused(err) { // it was deleted
			o.Path, err = "", nil
		}
		return o, err
	}
	o.Name, o.Path = cmp.Or(s.Name, o.Name), pathTo("/console/containers", s.ContainerID)+"/snapshots"
	return o, nil
}

// templateName returns the first name of a template of the server, or a part of its id.
func (v *visit) templateName(id string) string {
	if v.templates == nil {
		v.templates = map[string]string{}
		var all list[berth.Template]
		_ = v.get("/v1/templates", &all) // ids are shown without
		for _, t := range all.Data {
			v.templates[t.ID] = nameOr(t.Names, short(t.ID))
		}
	}
	return cmp.Or(v.templates[id], short(id))
}
