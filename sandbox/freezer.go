package sandbox

import "context"

// A Freezer is a Driver that can stop and end sandboxes without writing to a disk, so that
// it can do so when the volume of the sandboxes has no free block.
type Freezer interface {
	// Freeze stops what writes to the disk of a sandbox until Thaw, and returns when it has
	// stopped. The sandbox does not answer meanwhile, and the caller calls only Stats,
	// Thaw, Kill and Destroy. The end of this process does not thaw it. Freezing a sandbox
	// that is frozen or does not run is not an error.
	Freeze(ctx context.Context, id string) error

	// Thaw continues a sandbox that Freeze has stopped. One that is not frozen stays as it is.
	Thaw(ctx context.Context, id string) error

	// Kill ends all processes of a sandbox and frees the blocks that it wrote. The sandbox
	// is dead then; Destroy removes the rest.
	Kill(ctx context.Context, id string) error
}
