package console

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/berth-run/berth"
)

// A storagePage is the page of templates and volumes.
type storagePage struct {
	Templates []berth.Template
	Volumes   []berth.Volume
	More      bool // there are more volumes than are shown
	NoVolumes bool // the server has none
}

// show serves GET /console/storage.
func (p *storagePage) show(v *visit) error {
	var templates list[berth.Template]
	if err := v.get("/v1/templates", &templates); err != nil {
		return err
	}
	query := "?" + url.Values{"limit": {"100"}, "order": {"desc"}}.Encode()
	var volumes list[berth.Volume]
	if err := v.get("/v1/volumes"+query, &volumes); err != nil {
		if _, ok := errors.AsType[*failure](err); !ok {
			return err
		}
		p.NoVolumes = true // the driver has none
	}
	p.Templates, p.Volumes, p.More = templates.Data, volumes.Data, volumes.HasMore
	return v.show(http.StatusOK, "storage", "Storage", p)
}
