package skills_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/blob/blobtest"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/skills"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

const mine berth.ProjectID = "proj_mine"

type house struct {
	*skills.Service
	t       *testing.T
	objects brittle
	bucket  *blobtest.Storage
	now     time.Time
}

// A brittle store fails to create or to update objects while that is broken.
type brittle struct {
	store.Store
	create, update *bool
}

var errBroken = errors.New("broken")

func (b brittle) CreateObjects(ctx context.Context, p berth.ProjectID, objects ...*store.Object) error {
	if *b.create {
		return errBroken
	}
	return b.Store.CreateObjects(ctx, p, objects...)
}

func (b brittle) UpdateObject(ctx context.Context, p berth.ProjectID, key store.ObjectKey,
	change func(*store.Object) error) (*store.Object, error) {
	if *b.update {
		return nil, errBroken
	}
	return b.Store.UpdateObject(ctx, p, key, change)
}

func newHouse(t *testing.T) *house {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	check(t, err)
	bucket := blobtest.New(t)
	t.Cleanup(func() {
		db.Close()
	})
	h := &house{t: t, objects: brittle{db, new(bool), new(bool)}, bucket: bucket, now: time.Now()}
	h.Service = skills.New(skills.Options{Objects: h.objects, Contents: bucket, Seal: seal.New([32]byte{1}),
		Now: func() time.Time {
			return h.now
		}})
	return h
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// An upload has files by their paths.
type upload struct {
	files map[string]string
	rest  []string
	open  bool
}

func (u *upload) Next() (string, string, io.Reader, error) {
	if !u.open {
		for name := range u.files {
			u.rest = append(u.rest, name)
		}
		slices.Sort(u.rest)
		u.open = true
	}
	if len(u.rest) == 0 {
		return "", "", nil, io.EOF
	}
	name := u.rest[0]
	u.rest = u.rest[1:]
	return name, "", strings.NewReader(u.files[name]), nil
}

func tides(name string) *upload {
	return &upload{files: map[string]string{"tides/SKILL.md": "---\nname: " + name +
		"\ndescription: d\n---\n", "tides/scripts/run.sh": "#!/bin/sh\n", "tides/more.md": "canary"}}
}

func never() (bool, error)  { return false, nil }
func always() (bool, error) { return true, nil }

// contents returns the number of stored contents.
func (h *house) contents() int {
	h.t.Helper()
	keys := h.bucket.Keys()
	for _, key := range keys {
		if bytes.Contains(h.bucket.Get(key), []byte("SKILL.md")) {
			h.t.Errorf("content %s is not sealed", key)
		}
	}
	return len(keys)
}

// A version that is not saved changes nothing, wherever its creation is interrupted, and its
// number is not used.
func TestInterruptedVersion(t *testing.T) {
	h := newHouse(t)
	skill, err := h.Create(t.Context(), mine, tides("one"))
	check(t, err)
	for name, broken := range map[string]*bool{"before its number": h.objects.update,
		"after its number": h.objects.create} {
		*broken = true
		if _, err := h.CreateVersion(t.Context(), mine, skill.ID, tides("two"), always); !errors.Is(err, errBroken) {
			t.Errorf("%s: got %v", name, err)
		}
		*broken = false
		got, err := h.Get(t.Context(), mine, skill.ID)
		check(t, err)
		if *got != *skill || h.contents() != 1 {
			t.Errorf("%s: got %+v and %d contents, want %+v and 1", name, got, h.contents(), skill)
		}
	}
	v, err := h.CreateVersion(t.Context(), mine, skill.ID, tides("three"), never)
	check(t, err)
	if got, err := h.Get(t.Context(), mine, skill.ID); err != nil || v.Version != "3" || got.DefaultVersion != "1" ||
		got.LatestVersion != "3" {
		t.Errorf("got version %s, %+v, %v", v.Version, got, err)
	}
	_, second, err := h.Open(t.Context(), mine, skill.ID, "latest")
	check(t, err)
	content, first, err := h.Open(t.Context(), mine, skill.ID, "")
	check(t, err)
	size, err := content.Seek(0, io.SeekEnd)
	check(t, err)
	if second.Name != "three" || first.Name != "one" {
		t.Errorf("got %+v and %+v", first, second)
	}
	if n, err := skills.StoredBytes(t.Context(), h.objects, mine); err != nil || n < 2*size-20 || n > 2*size+20 {
		t.Errorf("got %d stored bytes, %v, want those of two versions of about %d", n, err, size)
	}
}

// A deleted skill cannot be read any more; a content that a crash left is removed at the next
// start.
func TestDelete(t *testing.T) {
	h := newHouse(t)
	skill, err := h.Create(t.Context(), mine, tides("one"))
	check(t, err)
	_, err = h.CreateVersion(t.Context(), mine, skill.ID, tides("two"), always)
	check(t, err)
	_, err = h.DeleteVersion(t.Context(), mine, skill.ID, "1")
	check(t, err)
	if _, _, err := h.Open(t.Context(), mine, skill.ID, "1"); berth.ErrorCode(err) != berth.CodeNotFound ||
		h.contents() != 1 {
		t.Errorf("got %v and %d contents", err, h.contents())
	}
	// as a crash after the first step
	check(t, h.objects.DeleteObject(t.Context(), mine, store.ObjectKey{Kind: store.KindSkill, ID: string(skill.ID)}))
	if h.contents() != 1 {
		t.Errorf("got %d contents", h.contents())
	}
	check(t, h.Sweep(t.Context()))
	other, err := h.Create(t.Context(), mine, tides("other"))
	check(t, err)
	check(t, h.Sweep(t.Context()))
	if h.contents() != 1 {
		t.Errorf("after the sweep there are %d contents, want that of the new skill", h.contents())
	}
	if _, err := h.Get(t.Context(), "proj_other", other.ID); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("another project: got %v", err)
	}
	check(t, h.Service.Delete(t.Context(), mine, other.ID))
	if n, err := skills.StoredBytes(t.Context(), h.objects, mine); err != nil || n != 0 || h.contents() != 0 {
		t.Errorf("got %d stored bytes, %v, and %d contents, want none", n, err, h.contents())
	}
}

func inline(t *testing.T, name string) berth.SkillParam {
	t.Helper()
	var data bytes.Buffer
	w := zip.NewWriter(&data)
	f, err := w.Create("x/SKILL.md")
	check(t, err)
	fmt.Fprintf(f, "---\nname: %s\ndescription: d\n---\n", name)
	check(t, w.Close())
	return berth.SkillParam{Type: berth.SkillInline, Name: name, Description: "D.",
		Source: &berth.SkillSource{Data: base64.StdEncoding.EncodeToString(data.Bytes())}}
}

// layer returns the entries of the layer of skills, after their record was stored.
func (h *house) layer(list []*skills.Install) []string {
	h.t.Helper()
	raw, err := json.Marshal(list)
	check(h.t, err)
	var stored []*skills.Install
	check(h.t, json.Unmarshal(raw, &stored))
	var out bytes.Buffer
	check(h.t, h.WriteLayer(h.t.Context(), mine, &out, stored))
	var entries []string
	for in := tar.NewReader(&out); ; {
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		check(h.t, err)
		entries = append(entries, fmt.Sprintf("%s %o %d", e.Name, e.Mode, e.Uid))
	}
}

// The layer of skills replaces their folders and has no writable file. An inline skill is stored
// until its container has started.
func TestInstall(t *testing.T) {
	h := newHouse(t)
	skill, err := h.Create(t.Context(), mine, tides("one"))
	check(t, err)
	list, err := h.Resolve(t.Context(), mine, []berth.SkillParam{{Type: berth.SkillReference, SkillID: skill.ID},
		inline(t, "horn")})
	check(t, err)
	check(t, h.Stage(t.Context(), mine, list))
	if h.contents() != 2 {
		t.Errorf("got %d contents", h.contents())
	}
	one, horn := strings.TrimPrefix(list[0].Skill.Path, "/"), strings.TrimPrefix(list[1].Skill.Path, "/")
	at := "home/oai/skills/"
	want := []string{at + ".wh." + filepath.Base(one) + " 0 0", one + "/SKILL.md 444 0", one + "/more.md 444 0",
		one + "/scripts/run.sh 555 0", one + "/scripts 555 0", one + " 555 0",
		at + ".wh." + filepath.Base(horn) + " 0 0", horn + "/SKILL.md 444 0", horn + " 555 0"}
	if got := h.layer(list); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, it := range list {
		check(t, skills.Check(it.Skill))
	}
	h.Discard(mine, list)
	if h.contents() != 1 {
		t.Errorf("after the start there are %d contents, want that of the stored skill", h.contents())
	}
	check(t, h.Service.Delete(t.Context(), mine, skill.ID))
	if err := h.WriteLayer(t.Context(), mine, io.Discard, list[:1]); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("a deleted version: got %v", err)
	}
	// Without a start the staged content expires.
	more, err := h.Resolve(t.Context(), mine, []berth.SkillParam{inline(t, "bell")})
	check(t, err)
	check(t, h.Stage(t.Context(), mine, more))
	check(t, h.Expire(t.Context(), h.now.Add(23*time.Hour)))
	if h.contents() != 1 {
		t.Errorf("after 23 hours there are %d contents", h.contents())
	}
	check(t, h.Expire(t.Context(), h.now.Add(25*time.Hour)))
	if n, err := skills.StoredBytes(t.Context(), h.objects, mine); err != nil || n != 0 || h.contents() != 0 {
		t.Errorf("after 25 hours: %d bytes, %v, %d contents", n, err, h.contents())
	}
}

// A bundle cannot name skills at other places.
func TestCheck(t *testing.T) {
	good := berth.ContainerSkill{Name: "a", Description: "d", Path: berth.SkillsDir + "/a-" + strings.Repeat("0", 32)}
	check(t, skills.Check(good))
	for _, path := range []string{"", "/etc", good.Path + "/..", berth.SkillsDir + "/b-" + strings.Repeat("0", 32),
		good.Path + "\n"} {
		bad := good
		bad.Path = path
		if skills.Check(bad) == nil {
			t.Errorf("path %q is accepted", path)
		}
	}
	for _, bad := range []berth.ContainerSkill{{Name: "../a", Path: good.Path},
		{Name: "a", Description: "\x1b", Path: good.Path}, {Name: "a", Description: strings.Repeat("d", 1025),
			Path: good.Path}} {
		if skills.Check(bad) == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
