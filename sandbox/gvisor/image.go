package gvisor

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-run/berth/image/erofs"
	"github.com/berth-run/berth/layer"
	"github.com/berth-run/berth/sandbox"
)

// imageSuffix is the suffix of the skeleton's image.
const imageSuffix = ".erofs"

// prepareImages creates the image of the skeleton, and removes those of removed templates.
func (d *Driver) prepareImages() (err error) {
	if d.images, err = sandbox.OpenImages(cmp.Or(d.opts.ImageDir, filepath.Join(d.opts.StateDir,
		"images"))); err != nil {
		return err
	}
	if _, err := os.Stat(d.skeleton + imageSuffix); err != nil {
		tmp := d.skeleton + imageSuffix + ".tmp"
		if err := errors.Join(erofs.Make(tmp, d.skeleton+path.Dir(guestPath)),
			os.Rename(tmp, d.skeleton+imageSuffix)); err != nil {
			return err
		}
	}
	used, err := d.base.UsedImages()
	if err != nil {
		return err
	}
	return d.images.Drop(used)
}

// image returns the path of the image of a sandbox's template, or "" if templates are mounted.
// It creates the image at the first use, which takes a second for each hundred megabytes.
func (d *Driver) image(spec sandbox.Spec) (string, error) {
	if d.rootless {
		if len(spec.Mounts) > 0 {
			return "", fmt.Errorf("only root can mount directories of the host in sandboxes: %w", errors.ErrUnsupported)
		}
		return d.images.Get(spec.Template, erofs.Make)
	}
	owners, err := layer.OwnersOf(spec.Template.Path)
	if err == nil && owners.Noted() {
		err = fmt.Errorf("the template %s was unpacked by another user than root and works only for that user",
			spec.Template.Path)
	}
	return "", err
}

// useImage makes gVisor read the template from an image. Writes go to a layer above it.
func (d *Driver) useImage(o *specs.Spec, image string, disk int64) {
	o.Annotations["dev.gvisor.spec.rootfs.source"] = image
	o.Annotations["dev.gvisor.spec.rootfs.type"] = "erofs"
	// --overlay2 sets the real place; a checkpoint requires a constant one
	o.Annotations["dev.gvisor.spec.rootfs.overlay"] = "dir=/"
	o.Annotations["dev.gvisor.spec.rootfs.options"] = fmt.Sprintf("size=%d", disk)
	o.Mounts = append([]specs.Mount{{Destination: path.Dir(guestPath), Type: "erofs", Source: d.skeleton +
		imageSuffix}}, o.Mounts...)
}
