package templates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/server/state"
)

// Templates returns the templates that a project may name, each once.
func (t *Catalog) Templates(ctx context.Context, p berth.ProjectID) ([]berth.Template, error) {
	limits, err := t.limits(ctx, p)
	if err != nil {
		return nil, err
	}
	all, err := t.all()
	own := state.PulledPrefix(p)
	for i := range all {
		pulled := slices.ContainsFunc(all[i].Names, pulledName.MatchString)
		all[i].Names = slices.DeleteFunc(all[i].Names, func(name string) bool {
			return pulledName.MatchString(name) && !strings.HasPrefix(name, own)
		})
		if pulled && len(all[i].Names) == 0 { // only other projects pulled it
			all[i].ID = ""
		}
	}
	all = slices.DeleteFunc(all, func(one berth.Template) bool { return one.ID == "" })
	return slices.DeleteFunc(all, func(one berth.Template) bool {
		return !slices.Contains(append(one.Names, one.ID), t.config.Template) &&
			!limits.AllowTemplate(append(one.Names, one.ID)...)
	}), err
}

// Template returns the template with a name or a digest, if the project may name it.
func (t *Catalog) Template(ctx context.Context, p berth.ProjectID, ref string) (berth.Template, error) {
	all, err := t.Templates(ctx, p)
	if err != nil {
		return berth.Template{}, err
	}
	for _, one := range all {
		if one.ID == ref || slices.Contains(one.Names, ref) {
			return one, nil
		}
	}
	return berth.Template{}, notFound("", ref, all)
}

// MayName returns an error for the client unless a project's containers may use the template
// ref: any name or the digest of an allowed template. The error lists the templates that the
// project may use, and is the same for a missing template as for one that it may not use.
func (t *Catalog) MayName(ctx context.Context, p berth.ProjectID, ref string) error {
	limits, err := t.limits(ctx, p)
	if err != nil {
		return err
	}
	if limits.AllowTemplate(ref) && !strings.HasPrefix(ref, "sha256:") && !pulledName.MatchString(ref) {
		if _, err := t.Images.Get(ref); !errors.Is(err, image.ErrNotFound) {
			return nil // find reports any other error
		}
	}
	all, err := t.Templates(ctx, p)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(one berth.Template) bool {
		return one.ID == ref || slices.Contains(one.Names, ref)
	}) {
		return nil
	}
	return notFound("berth.template", ref, all)
}

// maxListed is the maximum number of templates that an error lists.
const maxListed = 30

// notFound returns the error for a template that does not exist or that the project
// may not use. available are the templates that it may use.
func notFound(param, ref string, available []berth.Template) error {
	message := fmt.Sprintf("Template '%s' not found.", rule.Clip(ref))
	var names []string
	for _, t := range available {
		names = append(names, t.Names...)
	}
	slices.Sort(names)
	if n := len(names) - maxListed; n > 0 {
		names = append(names[:maxListed], fmt.Sprintf("and %d more", n))
	}
	if names != nil {
		message += " Available templates: " + strings.Join(names, ", ") + "."
	}
	return &berth.Error{Code: berth.CodeNotFound, Param: param, Message: message}
}

// Has reports whether a project's containers can start from a template.
func (t *Catalog) Has(ctx context.Context, p berth.ProjectID, ref string) bool {
	if t.MayName(ctx, p, ref) != nil {
		return false
	}
	_, err := t.Find(ref)
	return err == nil
}

// all returns all templates, each once.
func (t *Catalog) all() ([]berth.Template, error) {
	all, err := t.Images.List()
	if err != nil {
		return nil, err
	}
	list := []berth.Template{}
	at := map[string]int{} // in the list, by digest
	for _, one := range all {
		i, ok := at[one.Digest]
		if !ok {
			i = len(list)
			at[one.Digest] = i
			list = append(list, publicTemplate(one))
		}
		if one.Name != "" {
			list[i].Names = append(list[i].Names, one.Name)
		}
		if one.Recipe != "" && list[i].Source.Type == "recipe" {
			list[i].Source.Digest = one.Recipe
		}
	}
	return list, nil
}

// publicTemplate returns a template for clients. It omits what belongs to the host, and the
// project of a snapshot.
func publicTemplate(t image.Template) berth.Template {
	public := berth.Template{ID: t.Digest, Object: "template", CreatedAt: t.CreatedAt.Unix(), Names: []string{},
		Bytes:  t.Bytes,
		Source: berth.TemplateSource{Type: "recipe", Digest: t.Recipe}}
	switch {
	case t.Snapshot != nil:
		public.Source = berth.TemplateSource{Type: "snapshot", Digest: t.Snapshot.Digest, Template: t.Snapshot.Template}
	case t.Image != nil:
		public.Source = berth.TemplateSource{Type: "image", Image: t.Image.Ref, Digest: t.Image.Digest,
			Platform: t.Image.Platform}
	}
	return public
}
