package storetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A Rotator is a store whose server's key can be rotated.
type Rotator interface {
	store.Store
	// RotateKey seals the keys of rows with another server's key. It calls after after each step.
	RotateKey(ctx context.Context, root [32]byte, after func(step string) error) error
}

const stepEnv = "BERTH_STORETEST_STEP"

// Rotations checks that the server's key can be rotated while the store is used, that former keys are refused
// afterwards, and that a process that is killed after any step leaves a store that one key opens. steps
// are those of RotateKey, of which the first uncommitted ones change nothing. place returns where a new
// store is. Call Rotations from a test, not from a subtest, and do nothing else in that test.
func Rotations(t *testing.T, uncommitted int, steps []string, place func(t *testing.T) string,
	open func(ctx context.Context, where string, key [32]byte) (Rotator, error)) {
	before, after := [32]byte{7}, [32]byte{8}
	if where := os.Getenv(victimEnv); where != "" {
		s, err := open(context.Background(), where, before)
		if err == nil {
			err = s.RotateKey(context.Background(), after, func(step string) error {
				if step == os.Getenv(stepEnv) {
					return syscall.Kill(os.Getpid(), syscall.SIGKILL)
				}
				return nil
			})
		}
		t.Fatal(errors.Join(err, errors.New("the process was not killed")))
	}
	mustOpen := func(where string, key [32]byte) Rotator {
		t.Helper()
		s, err := open(t.Context(), where, key)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for i, step := range steps {
		where := place(t)
		s := mustOpen(where, before)
		writeCanaries(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), victimEnv+"="+where, stepEnv+"="+step, "TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if state, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || state.Signal() != syscall.SIGKILL {
			t.Fatalf("the victim of %q was not killed: %v\n%s", step, err, out)
		}
		valid, refused := before, after
		if i >= uncommitted {
			valid, refused = after, before
		}
		if s, err := open(t.Context(), where, refused); err == nil || !strings.Contains(err.Error(), "other keys") {
			t.Fatalf("killed after %q: the wrong key opens %v, %v", step, s, err)
		}
		s = mustOpen(where, valid)
		canariesExist(t, s, step)
		third := [32]byte{9}
		if err := s.RotateKey(t.Context(), third, nil); err != nil {
			t.Errorf("rotate after a kill after %q: %v", step, err)
		}
		canariesExist(t, s, step)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustOpen(where, third)
		canariesExist(t, s, step)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	rotateInUse(t, place(t), mustOpen)
	rotateFails(t, steps[:uncommitted], place(t), mustOpen)
}

// canariesExist checks the rows of writeCanaries, and finds a container by its name.
func canariesExist(t *testing.T, s store.Store, when string) {
	t.Helper()
	for _, n := range []string{"1", "2"} {
		for _, row := range rows(t.Context(), s, n) {
			if err := row.read(); err != nil {
				t.Errorf("%s: %s: %v", when, row.name, err)
			}
		}
	}
	list, _, err := s.ListContainers(t.Context(), mine, canary+canary, store.Page{Limit: 10})
	if err != nil || len(list) != 2 {
		t.Errorf("%s: found %d containers by their name, %v; want 2", when, len(list), err)
	}
}

// rotateFails checks that a rotation that fails before it is committed changes nothing.
func rotateFails(t *testing.T, steps []string, where string, open func(string, [32]byte) Rotator) {
	key := [32]byte{7}
	s := open(where, key)
	writeCanaries(t, s)
	full := errors.New("the disk is full")
	for _, step := range steps {
		err := s.RotateKey(t.Context(), [32]byte{8}, func(at string) error {
			if at == step {
				return full
			}
			return nil
		})
		if !errors.Is(err, full) {
			t.Errorf("a failure after %q: got %v", step, err)
		}
		canariesExist(t, s, "failed after "+step)
		if err := s.DeleteResponse(t.Context(), mine, create(t, s, response("")).Body.ID); err != nil {
			t.Errorf("failed after %q: delete: %v", step, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(where, key)
	canariesExist(t, s, "opened again")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// rotateInUse rotates the key several times while others write, read and delete.
func rotateInUse(t *testing.T, where string, open func(string, [32]byte) Rotator) {
	s := open(where, [32]byte{7})
	writeCanaries(t, s)
	const workers, rounds = 4, 3
	ctx, stop := context.WithCancel(t.Context())
	started, rotated := make(chan bool, workers), make(chan bool)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := useStore(t.Context(), s, fmt.Sprintf("%d_%d", w, i)); err != nil {
					t.Errorf("during rotations: %v", err)
					started <- true
					return
				}
				select {
				case started <- true:
				case <-rotated:
				}
			}
		})
	}
	for i := range byte(rounds) {
		for range 2 * workers {
			<-started
		}
		if err := s.RotateKey(t.Context(), [32]byte{20 + i}, nil); err != nil {
			t.Error(err)
		}
	}
	stop()
	close(rotated)
	group.Wait()
	canariesExist(t, s, "after rotations in use")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(where, [32]byte{20 + rounds - 1})
	defer s.Close()
	canariesExist(t, s, "opened after rotations in use")
	for w := range workers {
		list, _, err := s.ListContainers(t.Context(), mine, fmt.Sprint("worker ", w), store.Page{Limit: 1})
		if err != nil || len(list) == 0 {
			t.Errorf("found %d containers of worker %d, %v", len(list), w, err)
		}
	}
}

// useStore writes, reads and deletes rows of all kinds.
func useStore(ctx context.Context, s store.Store, n string) error {
	worker, _, _ := strings.Cut(n, "_")
	r := response("")
	key := store.ObjectKey{Kind: store.KindConversationItem, ID: "obj_" + n}
	err := errors.Join(s.CreateResponse(ctx, r, []store.Event{event(0)}, store.Lease{Owner: "me"}),
		s.CreateObjects(ctx, mine, &store.Object{ObjectKey: key, Body: []byte(`"x"`)}),
		s.CreateContainer(ctx, &store.Container{Project: mine,
			Body: &berth.Container{ID: berth.ContainerID("cntr_w" + n), Name: "worker " + worker}}))
	if err != nil {
		return err
	}
	_, err1 := s.GetResponse(ctx, mine, r.Body.ID)
	_, err2 := s.GetObject(ctx, mine, key)
	return errors.Join(err1, err2, s.DeleteObject(ctx, mine, key), s.DeleteResponse(ctx, mine, r.Body.ID))
}
