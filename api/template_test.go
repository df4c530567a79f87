package api_test

import (
	"context"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
)

// oneTemplate is a library of one template.
type oneTemplate struct{}

var theTemplate = berth.Template{ID: "sha256:" + strings.Repeat("0", 64), Object: "template", CreatedAt: 1,
	Names: []string{"geo"}, Bytes: 7,
	Source: berth.TemplateSource{Type: "image", Image: "registry.example/geo:1", Digest: "sha256:1",
		Platform: "linux/amd64"}}

func (oneTemplate) Templates(context.Context, berth.ProjectID) ([]berth.Template, error) {
	return []berth.Template{theTemplate}, nil
}

func (oneTemplate) Template(_ context.Context, _ berth.ProjectID, ref string) (berth.Template, error) {
	if ref == "geo" || ref == theTemplate.ID {
		return theTemplate, nil
	}
	return berth.Template{}, berth.Errorf(berth.CodeNotFound, "Template '%s' not found.", ref)
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(o *api.Options) { o.Templates = oneTemplate{} })
	list := h.call(200, "GET", "/v1/templates", nil)
	for _, ref := range []string{"geo", theTemplate.ID} {
		one := h.call(200, "GET", "/v1/templates/"+ref, nil)
		if one.at("object") != "template" || one.at("id") != theTemplate.ID || one.at("names", 0) != "geo" ||
			one.at("source", "type") != "image" {
			t.Errorf("%s is %v", ref, one)
		}
	}
	if got := list.at("data", 0, "id"); got != theTemplate.ID || list.at("has_more") != false {
		t.Errorf("the list is %v", list)
	}
	h.call(404, "GET", "/v1/templates/other", nil)
	h.call(400, "GET", "/v1/templates?limit=1", nil)
}
