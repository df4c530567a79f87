package skills

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/blob"
	"github.com/berth-run/berth/store"
)

// Create stores the upload of a new skill as its version 1.
func (s *Service) Create(ctx context.Context, p berth.ProjectID, src Source) (*berth.Skill, error) {
	id := berth.SkillID(berth.NewID(berth.PrefixSkill))
	var all *skillVersions
	_, err := s.store(ctx, p, id, src, func(ctx context.Context, v *version) error {
		r := &record{ID: id, CreatedAt: v.Version.CreatedAt, Last: 1, Default: 1, Sizes: map[int]int64{1: v.Bytes}}
		v.setNumber(1)
		all = &skillVersions{r, []*version{v}}
		skill, err := object(skillKey(id), r.CreatedAt, r)
		if err != nil {
			return err
		}
		first, err := object(versionKey(id, v.Version.ID), r.CreatedAt, v)
		if err != nil {
			return err
		}
		return s.opts.Objects.CreateObjects(ctx, p, skill, first)
	})
	if err != nil {
		return nil, err
	}
	return all.skill(), nil
}

// CreateVersion stores the upload of a new version. isDefault reports whether it becomes the
// default one; it is called when src has been read.
func (s *Service) CreateVersion(ctx context.Context, p berth.ProjectID, id berth.SkillID, src Source,
	isDefault func() (bool, error)) (*berth.SkillVersion, error) {
	if _, err := s.load(ctx, p, id); err != nil {
		return nil, err
	}
	v, err := s.store(ctx, p, id, src, func(ctx context.Context, v *version) error {
		makeDefault, err := isDefault()
		if err != nil {
			return err
		}
		return s.saveVersion(ctx, p, id, v, makeDefault)
	})
	if err != nil {
		return nil, err
	}
	return &v.Version, nil
}

// saveVersion gives a version its number and saves it.
func (s *Service) saveVersion(ctx context.Context, p berth.ProjectID, id berth.SkillID, v *version,
	makeDefault bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.load(ctx, p, id)
	if err != nil {
		return err
	}
	if len(all.versions) >= maxVersions {
		return berth.Invalid("skill_id", "Skill '%s' has %d versions, which is the limit. Delete old ones.", id,
			maxVersions)
	}
	if _, err := s.update(ctx, p, id, func(r *record) error {
		r.Last++
		v.setNumber(r.Last)
		for n := range r.Sizes {
			if all.number(n) == nil { // its version was not saved, or is deleted
				delete(r.Sizes, n)
			}
		}
		r.Sizes[r.Last] = v.Bytes
		if makeDefault {
			r.Default, r.Before = r.Last, all.standard().Number
		}
		return nil
	}); err != nil {
		return err
	}
	o, err := object(versionKey(id, v.Version.ID), v.Version.CreatedAt, v)
	if err != nil {
		return err
	}
	if err := s.opts.Objects.CreateObjects(ctx, p, o); !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return notFound(id)
}

func (v *version) setNumber(n int) { v.Number, v.Version.Version = n, strconv.Itoa(n) }

func object(key store.ObjectKey, created int64, body any) (*store.Object, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", key.Kind, err)
	}
	return &store.Object{ObjectKey: key, CreatedAt: created, Body: raw}, nil
}

// store receives the upload of a version, validates it and saves it with save.
func (s *Service) store(ctx context.Context, p berth.ProjectID, id berth.SkillID, src Source, save func(context.Context,
	*version) error) (*version, error) {
	v := &version{Version: berth.SkillVersion{ID: berth.SkillVersionID(berth.NewID(berth.PrefixSkillVersion)),
		Object: "skill.version", SkillID: id, CreatedAt: s.opts.Now().Unix()}}
	at, secret := ref(p, id, v.Version.ID), blob.NewKey()
	v.Key = blob.SealKey(s.opts.Seal, secret[:], bound(at))
	err := s.blobs.Create(ctx, blob.Creation{Ref: at,
		Admit: func(ctx context.Context) error { return s.quota(ctx, p, v.Bytes) },
		Write: func(ctx context.Context) error {
			err := s.contents.Write(ctx, at, secret, func(w io.Writer) (err error) {
				v.Bytes, err = receive(w, src)
				return err
			})
			if err != nil {
				return err
			}
			f, err := s.inspect(ctx, at, secret, v.Bytes)
			if err != nil {
				return refused(err)
			}
			v.Version.Name, v.Version.Description = f.Name, f.Description
			return nil
		},
		Save: func(ctx context.Context) error { return save(ctx, v) },
		Entry: func() audit.Entry {
			return audit.Entry{Action: audit.SkillCreated, Project: p, Object: string(v.Version.ID), Bytes: v.Bytes}
		}})
	return v, err
}

func (s *Service) quota(ctx context.Context, p berth.ProjectID, bytes int64) error {
	if s.opts.Quota == nil {
		return nil
	}
	return s.opts.Quota(ctx, p, bytes)
}

// bound returns the associated data that binds a sealed key to its content.
func bound(at blob.Ref) []byte { return []byte("skill\x00" + at.String()) }

// Open opens the zip archive of a version, which is given by its number, "latest", or "" for
// the default version. The caller must close it.
func (s *Service) Open(ctx context.Context, p berth.ProjectID, id berth.SkillID, number string) (io.ReadSeekCloser,
	*berth.SkillVersion, error) {
	all, err := s.load(ctx, p, id)
	if err != nil {
		return nil, nil, err
	}
	v, err := all.find(number)
	if err != nil {
		return nil, nil, err
	}
	content, err := s.open(ctx, ref(p, id, v.Version.ID), v.Key, v.Bytes)
	return content, &v.Version, err
}

func (s *Service) open(ctx context.Context, at blob.Ref, key []byte, size int64) (io.ReadSeekCloser, error) {
	secret, err := blob.OpenKey(s.opts.Seal, key, bound(at), len(blob.Key{}))
	if err != nil {
		return nil, fmt.Errorf("open skill: %w", err)
	}
	return s.contents.OpenSeeker(ctx, at, blob.Key(secret), size)
}

// DeleteVersion deletes a version. Containers that have it keep their copy.
func (s *Service) DeleteVersion(ctx context.Context, p berth.ProjectID, id berth.SkillID,
	number string) (*berth.SkillVersion, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.load(ctx, p, id)
	if err != nil {
		return nil, err
	}
	v, err := all.find(number)
	switch {
	case err != nil:
		return nil, err
	case v.Version.Version != number:
		return nil, berth.Invalid("version", "Invalid 'version': '%.100s'. Expected the number of a version.", number)
	case len(all.versions) == 1:
		return nil, berth.Invalid("version", "Version %s is the only one of skill '%s'. Delete the skill instead.",
			number, id)
	case v == all.standard():
		return nil, berth.Invalid("version",
			"Version %s is the default version of skill '%s'. Set another default version first.", number, id)
	}
	if err := s.remove(ctx, ref(p, id, v.Version.ID)); err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if _, err := s.update(ctx, p, id, func(r *record) error {
		delete(r.Sizes, v.Number)
		return nil
	}); err != nil {
		return nil, err
	}
	return &v.Version, s.opts.Audit.Commit(ctx, audit.Entry{Action: audit.SkillDeleted, Project: p,
		Object: string(v.Version.ID), Bytes: v.Bytes})
}

// Delete deletes a skill with all its versions. Containers that have one keep their copy.
func (s *Service) Delete(ctx context.Context, p berth.ProjectID, id berth.SkillID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.load(ctx, p, id)
	if err != nil {
		return err
	}
	err = s.opts.Objects.DeleteObject(ctx, p, skillKey(id)) // with its versions, which have the keys
	if errors.Is(err, store.ErrNotFound) {
		return notFound(id)
	}
	if err != nil {
		return fmt.Errorf("delete skill: %w", err)
	}
	var bytes int64
	for _, v := range all.versions {
		if err := s.contents.Remove(ctx, ref(p, id, v.Version.ID)); err != nil {
			return fmt.Errorf("remove content of skill %s, which the next start removes: %w", id, err)
		}
		bytes += v.Bytes
	}
	return s.opts.Audit.Commit(ctx, audit.Entry{Action: audit.SkillDeleted, Project: p, Object: string(id),
		Bytes: bytes})
}
