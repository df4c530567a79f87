package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
)

// A storagePage is the page of templates and volumes.
type storagePage struct {
	Templates []berth.Template
	Built     []builtTemplate // by the project, the newest first
	Volumes   []berth.Volume
	More      bool // there are more volumes than are shown
	NoVolumes bool // the server has none
	Form      formToken
}

// show serves GET /console/storage.
func (p *storagePage) show(v *visit) error {
	var templates list[berth.Template]
	if err := v.get("/v1/templates", &templates); err != nil {
		return err
	}
	if err := p.readBuilt(v); err != nil {
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
	p.Templates, p.Volumes, p.More, p.Form = templates.Data, volumes.Data, volumes.HasMore, v.formToken()
	return v.show(http.StatusOK, "storage", "Storage", p)
}

// readBuilt reads the templates that the project has built. A server may have no builds.
func (p *storagePage) readBuilt(v *visit) error {
	var all []builtTemplate
	if err := v.get("/v2/templates", &all); err != nil && !refused(err) {
		return err
	}
	p.Built = slices.DeleteFunc(all, func(t builtTemplate) bool { return t.Public })
	return nil
}

// change serves POST /console/storage: it creates or deletes a volume, as the form says.
func (*storagePage) change(v *visit) error {
	in := v.form.fields
	var err error
	switch in.Get("do") {
	case "create":
		req := map[string]any{"name": strings.TrimSpace(in.Get("name"))}
		if gigabytes, err := strconv.Atoi(in.Get("gigabytes")); err == nil {
			req["max_bytes"] = int64(gigabytes) << 30
		}
		err = v.post("/v1/volumes", req, &struct{}{})
	case "delete":
		err = v.delete(pathTo("/v1/volumes", in.Get("volume")))
	default:
		err = &failure{http.StatusBadRequest, "The form is incomplete."}
	}
	if err != nil {
		return err
	}
	return v.redirect("/console/storage")
}
