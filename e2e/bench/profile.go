package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// profileTime is how long each kind of request is sent while profiles are taken.
const profileTime = 15 * time.Second

// measureProfile writes profiles of the server under the load of overhead and of a long
// chain: for each kind of request the processor time, and over all of them what was allocated
// and what waited.
func measureProfile(ctx context.Context, b *bench) (err error) {
	dir := b.profiles
	if dir == "" {
		return fmt.Errorf("-profiles names no directory")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	model := newModel()
	defer model.Close()
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	s, err := b.serveWith(ctx, overheadConfig(model.URL), "", "--pprof-listen", ports[0])
	if err != nil {
		return err
	}
	defer stopped(s, &err)
	profiles := "http://" + ports[0] + "/debug/pprof/"
	deepest := chainDepths[len(chainDepths)-1]
	ids, _, err := s.buildChain(ctx, deepest-1)
	if err != nil {
		return err
	}
	targets := append(overheadTargets(model.URL, &proxy{cmd: s.cmd}, s), chainTargets(s, model.URL, ids, deepest)...)
	for _, at := range targets {
		if !strings.HasPrefix(at.url, s.url) {
			continue
		}
		loading, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for loading.Err() == nil {
				at.load(loading, s.http, 16, 64)
			}
		}()
		name := strings.NewReplacer(", ", "-", " ", "-").Replace(at.name)
		path := filepath.Join(dir, name+".cpu.pprof")
		err := fetchFile(ctx, fmt.Sprintf("%sprofile?seconds=%.0f", profiles, profileTime.Seconds()), path)
		stop()
		<-done
		if err != nil {
			return err
		}
		top, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-cum", "-nodecount=60", path).Output()
		if err != nil {
			return fmt.Errorf("go tool pprof %s: %w", path, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".cpu.txt"), top, 0o644); err != nil {
			return err
		}
		fmt.Fprintln(b.out, path)
	}
	for _, kind := range []string{"allocs", "block", "mutex", "goroutine"} {
		path := filepath.Join(dir, kind+".pprof")
		if err := fetchFile(ctx, profiles+kind, path); err != nil {
			return err
		}
		fmt.Fprintln(b.out, path)
	}
	return nil
}

// fetchFile writes what a URL returns into a file.
func fetchFile(ctx context.Context, url, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(f, resp.Body)
	return err
}
