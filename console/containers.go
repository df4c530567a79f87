package console

import (
	"net/http"
	"net/url"

	"github.com/berth-run/berth"
)

// A list is a page of the API's lists.
type list[T any] struct {
	Data    []T    `json:"data"`
	HasMore bool   `json:"has_more"`
	LastID  string `json:"last_id"`
}

// A containersPage is the list of containers.
type containersPage struct {
	Containers []berth.Container
	Name       string // the filter; "" shows all
	Next       string // path of the next page; "" at the end
}

// show serves GET /console/: containers, the newest first.
func (p *containersPage) show(v *visit) error {
	if v.admin() {
		return v.redirect("/console/overview")
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
	*p = containersPage{Containers: found.Data, Name: asked.Get("name")}
	if found.HasMore {
		query = url.Values{"after": {found.LastID}}
		if p.Name != "" {
			query.Set("name", p.Name)
		}
		p.Next = "/console/?" + query.Encode()
	}
	return v.show(http.StatusOK, "containers", "Containers", p)
}
