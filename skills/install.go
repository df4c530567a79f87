package skills

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/blob"
	"github.com/berth-run/berth/store"
)

// inlineLife is the time after which the inline skills of an interrupted start are deleted. A
// start waits as long as the volume is full.
const inlineLife = 24 * time.Hour

// An Install is a skill that is to be written into a container. Its JSON is part of the record
// from which an interrupted start is repeated.
type Install struct {
	Skill berth.ContainerSkill `json:"skill"`
	// id of its content; empty for an inline skill that is not staged
	Stored string `json:"stored,omitempty"`

	data []byte // of an inline skill
}

// An inline is the body of an object of store.KindSkillInline.
type inline struct {
	Bytes int64  `json:"bytes"`
	Key   []byte `json:"key"` // of its content, sealed
}

// Resolve returns the skills that a request names. Its errors for the client are about a
// field of "skills[i]".
func (s *Service) Resolve(ctx context.Context, p berth.ProjectID, refs []berth.SkillParam) ([]*Install, error) {
	list := make([]*Install, 0, len(refs))
	names := map[string]int{}
	for i, r := range refs {
		it, err := s.resolve(ctx, p, r)
		if err != nil {
			return nil, atSkill(err, i)
		}
		key := strings.ToLower(it.Skill.Name)
		if j, twice := names[key]; twice {
			return nil, berth.Invalid(fmt.Sprintf("skills[%d]", i),
				"Duplicate skill: skills[%d] and skills[%d] are both named '%s'. The names of the skills of a container must differ.",
				j, i, it.Skill.Name)
		}
		names[key] = i
		list = append(list, it)
	}
	return list, nil
}

func (s *Service) resolve(ctx context.Context, p berth.ProjectID, r berth.SkillParam) (*Install, error) {
	if r.Type == berth.SkillInline {
		return resolveInline(r)
	}
	all, err := s.load(ctx, p, r.SkillID)
	if err != nil {
		return nil, err
	}
	v, err := all.find(r.Version)
	if err != nil {
		return nil, err
	}
	at := v.Version
	return &Install{Stored: ref(p, r.SkillID, at.ID).ID,
		Skill: berth.ContainerSkill{SkillID: at.SkillID, Version: at.Version,
			Name: at.Name, Description: at.Description, Path: pathOf(at.Name, markOf([]byte(at.ID)))}}, nil
}

func resolveInline(r berth.SkillParam) (*Install, error) {
	if r.Source == nil {
		return nil, &berth.Error{Code: berth.CodeInvalid, Wire: "missing_required_parameter", Param: "source",
			Message: "Missing required parameter: 'source'."}
	}
	data, err := base64.StdEncoding.DecodeString(r.Source.Data)
	if err != nil {
		return nil, berth.Invalid("source.data",
			"Invalid 'source.data': expected a zip archive in base64, but got something else.")
	}
	if len(data) > MaxZipBytes {
		return nil, &berth.Error{Code: berth.CodeTooLarge, Param: "source.data",
			Message: fmt.Sprintf("The zip archive of a skill is larger than the limit of %d bytes.", MaxZipBytes)}
	}
	f, err := readFolder(bytes.NewReader(data), int64(len(data)))
	if err == nil && f.Name != r.Name {
		err = invalidf("its SKILL.md names it %.100q, but the request names it %.100q", f.Name, r.Name)
	}
	description := strings.TrimSpace(r.Description)
	if err == nil {
		if problem := checkDescription(description); problem != nil {
			err = invalidf("%w", problem)
		}
	}
	if err != nil {
		err = refused(err)
		if e, ok := errors.AsType[*berth.Error](err); ok {
			e.Param = "source.data"
		}
		return nil, err
	}
	return &Install{data: data, Skill: berth.ContainerSkill{Name: f.Name, Description: description,
		Path: pathOf(f.Name, markOf(data))}}, nil
}

// atSkill sets the parameter of an error about the i-th of a request's skills.
func atSkill(err error, i int) error {
	e, ok := errors.AsType[*berth.Error](err)
	if !ok {
		return err
	}
	at := *e
	at.Param = strings.TrimSuffix(fmt.Sprintf("skills[%d].%s", i, e.Param), ".")
	return &at
}

// Stage stores inline skills, so that a start can be repeated after a crash. Discard deletes
// them.
func (s *Service) Stage(ctx context.Context, p berth.ProjectID, list []*Install) error {
	for _, it := range list {
		if it.Stored != "" {
			continue
		}
		if err := s.stage(ctx, p, it); err != nil {
			s.Discard(p, list)
			return err
		}
	}
	return nil
}

func (s *Service) stage(ctx context.Context, p berth.ProjectID, it *Install) error {
	at, secret := blob.Ref{Project: p, ID: berth.NewID(berth.PrefixInlineSkill)}, blob.NewKey()
	body, err := json.Marshal(inline{int64(len(it.data)), blob.SealKey(s.opts.Seal, secret[:], bound(at))})
	if err != nil {
		return fmt.Errorf("encode inline skill: %w", err)
	}
	now := s.opts.Now()
	if err := s.quota(ctx, p, int64(len(it.data))); err != nil {
		return err
	}
	if err := s.contents.Write(ctx, at, secret, func(w io.Writer) error {
		_, err := w.Write(it.data)
		return err
	}); err != nil {
		return err
	}
	if err := s.opts.Objects.CreateObjects(ctx, p, &store.Object{ObjectKey: split(at), CreatedAt: now.Unix(),
		ExpiresAt: now.Add(inlineLife).Unix(), Body: body}); err != nil {
		return errors.Join(fmt.Errorf("save inline skill: %w", err), s.contents.Remove(context.WithoutCancel(ctx), at))
	}
	it.Stored = at.ID
	return nil
}

// Discard deletes the staged content of inline skills. What cannot be deleted expires.
func (s *Service) Discard(p berth.ProjectID, list []*Install) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, it := range list {
		if it.Skill.SkillID != "" || it.Stored == "" {
			continue
		}
		if err := s.remove(ctx, blob.Ref{Project: p, ID: it.Stored}); err != nil && !errors.Is(err, store.ErrNotFound) {
			s.opts.Log.Warn("failed to delete an inline skill; it will expire", "skill", it.Stored, "err", err)
		}
	}
}

// Staged returns the ids of up to limit staged inline skills, for DeleteStaged.
func (s *Service) Staged(ctx context.Context, p berth.ProjectID, limit int) ([]string, error) {
	list, _, err := s.opts.Objects.ListObjects(ctx, p, store.KindSkillInline, "", store.Page{Limit: limit,
		Ascending: true})
	if err != nil {
		return nil, fmt.Errorf("list inline skills: %w", err)
	}
	ids := make([]string, len(list))
	for i, o := range list {
		ids[i] = o.ID
	}
	return ids, nil
}

// DeleteStaged deletes a staged inline skill.
func (s *Service) DeleteStaged(ctx context.Context, p berth.ProjectID, id string) error {
	return s.remove(ctx, blob.Ref{Project: p, ID: id})
}

// WriteLayer writes a layer with the folders of skills, which replaces folders at their paths.
// Root owns the files, and none is writable.
func (s *Service) WriteLayer(ctx context.Context, p berth.ProjectID, w io.Writer, list []*Install) error {
	out := tar.NewWriter(w)
	for _, it := range list {
		if err := s.writeSkill(ctx, p, out, it); err != nil {
			return fmt.Errorf("copy skill %s: %w", it.Skill.Name, err)
		}
	}
	return out.Close()
}

func (s *Service) writeSkill(ctx context.Context, p berth.ProjectID, out *tar.Writer, it *Install) error {
	content, size, err := s.content(ctx, p, it)
	if err != nil {
		return err
	}
	defer content.Close()
	f, err := readFolder(readerAt{content}, size)
	if err != nil {
		return refused(err)
	}
	top := strings.TrimPrefix(it.Skill.Path, "/")
	dirs := map[string]bool{top: true}
	now := s.opts.Now()
	// What commands made of the folder goes first.
	old := path.Join(path.Dir(top), ".wh."+path.Base(top))
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: old, ModTime: now}); err != nil {
		return err
	}
	for _, file := range f.files {
		name := path.Join(top, file.path)
		for dir := path.Dir(name); dir != top; dir = path.Dir(dir) {
			dirs[dir] = true
		}
		mode := int64(0o444)
		if file.executable {
			mode = 0o555
		}
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: file.size,
			ModTime: now}); err != nil {
			return err
		}
		if err := copyFile(out, file); err != nil {
			return err
		}
	}
	// Directories follow their files: without CAP_DAC_OVERRIDE root cannot write in them.
	for _, dir := range slices.Backward(slices.Sorted(maps.Keys(dirs))) {
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o555,
			ModTime: now}); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(w io.Writer, f file) error {
	r, err := f.open()
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.CopyN(w, r, f.size)
	return err
}

type memory struct{ *bytes.Reader }

func (memory) Close() error { return nil }

// content opens the archive of a skill.
func (s *Service) content(ctx context.Context, p berth.ProjectID, it *Install) (io.ReadSeekCloser, int64, error) {
	if it.data != nil {
		return memory{bytes.NewReader(it.data)}, int64(len(it.data)), nil
	}
	at := blob.Ref{Project: p, ID: it.Stored}
	o, err := s.opts.Objects.GetObject(ctx, p, split(at))
	if errors.Is(err, store.ErrNotFound) {
		return nil, 0, berth.Errorf(berth.CodeNotFound, "Version %s of skill '%s' was deleted.", it.Skill.Version,
			it.Skill.SkillID)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read version: %w", err)
	}
	var v inline // also has the fields of a version that are needed here
	if err := json.Unmarshal(o.Body, &v); err != nil {
		return nil, 0, fmt.Errorf("decode version: %w", err)
	}
	content, err := s.open(ctx, at, v.Key, v.Bytes)
	return content, v.Bytes, err
}
