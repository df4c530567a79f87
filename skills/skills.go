// Package skills stores skills, and writes them into containers. A skill is a folder with a
// SKILL.md that names and describes it. A version of a skill is a sealed blob: a zip archive
// that was validated before it was saved.
package skills

import (
	"cmp"
	"context"
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/blob"
	"github.com/berth-run/berth/store"
)

// maxVersions is the maximum number of versions that a skill has at a time.
const maxVersions = 1000

// Options are a Service's parts. Those without a default are required.
type Options struct {
	Objects  store.Objects
	Contents blob.Storage // contains skills only
	Seal     cipher.AEAD  // encrypts the keys of versions; from seal.New

	// Quota returns an error for the client if storing more bytes would exceed the
	// project's limit. Nil means no limit.
	Quota func(ctx context.Context, p berth.ProjectID, bytes int64) error

	Audit *audit.Log       // nil records nothing
	Log   *slog.Logger     // default slog.Default
	Now   func() time.Time // default time.Now
}

// A Service stores skills. It is safe for concurrent use. Its errors for clients are
// *berth.Error.
type Service struct {
	opts     Options
	contents *blob.Bucket
	blobs    *blob.Collection

	mu sync.Mutex // held while records of skills and versions change
}

// New returns a service.
func New(opts Options) *Service {
	opts.Log = cmp.Or(opts.Log, slog.Default())
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s := &Service{opts: opts, contents: blob.NewBucket(opts.Contents, "skill", opts.Log)}
	s.blobs = blob.NewCollection(blob.Options{Noun: "skill", Records: records{opts.Objects}, Remove: s.contents.Remove,
		Audit: opts.Audit})
	return s
}

// A record is the body of an object of store.KindSkill.
//
// The write that creates a version is the one that changes the skill: until it, a new default
// version does not exist, and Before is in effect.
type record struct {
	ID        berth.SkillID `json:"id"`
	CreatedAt int64         `json:"created_at"`
	Last      int           `json:"last"`             // the last number given to a version; none is given twice
	Default   int           `json:"default"`          // the default version
	Before    int           `json:"before,omitempty"` // the default version until Default exists

	// Sizes are the stored bytes of versions. After a crash it may have a version that does not
	// exist, until the next change of the skill.
	Sizes map[int]int64 `json:"sizes"`
}

// A version is the body of an object of store.KindSkillVersion.
type version struct {
	Version berth.SkillVersion `json:"version"`
	Number  int                `json:"number"`
	Bytes   int64              `json:"bytes"`
	Key     []byte             `json:"key"` // of its content, sealed
}

func skillKey(id berth.SkillID) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindSkill, ID: string(id)}
}

func versionKey(id berth.SkillID, version berth.SkillVersionID) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindSkillVersion, Parent: string(id), ID: string(version)}
}

func notFound(id berth.SkillID) error {
	return &berth.Error{Code: berth.CodeNotFound, Param: "skill_id",
		Message: fmt.Sprintf("No such Skill object: %.100s", id)}
}

func versionNotFound(id berth.SkillID, number string) error {
	return &berth.Error{Code: berth.CodeNotFound, Param: "version",
		Message: fmt.Sprintf(
			"Skill '%.100s' has no version '%.100s'. It may have been deleted; list the versions of the skill.", id,
			number)}
}

// A skillVersions is a skill with its versions, the oldest first. It has at least one version.
type skillVersions struct {
	record   *record
	versions []*version
}

// load reads a skill.
func (s *Service) load(ctx context.Context, p berth.ProjectID, id berth.SkillID) (*skillVersions, error) {
	o, err := s.opts.Objects.GetObject(ctx, p, skillKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, fmt.Errorf("read skill: %w", err)
	}
	return s.complete(ctx, p, o)
}

// complete reads the versions of a skill.
func (s *Service) complete(ctx context.Context, p berth.ProjectID, o *store.Object) (*skillVersions, error) {
	r := &record{}
	if err := json.Unmarshal(o.Body, r); err != nil {
		return nil, fmt.Errorf("decode skill %s: %w", o.ID, err)
	}
	list, _, err := s.opts.Objects.ListObjects(ctx, p, store.KindSkillVersion, o.ID, store.Page{Limit: maxVersions,
		Ascending: true})
	if err != nil {
		return nil, fmt.Errorf("list versions: %w", err)
	}
	all := &skillVersions{record: r}
	for _, o := range list {
		v := &version{}
		if err := json.Unmarshal(o.Body, v); err != nil {
			return nil, fmt.Errorf("decode version %s of skill %s: %w", o.ID, r.ID, err)
		}
		all.versions = append(all.versions, v)
	}
	if len(all.versions) == 0 { // it has been deleted
		return nil, notFound(r.ID)
	}
	return all, nil
}

// number returns the version with a number, or nil.
func (t *skillVersions) number(n int) *version {
	i := slices.IndexFunc(t.versions, func(v *version) bool { return v.Number == n })
	if i < 0 {
		return nil
	}
	return t.versions[i]
}

func (t *skillVersions) latest() *version { return t.versions[len(t.versions)-1] }

// standard returns the default version.
func (t *skillVersions) standard() *version {
	if v := t.number(t.record.Default); v != nil {
		return v
	}
	if v := t.number(t.record.Before); v != nil {
		return v
	}
	return t.latest()
}

// find returns a version by its number, "latest", or "" for the default version.
func (t *skillVersions) find(number string) (*version, error) {
	switch number {
	case "":
		return t.standard(), nil
	case "latest":
		return t.latest(), nil
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || strconv.Itoa(n) != number {
		return nil, berth.Invalid("version",
			"Invalid 'version': '%.100s'. Expected the number of a version, or 'latest'.", number)
	}
	if v := t.number(n); v != nil {
		return v, nil
	}
	return nil, versionNotFound(t.record.ID, number)
}

// skill returns the skill on the wire.
func (t *skillVersions) skill() *berth.Skill {
	standard := t.standard()
	return &berth.Skill{ID: t.record.ID, Object: "skill", Name: standard.Version.Name,
		Description: standard.Version.Description,
		CreatedAt:   t.record.CreatedAt, DefaultVersion: standard.Version.Version,
		LatestVersion: t.latest().Version.Version}
}

// Get returns a skill.
func (s *Service) Get(ctx context.Context, p berth.ProjectID, id berth.SkillID) (*berth.Skill, error) {
	all, err := s.load(ctx, p, id)
	if err != nil {
		return nil, err
	}
	return all.skill(), nil
}

// List returns one page of skills and whether there are more. For an unknown page.After it
// returns store.ErrNotFound.
func (s *Service) List(ctx context.Context, p berth.ProjectID, page store.Page) ([]*berth.Skill, bool, error) {
	objects, more, err := s.opts.Objects.ListObjects(ctx, p, store.KindSkill, "", page)
	if err != nil {
		return nil, false, err
	}
	list := make([]*berth.Skill, 0, len(objects))
	for _, o := range objects {
		all, err := s.complete(ctx, p, o)
		switch {
		case berth.ErrorCode(err) == berth.CodeNotFound: // it has been deleted
		case err != nil:
			return nil, false, err
		default:
			list = append(list, all.skill())
		}
	}
	return list, more, nil
}

// Versions returns all versions of a skill, oldest first.
func (s *Service) Versions(ctx context.Context, p berth.ProjectID, id berth.SkillID) ([]*berth.SkillVersion, error) {
	all, err := s.load(ctx, p, id)
	if err != nil {
		return nil, err
	}
	list := make([]*berth.SkillVersion, len(all.versions))
	for i, v := range all.versions {
		list[i] = &v.Version
	}
	return list, nil
}

// Version returns a version of a skill by its number, or "latest".
func (s *Service) Version(ctx context.Context, p berth.ProjectID, id berth.SkillID, number string) (*berth.SkillVersion,
	error) {
	all, err := s.load(ctx, p, id)
	if err != nil {
		return nil, err
	}
	v, err := all.find(number)
	if err != nil {
		return nil, err
	}
	return &v.Version, nil
}

// SetDefault makes a version the default one.
func (s *Service) SetDefault(ctx context.Context, p berth.ProjectID, id berth.SkillID, number string) (*berth.Skill,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.load(ctx, p, id)
	if err != nil {
		return nil, err
	}
	v, err := all.find(number)
	if err != nil {
		if e, ok := errors.AsType[*berth.Error](err); ok {
			at := *e
			at.Param, err = "default_version", &at
		}
		return nil, err
	}
	if all.record, err = s.update(ctx, p, id, func(r *record) error {
		r.Default, r.Before = v.Number, 0
		return nil
	}); err != nil {
		return nil, err
	}
	return all.skill(), nil
}

// update changes the record of a skill. s.mu is held.
func (s *Service) update(ctx context.Context, p berth.ProjectID, id berth.SkillID, change func(*record) error) (*record,
	error) {
	var r *record
	_, err := s.opts.Objects.UpdateObject(ctx, p, skillKey(id), func(o *store.Object) (err error) {
		r = &record{}
		if err = json.Unmarshal(o.Body, r); err != nil {
			return fmt.Errorf("decode skill: %w", err)
		}
		if r.Sizes == nil {
			r.Sizes = map[int]int64{}
		}
		if err = change(r); err != nil {
			return err
		}
		o.Body, err = json.Marshal(r)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(id)
	}
	return r, err
}

// StoredBytes returns the size of the skills that a project stores, in bytes.
func StoredBytes(ctx context.Context, objects store.Objects, p berth.ProjectID) (sum int64, err error) {
	for _, kind := range []store.Kind{store.KindSkill, store.KindSkillInline} {
		for page := (store.Page{Limit: 1000}); ; {
			list, more, err := objects.ListObjects(ctx, p, kind, "", page)
			if err != nil {
				return 0, fmt.Errorf("list skills: %w", err)
			}
			for _, o := range list {
				var r struct {
					Sizes map[int]int64 `json:"sizes"` // of a skill
					Bytes int64         `json:"bytes"` // of an inline one
				}
				if err := json.Unmarshal(o.Body, &r); err != nil {
					return 0, fmt.Errorf("decode skill %s: %w", o.ID, err)
				}
				sum += r.Bytes
				for _, n := range r.Sizes {
					sum += n
				}
				page.After = o.ID
			}
			if !more {
				break
			}
		}
	}
	return sum, nil
}

// records adapts the objects of versions and of inline skills to records of blobs.
type records struct{ objects store.Objects }

// ref names the content of a version. Its id has the skill's before it.
func ref(p berth.ProjectID, id berth.SkillID, version berth.SkillVersionID) blob.Ref {
	return blob.Ref{Project: p, ID: string(id) + "." + string(version)}
}

// split is the reverse of ref, also for inline skills.
func split(r blob.Ref) store.ObjectKey {
	if id, version, ok := strings.Cut(r.ID, "."); ok {
		return versionKey(berth.SkillID(id), berth.SkillVersionID(version))
	}
	return store.ObjectKey{Kind: store.KindSkillInline, ID: r.ID}
}

func (r records) Delete(ctx context.Context, at blob.Ref) error {
	return r.objects.DeleteObject(ctx, at.Project, split(at))
}

func (r records) Exists(ctx context.Context, at blob.Ref) (bool, error) {
	_, err := r.objects.GetObject(ctx, at.Project, split(at))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Expired returns inline skills; others do not expire.
func (r records) Expired(ctx context.Context, now time.Time, limit int) ([]blob.Ref, error) {
	objects, err := r.objects.ExpiredObjects(ctx, store.KindSkillInline, now, limit)
	refs := make([]blob.Ref, len(objects))
	for i, o := range objects {
		refs[i] = blob.Ref{Project: o.Project, ID: o.ID}
	}
	return refs, err
}

// Sweep removes contents without a record, which a crash may leave. It must not run while
// skills are created.
func (s *Service) Sweep(ctx context.Context) error {
	return s.contents.Sweep(ctx, records{s.opts.Objects})
}

// Expire deletes the inline skills of containers whose start was interrupted long ago.
func (s *Service) Expire(ctx context.Context, now time.Time) error {
	return s.blobs.Expire(ctx, now, func(ctx context.Context, r blob.Ref) error { return s.remove(ctx, r) })
}

// remove deletes a record, which has the key, and then its content.
func (s *Service) remove(ctx context.Context, at blob.Ref) error {
	if err := (records{s.opts.Objects}).Delete(ctx, at); err != nil {
		return err
	}
	return s.contents.Remove(ctx, at)
}

// Collect removes contents without a record that were complete before a time. It may run while
// skills are created, if no creation lasts from before that time.
func (s *Service) Collect(ctx context.Context, before time.Time) error {
	return s.contents.Collect(ctx, records{s.opts.Objects}, before)
}
