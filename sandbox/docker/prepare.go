package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
)

// nothing is an image without files. A container of it, which is never started, gives access to
// a volume.
const nothing = "berth/nothing:1"

// machines maps a guest's CPU to the engine's names of it.
var machines = map[elf.Machine][]string{
	elf.EM_X86_64:  {"x86_64", "amd64"},
	elf.EM_AARCH64: {"aarch64", "arm64"},
}

// guestVolume is the engine's volume with the guest program.
type guestVolume struct {
	client   *client.Client
	info     system.Info
	instance string
	program  string // path on this machine

	name string // set by prepare
}

// prepare copies the guest program into the engine, and detects whether the engine limits the
// disk use of containers.
//
// Every engine supports volumes. A path of this machine, bound into the sandboxes, would have
// to be shared with the engine's machine. In the image, root in a sandbox could change the
// program, and a new program would need new images.
func (g *guestVolume) prepare(ctx context.Context) (disk bool, err error) {
	program, err := g.load()
	if err != nil {
		return false, err
	}
	if err := g.importNothing(ctx); err != nil {
		return false, err
	}
	sum := sha256.Sum256(program)
	g.name = "berth-" + g.instance + "-" + hex.EncodeToString(sum[:6])
	if _, err := g.client.VolumeCreate(ctx, client.VolumeCreateOptions{Name: g.name,
		Labels: map[string]string{labelInstance: g.instance}}); err != nil {
		return false, fmt.Errorf("create the guest's volume: %w", err)
	}
	way, disk, err := g.open(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		_, removeErr := g.client.ContainerRemove(context.WithoutCancel(ctx), way,
			client.ContainerRemoveOptions{Force: true})
		err = errors.Join(err, removeErr)
	}()
	if err := g.fill(ctx, way, program); err != nil {
		return false, fmt.Errorf("fill the guest's volume: %w", err)
	}
	return disk, g.sweep(ctx)
}

// load reads the guest program, and checks that the engine can run it.
func (g *guestVolume) load() ([]byte, error) {
	program, err := os.ReadFile(g.program)
	if err != nil {
		return nil, fmt.Errorf("guest program: %w", err)
	}
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("guest program %s: %w", g.program, err)
	}
	for _, name := range machines[file.Machine] {
		if name == g.info.Architecture {
			return program, nil
		}
	}
	return nil, fmt.Errorf("the guest program %s is for %v, the engine's processor is %s", g.program, file.Machine,
		g.info.Architecture)
}

// importNothing creates the image without files, if the engine does not have it.
func (g *guestVolume) importNothing(ctx context.Context) error {
	switch _, err := g.client.ImageInspect(ctx, nothing); {
	case err == nil:
		return nil
	case !errdefs.IsNotFound(err):
		return fmt.Errorf("inspect image: %w", err)
	}
	var empty bytes.Buffer
	if err := tar.NewWriter(&empty).Close(); err != nil {
		return err
	}
	return importImage(ctx, g.client, &empty, nothing, nil)
}

// open creates the container through which the volume is filled. Like a sandbox it has a disk
// limit if the engine supports it.
func (g *guestVolume) open(ctx context.Context) (id string, disk bool, err error) {
	host := &container.HostConfig{NetworkMode: "none",
		Mounts: []mount.Mount{{Type: mount.TypeVolume, Source: g.name, Target: guestDir}}}
	if g.mayLimitDisk() {
		host.StorageOpt = map[string]string{"size": "1G"}
	}
	for {
		made, err := g.client.ContainerCreate(ctx, client.ContainerCreateOptions{HostConfig: host,
			Config: &container.Config{Image: nothing, Cmd: []string{"none"},
				Labels: map[string]string{labelInstance: g.instance}}})
		if err == nil {
			return made.ID, host.StorageOpt != nil, nil
		}
		if host.StorageOpt == nil {
			return "", false, fmt.Errorf("create a container: %w", err)
		}
		host.StorageOpt = nil // only the creation shows that the file system has no quotas
	}
}

// mayLimitDisk reports whether a storage driver limits a container's disk use if its file
// system can. Others may accept the option and ignore it, or count the template as well, as
// btrfs does.
func (g *guestVolume) mayLimitDisk() bool {
	switch g.info.Driver {
	case "overlay2", "zfs":
		return true
	}
	return false
}

// fill writes the program into the volume, unless it is there.
func (g *guestVolume) fill(ctx context.Context, way string, program []byte) error {
	there, err := g.client.ContainerStatPath(ctx, way, client.ContainerStatPathOptions{Path: guestPath})
	if err == nil && there.Stat.Size == int64(len(program)) {
		return nil
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("inspect volume: %w", err)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range []*tar.Header{
		{Typeflag: tar.TypeDir, Name: path.Base(guestRunDir) + "/", Mode: 0o700},
		{Typeflag: tar.TypeReg, Name: path.Base(guestPath), Mode: 0o755, Size: int64(len(program))},
	} {
		if err := w.WriteHeader(h); err != nil {
			return err
		}
	}
	if _, err := w.Write(program); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, err = g.client.CopyToContainer(ctx, way, client.CopyToContainerOptions{DestinationPath: guestDir, Content: &buf})
	if err != nil {
		return fmt.Errorf("copy guest: %w", err)
	}
	return nil
}

// sweep removes the volumes of former guest programs that no sandbox uses.
func (g *guestVolume) sweep(ctx context.Context) error {
	all, err := g.client.VolumeList(ctx, client.VolumeListOptions{Filters: make(client.Filters).Add("label",
		labelInstance+"="+g.instance)})
	if err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	for _, v := range all.Items {
		if v.Name == g.name || !strings.HasPrefix(v.Name, "berth-"+g.instance+"-") {
			continue
		}
		if _, err := g.client.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{}); err != nil &&
			!errdefs.IsConflict(err) && !errdefs.IsNotFound(err) {
			return fmt.Errorf("remove volume: %w", err)
		}
	}
	return nil
}
