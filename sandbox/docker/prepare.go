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
	"io"
	"os"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
)

// nothing is an image with no files. A container of it, which is never started,
// is the way into a volume.
const nothing = "berth/nothing:1"

// machines are the engine's names of the processors that a guest may be for.
var machines = map[elf.Machine][]string{
	elf.EM_X86_64:  {"x86_64", "amd64"},
	elf.EM_AARCH64: {"aarch64", "arm64"},
}

// prepare puts the guest program into the engine, and finds out whether the engine
// limits what a container writes.
//
// The way by a volume is open with every engine. A path of this machine, bound into
// the sandboxes, would have to be shared with the engine's; in the image, root in a
// sandbox could change the program, and a new one would need all images anew.
func (d *Driver) prepare(ctx context.Context) (disk bool, err error) {
	program, err := d.loadGuest()
	if err != nil {
		return false, err
	}
	if err := d.importNothing(ctx); err != nil {
		return false, err
	}
	sum := sha256.Sum256(program)
	d.volume = "berth-" + d.instance + "-" + hex.EncodeToString(sum[:6])
	if _, err := d.client.VolumeCreate(ctx, client.VolumeCreateOptions{Name: d.volume, Labels: map[string]string{labelInstance: d.instance}}); err != nil {
		return false, fmt.Errorf("making the guest's volume: %w", err)
	}
	way, disk, err := d.openWay(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		_, removeErr := d.client.ContainerRemove(context.WithoutCancel(ctx), way, client.ContainerRemoveOptions{Force: true})
		err = errors.Join(err, removeErr)
	}()
	if err := d.fillVolume(ctx, way, program); err != nil {
		return false, fmt.Errorf("filling the guest's volume: %w", err)
	}
	return disk, d.sweepVolumes(ctx)
}

// loadGuest reads the guest program, and checks that the engine can run it.
func (d *Driver) loadGuest() ([]byte, error) {
	program, err := os.ReadFile(d.opts.GuestPath)
	if err != nil {
		return nil, fmt.Errorf("guest program: %w", err)
	}
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("guest program %s: %w", d.opts.GuestPath, err)
	}
	for _, name := range machines[file.Machine] {
		if name == d.info.Architecture {
			return program, nil
		}
	}
	return nil, fmt.Errorf("the guest program %s is for %v, the engine's processor is %s", d.opts.GuestPath, file.Machine, d.info.Architecture)
}

// importNothing makes the image without files, if the engine does not have it.
func (d *Driver) importNothing(ctx context.Context) error {
	if _, err := d.client.ImageInspect(ctx, nothing); err == nil || !errdefs.IsNotFound(err) {
		return err
	}
	var empty bytes.Buffer
	if err := tar.NewWriter(&empty).Close(); err != nil {
		return err
	}
	return d.importImage(ctx, &empty, nothing, nil)
}

// openWay makes the container through which the volume is filled. It is made as a
// sandbox is, with a limit of its disk if the engine has that.
func (d *Driver) openWay(ctx context.Context) (id string, disk bool, err error) {
	host := &container.HostConfig{NetworkMode: "none", Mounts: []mount.Mount{{Type: mount.TypeVolume, Source: d.volume, Target: guestDir}}}
	if d.mayLimitDisk() {
		host.StorageOpt = map[string]string{"size": "1G"}
	}
	for {
		made, err := d.client.ContainerCreate(ctx, client.ContainerCreateOptions{HostConfig: host,
			Config: &container.Config{Image: nothing, Cmd: []string{"none"}, Labels: map[string]string{labelInstance: d.instance}}})
		if err == nil {
			return made.ID, host.StorageOpt != nil, nil
		}
		if host.StorageOpt == nil {
			return "", false, fmt.Errorf("making a container: %w", err)
		}
		host.StorageOpt = nil // it says so only when asked: the file system has no quotas
	}
}

// mayLimitDisk reports whether a storage driver limits what a container writes if the
// file system below can. Others may take the option and ignore it, or count the
// template as well, as btrfs does.
func (d *Driver) mayLimitDisk() bool {
	switch d.info.Driver {
	case "overlay2", "zfs":
		return true
	}
	return false
}

// fillVolume puts the program into the volume, unless it is there.
func (d *Driver) fillVolume(ctx context.Context, way string, program []byte) error {
	there, err := d.client.ContainerStatPath(ctx, way, client.ContainerStatPathOptions{Path: guestPath})
	if err == nil && there.Stat.Size == int64(len(program)) {
		return nil
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return err
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
	_, err = d.client.CopyToContainer(ctx, way, client.CopyToContainerOptions{DestinationPath: guestDir, Content: &buf})
	return err
}

// sweepVolumes removes the volumes of former guest programs that no sandbox uses.
func (d *Driver) sweepVolumes(ctx context.Context) error {
	all, err := d.client.VolumeList(ctx, client.VolumeListOptions{Filters: make(client.Filters).Add("label", labelInstance+"="+d.instance)})
	if err != nil {
		return err
	}
	for _, v := range all.Items {
		if v.Name == d.volume || !strings.HasPrefix(v.Name, "berth-"+d.instance+"-") {
			continue
		}
		if _, err := d.client.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{}); err != nil && !errdefs.IsConflict(err) && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// importImage makes an image of the archive of a root file system.
func (d *Driver) importImage(ctx context.Context, archive io.Reader, tag string, changes []string) error {
	progress, err := d.client.ImageImport(ctx, client.ImageImportSource{Source: archive, SourceName: "-"}, tag, client.ImageImportOptions{Changes: changes})
	if err != nil {
		return fmt.Errorf("importing %s: %w", tag, err)
	}
	defer progress.Close()
	if err := readProgress(progress); err != nil {
		return fmt.Errorf("importing %s: %w", tag, err)
	}
	return nil
}
