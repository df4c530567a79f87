package console

import (
	"encoding/json"
	"io"
	"mime"
	"net/url"
	"slices"

	"github.com/berth-run/berth"
)

// A tab is what the pages of a container have in common.
type tab struct {
	Container berth.Container
	Current   string // the last element of the page's path; "" is the overview
	Form      formToken
}

// Path returns the path of the container's pages.
func (t tab) Path() string { return "/console/containers/" + url.PathEscape(string(t.Container.ID)) }

// Running reports whether the container has not ended.
func (t tab) Running() bool { return t.Container.Status == berth.ContainerRunning }

// Named reports whether the container has a name of its own.
func (t tab) Named() bool { return t.Container.Name != "" && t.Container.Name != autoName }

// A tabLink leads to a page of the container.
type tabLink struct{ Name, Label string }

// Tabs returns the pages of the container that the visitor may see.
func (t tab) Tabs() []tabLink {
	all := []tabLink{{"", "Overview"}, {"files", "Files"}, {"terminals", "Terminals"}, {"resources", "Resources"},
		{"network", "Network"}, {"ports", "Ports"}, {"snapshots", "Snapshots"}}
	if t.Form.May(attach) {
		return all
	}
	return slices.DeleteFunc(all, func(l tabLink) bool {
		return l.Name == "files" || l.Name == "terminals" || l.Name == "ports"
	})
}

// attach is the route of files, terminals and ports in containers.
const attach = "/v1/containers/{container}/guest/{path...}"

// readContainer returns the container of the visit's path.
func readContainer(v *visit) (berth.Container, error) {
	return lookAt(v, berth.ContainerID(v.r.PathValue("container")))
}

// lookAt returns a container. This is no use of the container, so that a page does not keep it awake.
func lookAt(v *visit, id berth.ContainerID) (c berth.Container, err error) {
	err = v.get(pathTo("/v1/containers", id)+"?touch=false", &c)
	return c, err
}

// allowFrames lets the page show frames with content of containers, which has an origin of its own.
func allowFrames(v *visit) {
	v.w.Header().Set("Content-Security-Policy", policy+"; frame-src 'self'")
}

// decode decodes JSON of a container into a value, or leaves it as it is.
func decode(body io.Reader, into any) {
	_ = json.NewDecoder(io.LimitReader(body, maxForm)).Decode(into)
}

// dispositionOf returns a Content-Disposition for a file name that a container chose.
func dispositionOf(kind, name string) string {
	if value := mime.FormatMediaType(kind, map[string]string{"filename": name}); value != "" {
		return value
	}
	return kind
}
