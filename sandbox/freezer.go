package sandbox

import "context"

// A Freezer is a Driver that can stop and end sandboxes without writing to a disk, and so while
// the volume of the sandboxes has no free block.
type Freezer interface {
	// Freeze stops the processes that write to the disk of a sandbox until Thaw, and returns
	// when they have stopped. A frozen sandbox does not answer, and the caller calls only
	// Stats, Thaw, Kill and Destroy. The end of this process does not thaw it. Freezing a
	// sandbox that is frozen or does not run is not an error.
	Freeze(ctx context.Context, id string) error

	// Thaw continues a sandbox that Freeze stopped. It does nothing to one that is not frozen.
	Thaw(ctx context.Context, id string) error

	// Kill ends all processes of a sandbox and frees the blocks that it wrote. The sandbox is
	// then dead; Destroy removes the rest.
	Kill(ctx context.Context, id string) error
}
