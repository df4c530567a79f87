package drivertest

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/layer"
	"github.com/berth-run/berth/sandbox"
)

func (s contents) all(t *testing.T) {
	s.run(t, "FilesOfCalls", s.filesOfCalls)
	s.run(t, "Archive", s.archive)
	s.run(t, "ArchiveChanges", s.archiveChanges)
	s.run(t, "ArchiveState", s.archiveState)
	s.run(t, "Links", s.links)
	s.run(t, "LayerLinks", s.layerLinks)
	s.run(t, "StandStill", s.standStill)
	s.run(t, "Memory", s.memory)
	s.run(t, "BadMemory", s.badMemory)
}

// changes are changes that commands make to a sandbox before it is archived. look prints the
// result, which must be the same in the sandbox to which the archive is applied.
const (
	changes = `mkdir -p a/b && echo one >a/b/one && ln a/b/one two && ln -s /nowhere dangling && mkfifo pipe &&
chmod 600 a/b/one && touch -d '2001-02-03 04:05:06' a/b/one && truncate -s 3000000 sparse && printf x >"$(printf 'caf\351 \n')" &&
mkdir -m 700 private && touch -d '2002-03-04' private`
	look = `find . -printf '%p %m %U %G %y %l %n %T@\n' | grep -av '^\. ' | sort; cat a/b/one; md5sum sparse`

	rootChanges = `sudo sh -ec 'echo made >/usr/local/made; chmod 4755 /usr/local/made; echo more >>/etc/profile; rm /etc/issue
rm -r /usr/share/doc; mkdir /usr/share/doc; echo doc >/usr/share/doc/doc; rm -rf /opt; ln -s usr/share /opt
useradd -u 1500 other; mkdir /srv/x; chown other /srv/x; mkfifo /srv/pipe'`
	// Files that are specific to a sandbox may differ, as may the number of links to a
	// directory.
	rootLook = `(cd / && sudo find etc usr opt srv var home root tmp bin sbin lib \( -path etc/resolv.conf -o -path etc/hosts -o -path etc/hostname -o -path etc/mtab -o -path etc/ssl/certs \) -prune -o ! -path etc \
-type d -printf '%p %m %U %G %y %T@\n' -o ! -path etc -printf '%p %m %U %G %y %l %n %T@\n' | sort | md5sum; sudo tail -n 1 /etc/profile /usr/local/made /etc/passwd; ls /opt/doc; test ! -e /etc/issue)`
)

// archive archives the changes of one sandbox and applies them to another.
func (s contents) archive(t *testing.T) {
	d := s.open(t)
	first := Start(t, d, sandbox.Spec{ID: "first", Template: s.Template})
	looking := look
	if s.isolates() && !s.features.NoRoot {
		looking += "; " + rootLook
		first.Must(rootChanges)
	}
	first.Must(changes)
	want := first.Must(looking)
	for _, id := range []string{"second", "third"} { // an applied archive is archived again
		next := Start(t, d, sandbox.Spec{ID: id, Template: s.Template})
		if err := next.Client.ApplyArchive(t.Context(), bytes.NewReader(s.layerOf(t, first))); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(next.Must(looking), "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", id, diff)
		}
		first = next
	}
}

// archiveState checks which state of the shell is archived.
func (s contents) archiveState(t *testing.T) {
	if !s.isolates() {
		return // its paths mean nothing in another sandbox
	}
	d := s.open(t)
	first := Start(t, d, sandbox.Spec{ID: "first", Template: s.Template})
	first.Must(`mkdir a; cd a; export COLOUR="it's blue" SHAPE="it's round" PATH=$PATH:/mnt/data`)
	second := Start(t, d, sandbox.Spec{ID: "second", Template: s.Template})
	if err := second.Client.SetEnvironment(t.Context(), []string{"COLOUR=it's red", "GIVEN=late"}); err != nil {
		t.Fatal(err)
	}
	if err := second.Client.ApplyArchive(t.Context(), bytes.NewReader(s.layerOf(t, first))); err != nil {
		t.Fatal(err)
	}
	// The sandbox's own settings override those of the archive.
	if got, want := second.Must(
		`echo "$PWD, $COLOUR, $SHAPE, $GIVEN, ${PATH##*:}"; export COLOUR=green`),
		"/mnt/data/a, it's red, it's round, late, /mnt/data"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := second.Must("echo $COLOUR"); got != "green" {
		t.Errorf("a variable that a command set is lost: got %q", got)
	}
}

// layerOf returns the changes of a sandbox as a layer.
func (s contents) layerOf(t *testing.T, b *Box) []byte {
	t.Helper()
	r, err := b.Client.Archive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out bytes.Buffer
	made, err := layer.Make(&out, r, s.Template.Path, layer.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if made.Bytes > 16<<20 {
		t.Errorf("the archive has %d bytes in %d files, so it has unchanged ones", made.Bytes, made.Entries)
	}
	return out.Bytes()
}

// standStill checks that commands are stopped while an archive is read, and only then.
func (s contents) standStill(t *testing.T) {
	if !s.isolates() {
		return // the guest would have to stop the machine's processes
	}
	b := Start(t, s.open(t), sandbox.Spec{ID: "still", Template: s.Template})
	b.Must(`head -c 8000000 /dev/zero >ballast; (i=0; while :; do i=$((i+1)); echo $i >n; mv n m; done) >/dev/null 2>&1 & setsid sh -c 'echo $$ >stopped; kill -STOP $$' & until test -s m && test -s stopped; do :; done`)
	r, err := b.Client.Archive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Client.Archive(t.Context()); err != guest.ErrBusy {
		t.Errorf("a second archive: got %v, want %v", err, guest.ErrBusy)
	}
	read := func() string {
		t.Helper()
		body, _, err := b.Client.ReadFile(t.Context(), "/mnt/data", "m", "")
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		var n bytes.Buffer
		if _, err := n.ReadFrom(body); err != nil {
			t.Fatal(err)
		}
		return n.String()
	}
	was := read()
	started := make(chan Result, 1)
	go func() { started <- b.Sh("cat m") }() // waits until it is started
	for range 20 {
		if now := read(); now != was {
			t.Fatalf("m went from %q to %q", was, now)
		}
	}
	r.Close() // before its end: the reader has stopped
	if r := <-started; r.Code != 0 || r.Err != nil {
		t.Errorf("got %+v, want a command to start", r)
	}
	b.Must(`until test "$(cat m)" != ` + strings.TrimSpace(was) + `; do sleep .01; done`) // they continue
	if got := b.Must(`ps -o state= -p $(cat stopped)`); got != "T" {
		t.Errorf("the stopped process is in state %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Client.Archive(ctx); err == nil {
		t.Error("an archive after its reader stopped")
	}
	b.Answers()
}
