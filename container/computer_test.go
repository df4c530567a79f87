package container

import (
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// The container of a chat continues from the snapshot that it left, and another user never gets it.
func TestComputer(t *testing.T) {
	h, _ := newArchive(t)
	ann, bob := byMe, byMe
	for user, caller := range map[string]*berth.Caller{"ann": &ann, "bob": &bob} {
		id := berth.NewEndUserID(mine, user, "")
		caller.Subject = &berth.Subject{EndUser: id, Computer: berth.ComputerName(user, "chat")}
		if err := h.store.Store.(store.Store).CreateObjects(t.Context(), mine, &store.Object{ObjectKey: store.ObjectKey{
			Kind: store.KindEndUser, ID: string(id)}, Body: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	auto := berth.ShellToolEnvironment{Type: berth.EnvironmentAuto}
	provide := func(caller berth.Caller, env berth.ShellToolEnvironment) berth.ContainerID {
		t.Helper()
		id, err := h.k.provider.Provide(t.Context(), caller, env, "")
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := provide(ann, auto)
	if again := provide(ann, auto); again != first {
		t.Errorf("the next request got %s, want %s", again, first)
	}
	other := provide(bob, auto)
	if other == first {
		t.Error("another user got the container")
	}
	h.sh(first, "echo one >f")
	h.sh(other, "true")
	ref := berth.ShellToolEnvironment{Type: berth.EnvironmentReference, ContainerID: first}
	if _, err := h.k.provider.Provide(t.Context(), bob, ref, ""); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("another user names the container: %v", err)
	}
	if _, err := h.k.provider.Provide(t.Context(), bob, auto, first); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("another user continues a chain with the container: %v", err)
	}
	h.pass(time.Hour)
	h.driver.until(0)
	was, err := h.store.Store.GetContainer(t.Context(), mine, first)
	if err != nil {
		t.Fatal(err)
	}
	if was.Body.Berth.LastSnapshot == "" {
		t.Fatalf("the container left no snapshot: %+v", was.Body)
	}
	second := provide(ann, auto)
	if out := h.sh(second, "cat f"); out != "one\n" {
		t.Errorf("the next container has the file %q", out)
	}
	next, err := h.store.Store.GetContainer(t.Context(), mine, second)
	if err != nil {
		t.Fatal(err)
	}
	if b := next.Body.Berth; b.FromSnapshot != was.Body.Berth.LastSnapshot || b.EndUser != ann.Subject.EndUser {
		t.Errorf("the next container is %+v, want it to start from %s", b, was.Body.Berth.LastSnapshot)
	}
	if _, err := h.k.provider.Provide(t.Context(), bob, berth.ShellToolEnvironment{Type: berth.EnvironmentAuto,
		Berth: &berth.ContainerSource{SnapshotID: was.Body.Berth.LastSnapshot}}, ""); err == nil {
		t.Error("another user starts a container from the snapshot")
	}
}
