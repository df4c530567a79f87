package forward

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/clock"
)

// A fake is a sink that keeps numbers of entries, and fails while err is set.
type fake struct {
	mu   sync.Mutex
	seqs []int64
	err  error
}

func (f *fake) Send(_ context.Context, entries []*audit.Entry) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	for _, e := range entries {
		f.seqs = append(f.seqs, e.Seq)
	}
	return nil
}

func (f *fake) Close() error { return nil }

func (f *fake) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// check compares the numbers that were sent with those from first up to, and without, end.
func (f *fake) check(t *testing.T, first, end int64) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, seq := range f.seqs {
		if seq != first+int64(i) {
			t.Fatalf("got the entries %v, want those from %d in order", f.seqs, first)
		}
	}
	if int64(len(f.seqs)) != end-first {
		t.Fatalf("got the entries %v, want those from %d up to %d", f.seqs, first, end)
	}
}

// A bench is a record and all that forwards it.
type bench struct {
	t      *testing.T
	record *audit.Log
	log    bytes.Buffer
	Options
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t}
	dir := t.TempDir()
	b.Options = Options{Dir: filepath.Join(dir, "audit"), Cursor: filepath.Join(dir, "forward", "target"), Name: "target",
		Clock: clock.System, Log: slog.New(slog.NewTextHandler(&b.log, nil))}
	b.open()
	return b
}

// open opens the record.
func (b *bench) open() {
	b.t.Helper()
	record, err := audit.Open(b.Dir, slog.New(slog.DiscardHandler))
	if err != nil {
		b.t.Fatal(err)
	}
	b.record, b.Record = record, record
	b.t.Cleanup(func() { record.Close() })
}

// add adds n entries.
func (b *bench) add(n int) {
	b.t.Helper()
	for range n {
		if err := b.record.Commit(b.t.Context(), audit.Entry{Action: audit.KeyCreated, Object: "key_x"}); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) start(s Sink) *Forwarder {
	b.t.Helper()
	o := b.Options
	o.Sink = s
	f, err := Start(o)
	if err != nil {
		b.t.Fatal(err)
	}
	return f
}

// All entries arrive in order and once, also those of while the server did not run.
func TestForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBench(t), &fake{}
		b.add(300)
		f := b.start(s)
		b.add(3)
		time.Sleep(time.Second)
		end := b.record.Size()
		s.check(t, 0, end)
		if f.Behind() != 0 {
			t.Errorf("behind by %d", f.Behind())
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		b.add(2)
		b.record.Close()
		b.open()
		f = b.start(s)
		time.Sleep(time.Second)
		s.check(t, 0, b.record.Size())
		f.Close()
		b.record.Close()
	})
}

// A target that is away for a day gets all that it has missed. The log has one line about it, and another at its return.
func TestForwardAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBench(t), &fake{err: errors.New("no route")}
		b.Limit = 10
		f := b.start(s)
		b.add(600)
		time.Sleep(24 * time.Hour)
		if !f.Full() || f.Behind() != b.record.Size() {
			t.Errorf("behind by %d, full %v", f.Behind(), f.Full())
		}
		s.fail(nil)
		time.Sleep(2 * longest)
		s.check(t, 0, b.record.Size())
		if f.Full() {
			t.Error("it is still full")
		}
		f.Close()
		b.record.Close()
		if text := b.log.String(); strings.Count(text, "no route") != 1 || strings.Count(text, "forwarded again") != 1 {
			t.Errorf("got the log\n%s", text)
		}
	})
}

// After a crash before the place was saved, the last batch is sent again, and no other.
func TestForwardCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBench(t), &fake{}
		f := b.start(s)
		b.add(5)
		time.Sleep(time.Second)
		f.Close()
		before, err := os.ReadFile(b.Cursor)
		if err != nil {
			t.Fatal(err)
		}
		at := b.record.Size()
		f = b.start(s)
		b.add(4)
		time.Sleep(time.Second)
		f.Close()
		if err := os.WriteFile(b.Cursor, before, 0o600); err != nil {
			t.Fatal(err)
		}
		again := &fake{}
		f = b.start(again)
		time.Sleep(time.Second)
		again.check(t, at, b.record.Size())
		f.Close()
		b.record.Close()
	})
}

// A record that is not the one forwarded before is sent from its start. A damaged file is an error that says what to do.
func TestForwardOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBench(t), &fake{}
		f := b.start(s)
		b.add(5)
		time.Sleep(time.Second)
		f.Close()
		b.record.Close()
		for _, n := range []int{10, 1} { // longer and shorter than what was forwarded
			if err := os.RemoveAll(b.Dir); err != nil {
				t.Fatal(err)
			}
			b.open()
			b.add(n)
			s = &fake{}
			f = b.start(s)
			time.Sleep(time.Minute)
			s.check(t, 0, b.record.Size())
			f.Close()
			b.record.Close()
		}
		for _, text := range []string{"", "{", `{"next": -1}`} {
			if err := os.WriteFile(b.Cursor, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			o := b.Options
			o.Sink = s
			if _, err := Start(o); err == nil || !strings.Contains(err.Error(), "remove the file") {
				t.Errorf("%q: got %v", text, err)
			}
		}
	})
}
