package vectorstore

import (
	"context"
	"errors"
)

// embedFile embeds the stored text of a file that was read before. It fails if the file
// changes while it works.
func (s *Service) embedFile(ctx context.Context, k jobKey) error {
	f, err := s.shelves.load(ctx, k.project, k.store)
	if err != nil {
		return err
	}
	f.mu.RLock()
	r := f.files[k.file]
	f.mu.RUnlock()
	if r == nil || !s.vectors.lacks(r) {
		return nil
	}
	segments := make([]*segment, r.Segments)
	var before, after int64
	for n := range segments {
		if segments[n], err = s.texts.get(ctx, k.project, k.store, k.file, n); err != nil {
			return err
		}
		before += int64(len(segments[n].Vectors))
		if err := s.vectors.embed(ctx, k.project, segments[n]); err != nil {
			return err
		}
		after += int64(len(segments[n].Vectors))
	}
	if err := s.opts.Quota(ctx, k.project, max(0, after-before)); err != nil {
		return err
	}
	return s.saveVectors(ctx, k, f, r, segments)
}

// saveVectors saves the vectors of a file, unless its record is no longer r.
func (s *Service) saveVectors(ctx context.Context, k jobKey, f *shelf, r *record, segments []*segment) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files[k.file] != r {
		return errors.New("the file was changed while it was embedded")
	}
	mixed := *r
	mixed.Model = "" // while the segments may hold vectors of two models
	if err := s.records.save(ctx, k.project, &mixed); err != nil {
		return err
	}
	f.files[k.file] = &mixed
	done := mixed
	done.Model, done.File.UsageBytes = s.vectors.model(), 0
	for n, seg := range segments {
		if err := s.texts.set(ctx, k, n, seg); err != nil {
			return err
		}
		for _, c := range seg.Chunks {
			done.File.UsageBytes += int64(len(c))
		}
		done.File.UsageBytes += int64(len(seg.Vectors))
	}
	if err := s.records.save(ctx, k.project, &done); err != nil {
		return err
	}
	f.files[k.file] = &done
	f.addVectors(k.file, segments)
	return nil
}
