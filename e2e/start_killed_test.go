package e2e

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/longtest"
)

// startKilledRounds is how often TestStartKilled kills the server.
const startKilledRounds = 2

// TestStartKilled kills the server at any moment within half a second in which containers
// are being started: empty, from a snapshot, as forks with and without memory, from the
// pool, by responses, with files, secrets and volumes. All of them end as without the
// kill, and each command runs once.
func TestStartKilled(t *testing.T) {
	s := newServerWith(t, "containers: {pool: 1}\n")
	c := s.client(option.WithRequestTimeout(2 * time.Minute))
	upload, err := c.Files.New(t.Context(), openai.FileNewParams{Purpose: openai.FilePurposeUserData,
		File: openai.File(strings.NewReader("uploaded\n"), "in.txt", "text/plain")})
	if err != nil {
		t.Fatal(err)
	}
	var v berth.Volume
	if err := c.Post(t.Context(), "volumes", map[string]any{"name": "shared", "max_bytes": 32 << 20}, &v); err != nil {
		t.Fatal(err)
	}
	base, err := c.Containers.New(t.Context(), openai.ContainerNewParams{Name: "base"})
	if err != nil {
		t.Fatal(err)
	}
	if out, _, err := s.berth("exec", base.ID, "--", "sh", "-c", "echo uploaded >in.txt && cat in.txt"); err != nil ||
		out != "uploaded\n" {
		t.Fatalf("got %q, %v", out, err)
	}
	var kept berth.Snapshot
	if err := c.Post(t.Context(), "containers/"+base.ID+"/snapshots", map[string]string{}, &kept); err != nil {
		t.Fatal(err)
	}

	const secretValue = "the-value-of-the-secret"
	rounds := startKilledRounds
	if longtest.Enabled() {
		rounds = 15
	}
	var mu sync.Mutex
	var containers, ids []string
	mounts, secrets := map[string]bool{}, map[string]bool{}
	for range rounds {
		c := s.client() // of this life of the server
		var work sync.WaitGroup
		add := func(make func() (string, error), into *[]string, marks ...map[string]bool) {
			work.Go(func() {
				id, err := make()
				if err != nil || id == "" {
					return // the server died before it answered
				}
				mu.Lock()
				defer mu.Unlock()
				*into = append(*into, id)
				for _, m := range marks {
					m[id] = true
				}
			})
		}
		create := func(opts ...option.RequestOption) func() (string, error) {
			return func() (string, error) {
				made, err := c.Containers.New(t.Context(), openai.ContainerNewParams{Name: "mine",
					FileIDs: []string{upload.ID}}, opts...)
				if err != nil {
					return "", err
				}
				return made.ID, nil
			}
		}
		fork := func(memory bool) func() (string, error) {
			return func() (string, error) {
				var made berth.Container
				err := c.Post(t.Context(), "containers/"+base.ID+"/fork", map[string]bool{"memory": memory}, &made)
				return string(made.ID), err
			}
		}
		add(create(), &containers)
		add(create(option.WithJSONSet("network_policy", map[string]any{"type": "allowlist",
			"allowed_domains": []string{"a.example"},
			"domain_secrets":  []map[string]string{{"domain": "a.example", "name": "KEY", "value": secretValue}}})),
			&containers, secrets)
		add(create(option.WithJSONSet("berth.volumes.0.name", "shared")), &containers, mounts)
		add(func() (string, error) {
			var made berth.Container
			err := c.Post(t.Context(), "containers", map[string]any{"name": "restored",
				"berth": map[string]any{"snapshot_id": kept.ID}}, &made)
			return string(made.ID), err
		}, &containers)
		add(fork(rand.IntN(2) == 0), &containers)
		for range 2 {
			add(func() (string, error) {
				task := background(shellTask(fence("echo ran >>counter; cat in.txt counter",
					"echo ran >>second; cat second")))
				r, err := c.Responses.New(t.Context(), task, option.WithJSONSet("tools.0.environment",
					map[string]any{"type": "container_auto", "file_ids": []string{upload.ID}}))
				if err != nil {
					return "", err
				}
				return r.ID, nil
			}, &ids)
		}
		time.Sleep(time.Duration(rand.Int64N(int64(500 * time.Millisecond)))) // anywhere in that
		s.kill()
		work.Wait()
		s.start()
	}

	c = s.client(option.WithRequestTimeout(2 * time.Minute))
	for _, id := range containers {
		script := "echo ran >>counter; cat in.txt counter"
		if secrets[id] {
			script += `; test -n "$KEY" && test "$KEY" != ` + secretValue
		}
		if mounts[id] {
			script += "; touch /mnt/volumes/shared/" + id
		}
		if out, errs, err := s.berth("exec", id, "--", "sh", "-c", script); err != nil || out != "uploaded\nran\n" {
			t.Errorf("%s (volume %v, secret %v): got %q, %v %s", id, mounts[id], secrets[id], out, err, errs)
		}
	}
	for _, id := range ids {
		r := s.final(c, id)
		if got := stdouts(r); r.Status != "completed" || !slices.Equal(got, []string{"uploaded\nran\n", "ran\n"}) {
			t.Errorf("%s is %s with %q", id, r.Status, got)
		}
	}
	t.Logf("%d containers and %d responses", len(containers), len(ids))
	for _, id := range containers {
		if err := c.Containers.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(s.state, "gvisor", "sandboxes", id)); !os.IsNotExist(err) {
			t.Errorf("something is left of %s: %v", id, err)
		}
	}
	// A container whose creation was not answered any more may exist, and use the volume.
	var rest []string // all of them first: the next page follows on the last of this
	list := c.Containers.ListAutoPaging(t.Context(), openai.ContainerListParams{})
	for list.Next() {
		rest = append(rest, list.Current().ID)
	}
	if list.Err() != nil {
		t.Fatal(list.Err())
	}
	for _, id := range rest {
		if err := c.Containers.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if err := c.Delete(t.Context(), "volumes/"+string(v.ID), nil, nil); err != nil {
		t.Error(err)
	}
	if log := s.log.String(); strings.Contains(log, secretValue) {
		t.Error("the log has the secret")
	}
}

// final waits for the end of a response.
func (s *server) final(c *openai.Client, id string) *responses.Response {
	s.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		r, err := c.Responses.Get(s.t.Context(), id, responses.ResponseGetParams{})
		if err != nil {
			s.t.Fatal(err)
		}
		if r.Status != "in_progress" && r.Status != "queued" {
			return r
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s is still %s; the server logged:\n%s", id, r.Status, s.log)
		}
	}
}
