package container

import "github.com/berth-run/berth"

// Contents returns what the template of a running container contains, or nil if that is not
// known. The caller must not change it.
func (svc *Service) Contents(p berth.ProjectID, id berth.ContainerID) *berth.TemplateContents {
	s := svc.index.lookup(p, id)
	if s == nil || s.body.Berth.Template == "" {
		return nil
	}
	digest := s.body.Berth.Template
	if found, ok := svc.contents.Load(digest); ok {
		return found.(*berth.TemplateContents)
	}
	t, err := svc.opts.Template(digest)
	if err != nil {
		svc.opts.Log.Warn("failed to read the contents of a template", "template", digest, "err", err)
		return nil
	}
	svc.contents.Store(digest, t.Contents)
	return t.Contents
}
