package server

import (
	"context"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/image"
)

// Templates returns the templates that a project may name, each once.
func (t *templates) Templates(ctx context.Context, p berth.ProjectID) ([]berth.Template, error) {
	limits, err := t.limits(ctx, p)
	if err != nil {
		return nil, err
	}
	all, err := t.all()
	return slices.DeleteFunc(all, func(one berth.Template) bool {
		return !slices.Contains(append(one.Names, one.ID), t.config.Template) && !limits.AllowTemplate(append(one.Names, one.ID)...)
	}), err
}

// Template returns the template with a name or a digest, if the project may name it.
func (t *templates) Template(ctx context.Context, p berth.ProjectID, ref string) (berth.Template, error) {
	all, err := t.Templates(ctx, p)
	for _, one := range all {
		if one.ID == ref || slices.Contains(one.Names, ref) {
			return one, nil
		}
	}
	if err == nil {
		err = berth.Errorf(berth.CodeNotFound, "Template '%s' not found.", ref)
	}
	return berth.Template{}, err
}

// mayName returns an error for the client unless a project's containers may use a template: by
// any name of an allowed template, or its digest.
func (t *templates) mayName(ctx context.Context, p berth.ProjectID, ref string) error {
	limits, err := t.limits(ctx, p)
	if err != nil || limits.AllowTemplate(ref) {
		return err
	}
	if _, err := t.Template(ctx, p, ref); berth.ErrorCode(err) == berth.CodeNotFound {
		return templateNotFound(ref)
	} else {
		return err
	}
}

// has reports whether a project's containers can start from a template.
func (t *templates) has(ctx context.Context, p berth.ProjectID, ref string) bool {
	if t.mayName(ctx, p, ref) != nil {
		return false
	}
	_, err := t.find(ref)
	return err == nil
}

// all returns all templates, each once.
func (t *templates) all() ([]berth.Template, error) {
	all, err := t.images.List()
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
	public := berth.Template{ID: t.Digest, Object: "template", CreatedAt: t.CreatedAt.Unix(), Names: []string{}, Bytes: t.Bytes,
		Source: berth.TemplateSource{Type: "recipe", Digest: t.Recipe}}
	switch {
	case t.Snapshot != nil:
		public.Source = berth.TemplateSource{Type: "snapshot", Digest: t.Snapshot.Digest, Template: t.Snapshot.Template}
	case t.Image != nil:
		public.Source = berth.TemplateSource{Type: "image", Image: t.Image.Ref, Digest: t.Image.Digest, Platform: t.Image.Platform}
	}
	return public
}
