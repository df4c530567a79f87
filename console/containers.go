package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
)

// A list is a page of the API's lists.
type list[T any] struct {
	Data    []T    `json:"data"`
	HasMore bool   `json:"has_more"`
	LastID  string `json:"last_id"`
}

// autoName is the name of containers that a response has created.
const autoName = "container_auto"

// A containersPage is the list of containers.
type containersPage struct {
	Containers []containerRow
	Name       string // part of the names, titles or ids that are shown; "" shows all
	Next       string // path of the next page; "" at the end
}

// A containerRow is a container of the list.
type containerRow struct {
	berth.Container
	Template string     // its name
	Title    string     // its name, or the title of the run that has used it first
	CPU      *sparkline // nil if nothing is known
	Memory   *sparkline
	log      []berth.ContainerLog // the first commands
	Cost     *berth.Cost          // of the responses that ran in it; nil if it is not known
}

// show serves GET /console/containers: containers, the newest first.
func (p *containersPage) show(v *visit) error {
	if v.admin() {
		return v.redirect(Path)
	}
	if err := p.read(v); err != nil {
		return err
	}
	costs, err := readCosts(v)
	if err != nil {
		return err
	}
	for i := range p.Containers {
		row := &p.Containers[i]
		if row.Cost, err = costs.of(v, row.log); err != nil {
			return err
		}
		if row.Status != berth.ContainerRunning {
			continue
		}
		taken, err := readHistory(v, row.ID)
		if err != nil && !refused(err) { // one that has ended since has none
			return err
		}
		row.CPU, row.Memory = sparksOf(taken, bytesOf(row.MemoryLimit))
	}
	return v.show(http.StatusOK, "containers", "Containers", p)
}

// namePages is the number of pages of 50 containers in which a name is looked for.
const namePages = 4

// read reads the page of the list that the query of the visit asks for, with the titles of its containers.
func (p *containersPage) read(v *visit) error {
	asked := v.r.URL.Query()
	*p = containersPage{Name: strings.TrimSpace(asked.Get("name"))}
	query := url.Values{"limit": {strconv.Itoa(mostRows)}, "order": {"desc"}}
	if after := asked.Get("after"); after != "" {
		query.Set("after", after)
	}
	pages := 1
	if p.Name != "" {
		pages = namePages
	}
	for range pages {
		var found list[berth.Container]
		if err := v.get("/v1/containers?"+query.Encode(), &found); err != nil {
			return err
		}
		for _, c := range found.Data {
			row, err := containerRowOf(v, c)
			if err != nil {
				return err
			}
			if contains(row.Title+"\n"+c.Name+"\n"+string(c.ID), p.Name) {
				p.Containers = append(p.Containers, row)
			}
		}
		p.Next = ""
		if !found.HasMore {
			break
		}
		query.Set("after", found.LastID)
		next := url.Values{"after": {found.LastID}}
		if p.Name != "" {
			next.Set("name", p.Name)
		}
		p.Next = "/console/containers?" + next.Encode()
		if len(p.Containers) >= mostRows {
			break
		}
	}
	return nil
}

// containerRowOf returns the row of a container. One without a name of its own has the title of the run that has used
// it first, or else its id.
func containerRowOf(v *visit, c berth.Container) (containerRow, error) {
	row := containerRow{Container: c, Title: c.Name, Template: v.templateName(c.Berth.Template)}
	var log list[berth.ContainerLog]
	err := v.get("/v1/containers/"+url.PathEscape(string(c.ID))+"/logs?order=asc&limit=100", &log)
	if err != nil && !refused(err) {
		return row, err
	}
	row.log = log.Data
	switch {
	case c.Name != "" && c.Name != autoName:
	case len(log.Data) == 0 || log.Data[0].ResponseID == "":
		row.Title = short(string(c.ID))
	default:
		row.Title, err = readRunTitle(v, log.Data[0].ResponseID)
		return row, err
	}
	return row, nil
}

// bytesOf returns the bytes of a memory limit such as 4g; 0 if it is none.
func bytesOf(limit string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(limit, "g"), 10, 64)
	if err != nil || n < 0 || n > 1<<20 {
		return 0
	}
	return n << 30
}
