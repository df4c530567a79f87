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
	Name       string // the filter; "" shows all
	Next       string // path of the next page; "" at the end
}

// A containerRow is a container of the list.
type containerRow struct {
	berth.Container
	Title  string     // its name, or the title of the run that has used it first
	CPU    *sparkline // nil if nothing is known
	Memory *sparkline
}

// show serves GET /console/containers: containers, the newest first.
func (p *containersPage) show(v *visit) error {
	if v.admin() {
		return v.redirect(Path)
	}
	asked := v.r.URL.Query()
	query := url.Values{"limit": {"50"}, "order": {"desc"}}
	for _, name := range []string{"after", "name"} {
		if asked.Get(name) != "" {
			query.Set(name, asked.Get(name))
		}
	}
	var found list[berth.Container]
	if err := v.get("/v1/containers?"+query.Encode(), &found); err != nil {
		return err
	}
	*p = containersPage{Name: asked.Get("name")}
	for _, c := range found.Data {
		title, err := containerTitle(v, c)
		if err != nil {
			return err
		}
		row := containerRow{Container: c, Title: title}
		if c.Status == berth.ContainerRunning {
			taken, err := readHistory(v, c.ID)
			if err != nil && !refused(err) { // one that has ended since has none
				return err
			}
			row.CPU, row.Memory = sparksOf(taken, bytesOf(c.MemoryLimit))
		}
		p.Containers = append(p.Containers, row)
	}
	if found.HasMore {
		query = url.Values{"after": {found.LastID}}
		if p.Name != "" {
			query.Set("name", p.Name)
		}
		p.Next = "/console/containers?" + query.Encode()
	}
	return v.show(http.StatusOK, "containers", "Containers", p)
}

// containerTitle returns the name of a container. One without a name of its own has the title of the run that has
// used it first, or else its id.
func containerTitle(v *visit, c berth.Container) (string, error) {
	if c.Name != "" && c.Name != autoName {
		return c.Name, nil
	}
	var log list[berth.ContainerLog]
	err := v.get("/v1/containers/"+url.PathEscape(string(c.ID))+"/logs?order=asc&limit=1", &log)
	if err != nil && !refused(err) {
		return "", err
	}
	if len(log.Data) == 0 || log.Data[0].ResponseID == "" {
		return short(string(c.ID)), nil
	}
	return readRunTitle(v, log.Data[0].ResponseID)
}

// bytesOf returns the bytes of a memory limit such as 4g; 0 if it is none.
func bytesOf(limit string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(limit, "g"), 10, 64)
	if err != nil || n < 0 || n > 1<<20 {
		return 0
	}
	return n << 30
}
