package driver

import (
	"context"
	"path/filepath"

	"github.com/berth-run/berth/sandbox/microvm"
	"github.com/berth-run/berth/server/config"
)

// KernelDir returns the directory of the kernel for virtual machines.
func KernelDir(state string, config *config.Config) string {
	if dir := config.MicroVM.Kernel; dir != "" {
		return dir
	}
	return filepath.Join(state, "kernel")
}

// FetchKernel unpacks Debian's newest kernel for virtual machines into a state directory.
// It returns the path of the kernel's image.
func FetchKernel(ctx context.Context, state string) (string, error) {
	k, err := microvm.FetchKernel(ctx, filepath.Join(state, "kernel"))
	return k.Image, err
}
