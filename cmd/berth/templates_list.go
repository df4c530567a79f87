package main

import (
	"errors"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/image"
)

// Templates returns those of the library, each once.
func (t *templates) Templates() ([]berth.Template, error) {
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

// Template returns the template that has a name or a digest.
func (t *templates) Template(ref string) (berth.Template, error) {
	missing := berth.Errorf(berth.CodeNotFound, "Template '%s' not found.", ref)
	found, err := t.images.Get(ref)
	if errors.Is(err, image.ErrNotFound) {
		return berth.Template{}, missing
	}
	if err != nil {
		return berth.Template{}, err
	}
	all, err := t.Templates()
	for _, one := range all {
		if one.ID == found.Digest {
			return one, nil
		}
	}
	if err == nil {
		err = missing // removed just now
	}
	return berth.Template{}, err
}

// publicTemplate returns what clients may know of a template: nothing of the host,
// nor of the project that a snapshot is of.
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
