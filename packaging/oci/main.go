// Command oci writes an image of Berth as a tar file that docker load and podman load read. It
// needs no Docker daemon.
//
//	go run ./packaging/oci -tag berth:latest -o dist/berth.tar bin/berth
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	tag := flag.String("tag", "berth:latest", "name of the image")
	out := flag.String("o", "", "file to write")
	arch := flag.String("arch", "amd64", "architecture of the program")
	roots := flag.String("ca", "/etc/ssl/certs/ca-certificates.crt", "certificates of the authorities that the server trusts")
	flag.Parse()
	if *out == "" || flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(*tag, *out, *arch, *roots, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "oci:", err)
		os.Exit(1)
	}
}

func write(tag, out, arch, roots, program string) error {
	ref, err := name.NewTag(tag)
	if err != nil {
		return err
	}
	created, err := sourceDate()
	if err != nil {
		return err
	}
	content, err := contents(program, roots, created)
	if err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
	if err != nil {
		return err
	}
	img, err := mutate.Append(empty.Image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "packaging/oci"}})
	if err != nil {
		return err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: created}
	config.Config = v1.Config{
		Entrypoint:   []string{"/usr/bin/berth"},
		Cmd:          []string{"serve", "--listen", "0.0.0.0:8080"},
		Env:          []string{"PATH=/usr/bin", "BERTH_STATE=/var/lib/berth"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
		Volumes:      map[string]struct{}{"/var/lib/berth": {}},
	}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return err
	}
	return tarball.WriteToFile(out, ref, img)
}

// sourceDate returns the time of SOURCE_DATE_EPOCH, so that the same input gives the same image.
func sourceDate() (time.Time, error) {
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(n, 0).UTC(), nil
}

// contents returns the file system of the image as a tar file.
func contents(program, roots string, at time.Time) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(name string, mode int64, data []byte) error {
		h := &tar.Header{Name: name, Mode: mode, Size: int64(len(data)), ModTime: at, Typeflag: tar.TypeReg}
		if data == nil {
			h.Typeflag = tar.TypeDir
		}
		err := w.WriteHeader(h)
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	certificates, err := os.ReadFile(roots)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{"etc/", "etc/ssl/", "etc/ssl/certs/", "usr/", "usr/bin/", "var/", "var/lib/", "root/"} {
		err = errors.Join(err, add(dir, 0o755, nil))
	}
	err = errors.Join(err, add("tmp/", 0o1777, nil), add("var/lib/berth/", 0o700, nil),
		add("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/sbin/nologin\n")),
		add("etc/group", 0o644, []byte("root:x:0:\n")),
		add("etc/ssl/certs/ca-certificates.crt", 0o644, certificates),
		add("usr/bin/berth", 0o755, binary), w.Close())
	return buf.Bytes(), err
}
