package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// largeRuns is how often a large file is carried each way.
const largeRuns = 3

// measureFiles measures files into a container and out of it, and beside them a copy
// on this machine's disk.
func measureFiles(ctx context.Context, b *bench) (err error) {
	t := &table{title: fmt.Sprintf("Files (large: %d MB)", b.size/1e6)}
	defer b.show(t)
	s, err := b.serve(ctx, noPool)
	if err != nil {
		return err
	}
	defer stopped(s, &err)
	id, err := s.first(ctx, nil)
	if err != nil {
		return err
	}
	large := filepath.Join(b.state, "large")
	if err := writeRandom(large, b.size); err != nil {
		return err
	}
	defer os.Remove(large)
	idle, err := memoryOf(s.cmd.Process.Pid)
	if err != nil {
		return err
	}
	var in, out, guestIn, guestOut, disk series
	for range largeRuns {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var file string
		in.add(b.speed(func() (err error) { file, err = s.upload(ctx, id, large); return err }))
		path := "/v1/containers/" + id + "/files/" + file
		out.add(b.speed(func() error { return s.download(ctx, path+"/content", b.size) }))
		if err := s.do(ctx, http.MethodDelete, path, nil, nil); err != nil {
			return err
		}
		guestIn.add(b.speed(func() error { return s.guestUpload(ctx, id, large) }))
		guestOut.add(b.speed(func() error {
			return s.download(ctx, "/v1/containers/"+id+"/guest/files?path=/mnt/data/large", b.size)
		}))
		if _, err := s.sh(ctx, id, "test $(stat -c %s /mnt/data/large) = "+strconv.FormatInt(b.size,
			10)+" && rm /mnt/data/large"); err != nil {
			return fmt.Errorf("the file did not come whole: %w", err)
		}
		disk.add(b.speed(func() error {
			return errors.Join(host(ctx, "cp", large, large+".copy"), os.Remove(large+".copy"))
		}))
	}
	t.add(row{what: "in: POST …/files", unit: "MB/s", series: in, beside: "`cp` on the host", other: disk})
	t.add(row{what: "out: GET …/content", unit: "MB/s", series: out, beside: "`cp` on the host", other: disk})
	t.add(row{what: "in: `berth cp`", unit: "MB/s", series: guestIn, beside: "`cp` on the host", other: disk})
	t.add(row{what: "out: `berth cp`", unit: "MB/s", series: guestOut, beside: "`cp` on the host", other: disk})
	peak, err := memoryOf(s.cmd.Process.Pid)
	if err != nil {
		return err
	}
	t.add(row{what: "memory of the server at its peak", unit: "MB", series: one(peak.peak), beside: "before",
		other: one(idle.resident)})
	return b.small(ctx, t, s, id)
}

// small measures a small file, each way.
func (b *bench) small(ctx context.Context, t *table, s *server, id string) error {
	path := filepath.Join(b.state, "small")
	if err := writeRandom(path, 4<<10); err != nil {
		return err
	}
	var file string
	in, out := inTurn(ctx, b.n, func() (err error) { file, err = s.upload(ctx, id, path); return err },
		func() error { return s.download(ctx, "/v1/containers/"+id+"/files/"+file+"/content", 4<<10) })
	t.add(row{what: "4 KB in", unit: "ms", series: in})
	t.add(row{what: "4 KB out", unit: "ms", series: out})
	return ctx.Err()
}

// speed returns how many MB/s f carries, which carries the large file.
func (b *bench) speed(f func() error) (float64, error) {
	took, err := timed(f)
	return float64(b.size) / 1e6 / took.Seconds(), err
}

// writeRandom writes a file that cannot be compressed.
func writeRandom(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{}), size)
	return errors.Join(err, f.Close())
}

// upload puts a file into a container in a form, as OpenAI's clients do.
func (s *server) upload(ctx context.Context, id, path string) (file string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	body, into := io.Pipe()
	form := multipart.NewWriter(into)
	go func() {
		part, err := form.CreateFormFile("file", filepath.Base(path))
		if err == nil {
			_, err = io.CopyBuffer(struct{ io.Writer }{part}, struct{ io.Reader }{f}, make([]byte, 256<<10))
		}
		into.CloseWithError(errors.Join(err, form.Close()))
	}()
	resp, err := s.send(ctx, http.MethodPost, "/v1/containers/"+id+"/files", form.FormDataContentType(), body)
	if err != nil {
		body.Close()
		return "", err
	}
	defer resp.Body.Close()
	var put struct{ ID string }
	err = json.NewDecoder(resp.Body).Decode(&put)
	return put.ID, err
}

// guestUpload puts a file into a container as berth cp does.
func (s *server) guestUpload(ctx context.Context, id, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.guest(id).WriteFile(ctx, "", "/mnt/data/large", "", f)
}

// download reads the file at a path, which must have a size.
func (s *server) download(ctx context.Context, path string, size int64) error {
	resp, err := s.send(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 256<<10))
	if err == nil && n != size {
		err = fmt.Errorf("got %d bytes, want %d", n, size)
	}
	return err
}

// A memory is what a process uses of it, in MB.
type memory struct{ resident, peak float64 }

// memoryOf reads how much memory a process uses.
func memoryOf(pid int) (memory, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, err
	}
	figures := map[string]float64{}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == "kB" {
			kb, _ := strconv.ParseFloat(f[1], 64)
			figures[f[0]] = kb * 1024 / 1e6
		}
	}
	return memory{figures["VmRSS:"], figures["VmHWM:"]}, nil
}
