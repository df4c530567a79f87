package console

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/berth-run/berth"
)

// change serves POST /console/containers/{container}: it pauses, resumes, forks, snapshots or
// deletes the container, as the form says.
func (*containerPage) change(v *visit) error {
	in := v.form.fields
	id := url.PathEscape(v.r.PathValue("container"))
	body := map[string]any{}
	if name := strings.TrimSpace(in.Get("name")); name != "" {
		body["name"] = name
	}
	if in.Get("memory") != "" {
		body["memory"] = true
	}
	switch do := in.Get("do"); do {
	case "pause", "resume":
		if err := v.post("/v1/containers/"+id+"/"+do, struct{}{}, &struct{}{}); err != nil {
			return err
		}
	case "snapshot":
		if err := v.post("/v1/containers/"+id+"/snapshots", body, &struct{}{}); err != nil {
			return err
		}
		return v.redirect("/console/containers/" + id + "/snapshots")
	case "fork":
		var made berth.Container
		if err := v.post("/v1/containers/"+id+"/fork", body, &made); err != nil {
			return err
		}
		id = url.PathEscape(string(made.ID))
	case "delete":
		if err := v.exchange(http.MethodDelete, "/v1/containers/"+id, nil, "", &struct{}{}); err != nil {
			return err
		}
		return v.redirect("/console/containers")
	default:
		return &failure{http.StatusBadRequest, "The form is incomplete."}
	}
	return v.redirect("/console/containers/" + id)
}
