package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// controlTimeout bounds one command to QEMU.
const controlTimeout = 10 * time.Second

// unstopTimeout bounds unstop. A frozen QEMU does not answer.
const unstopTimeout = 2 * time.Second

// maxAnswer bounds QEMU's answer, in bytes. It is not trusted.
const maxAnswer = 1 << 20

// Pause stops the machine's CPUs.
func (d *Driver) Pause(ctx context.Context, id string) error {
	return d.control(ctx, id, "stop", func(s instance) error {
		return os.WriteFile(s.path("paused"), nil, 0o600)
	})
}

// Resume continues them. The machine's clock was stopped and is set.
func (d *Driver) Resume(ctx context.Context, id string) error {
	return d.control(ctx, id, "cont", func(s instance) error {
		if err := os.Remove(s.path("paused")); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		// A connection starts with the time. If all are in use, the next one sets it.
		if c, err := s.dial(ctx); err == nil {
			ctx, cancel := context.WithTimeout(ctx, controlTimeout)
			defer cancel()
			_ = c.Await(ctx)
			c.Close()
		}
		return nil
	})
}

// control sends QEMU a command of its machine protocol, and then records the result with then.
func (d *Driver) control(ctx context.Context, id, command string, then func(instance) error) error {
	s, err := d.base.Find(id)
	if err != nil {
		return err
	}
	_, alive, err := s.qemu()
	if err == nil && !alive {
		err = errors.New("sandbox is not running")
	}
	if err != nil {
		return fmt.Errorf("microvm: %s %s: %w", command, id, err)
	}
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	_, err = s.command(ctx, command)
	cancel()
	if err == nil {
		err = then(s)
	}
	if err != nil {
		return fmt.Errorf("microvm: %s %s: %w", command, id, err)
	}
	return nil
}

// unstop continues a machine that QEMU stopped because a write to its disk found no space on the
// host's volume. Without space QEMU stops it again.
func (s instance) unstop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, unstopTimeout)
	defer cancel()
	raw, err := s.command(ctx, "query-status")
	if err != nil {
		return err
	}
	var state struct {
		Status string `json:"status"`
	}
	if err := json.Unmarshal(raw, &state); err != nil {
		return fmt.Errorf("decode status: %w", err)
	}
	if state.Status != "io-error" {
		return nil
	}
	_, err = s.command(ctx, "cont")
	return err
}

// command makes QEMU execute a command without arguments and returns its result.
func (s instance) command(ctx context.Context, name string) (result json.RawMessage, err error) {
	// QEMU accepts one connection at a time.
	lock, err := os.OpenFile(s.path("run/monitor.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, os.NewSyscallError("flock", err)
	}
	conn, err := s.connect(ctx, "monitor")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	in := json.NewDecoder(io.LimitReader(conn, maxAnswer))
	for _, execute := range []string{"qmp_capabilities", name} {
		if err := json.NewEncoder(conn).Encode(map[string]string{"execute": execute}); err != nil {
			return nil, errors.Join(context.Cause(ctx), err)
		}
		if result, err = await(in); err != nil {
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
	return result, nil
}

// await reads the answer to a command, and skips the greeting and events before it.
func await(in *json.Decoder) (json.RawMessage, error) {
	for {
		var m struct {
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Desc string `json:"desc"`
			} `json:"error"`
		}
		if err := in.Decode(&m); err != nil {
			return nil, fmt.Errorf("decode answer: %w", err)
		}
		if m.Error != nil {
			return nil, fmt.Errorf("qemu: %.200q", m.Error.Desc)
		}
		if m.Return != nil {
			return m.Return, nil
		}
	}
}
