package container

import (
	"context"
	"time"

	"github.com/berth-run/berth"
)

// A quiet sandbox sleeps: it is paused with its connections, and wakes when the server sends it
// anything. It is quiet if it has no user, no frame was sent or received, and its processes used
// next to no CPU time, all for Options.SleepAfter. While it sleeps, its timers do not fire;
// those that are due fire when it wakes.
//
// No frame is lost or waits: one that is being sent prevents sleep, and the next one wakes the
// sandbox. See sleeper.

// maxQuietCPU is the share of a core below which the processes of a sandbox do nothing. An idle
// sandbox of gVisor uses 0.0005. A virtual machine with its devices uses more.
const (
	maxQuietCPU        = 0.01
	maxQuietMachineCPU = 0.05
)

// wakeTimeout bounds the wait of a frame for its sandbox.
const wakeTimeout = 20 * time.Second

// sleepChecks is the interval between two checks of a sleeping sandbox, whose processes cannot
// end.
const sleepChecks = time.Minute

// sleeps reports whether containers may sleep.
func (o *Options) sleeps() bool { return o.SleepAfter > 0 && o.Driver.Features().Pause }

// drowseLocked returns the job that brings a running sandbox closer to sleep, or nil.
func (pa *pauser) drowseLocked(s *instance, now time.Time) func(context.Context, *instance) {
	q := &s.quiet
	switch {
	case !pa.opts.sleeps() || s.body.Berth.KeepAwake || s.pause.over != nil:
		return nil
	case q.since.IsZero() || !s.mayLocked():
		s.awakeLocked(now)
	case q.sampled.IsZero() && now.Sub(q.since) >= pa.opts.SleepAfter/2:
		return pa.sampleCPU
	case !q.sampled.IsZero() && now.Sub(q.since) >= pa.opts.SleepAfter:
		return pa.sleepIfIdle
	}
	return nil
}

// sampleCPU reads the CPU time that sleepIfIdle compares with.
func (pa *pauser) sampleCPU(ctx context.Context, s *instance) {
	now := pa.opts.clock.Now()
	cpu, ok := pa.cpu(ctx, s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok {
		s.quiet.sampled, s.quiet.cpu = now, cpu
	} else {
		s.awakeLocked(now)
	}
}

// sleepIfIdle pauses a sandbox if its processes were idle since sampleCPU.
func (pa *pauser) sleepIfIdle(ctx context.Context, s *instance) {
	now := pa.opts.clock.Now()
	cpu, ok := pa.cpu(ctx, s)
	limit := maxQuietCPU
	if pa.opts.Driver.Features().OwnKernel {
		limit = maxQuietMachineCPU
	}
	s.mu.Lock()
	idle := ok && !s.quiet.sampled.IsZero() && (cpu-s.quiet.cpu).Seconds() <= limit*now.Sub(s.quiet.sampled).Seconds()
	if !idle {
		s.awakeLocked(now)
	}
	s.mu.Unlock()
	if idle {
		pa.sleep(ctx, s)
	}
}

// cpu returns the CPU time that a sandbox has used. ok is false if the driver does not know.
func (pa *pauser) cpu(ctx context.Context, s *instance) (used time.Duration, ok bool) {
	read, err := pa.meter.read(ctx, s)
	return read.CPU, err == nil && read.CPU > 0
}

// sleep pauses a sandbox with its connections, unless it is used.
func (pa *pauser) sleep(ctx context.Context, s *instance) {
	ctx, stop := s.withLife(ctx)
	defer stop()
	if !s.files.lock.tryAcquire() { // a scan for new files does not hold the container
		return
	}
	defer s.files.lock.release()
	if err := s.driver.acquire(ctx); err != nil {
		return
	}
	defer s.driver.release()
	s.mu.Lock()
	sleeps := s.pause.over == nil && s.mayLocked()
	if sleeps {
		s.pause.over = make(chan struct{})
		s.quiet.asleep.Store(true)
		// Either a frame that is sent now is seen here, or its sender sees asleep.
		if sleeps = s.mayLocked(); !sleeps {
			s.resumedLocked(pa.opts.clock.Now())
		}
	}
	s.mu.Unlock()
	if !sleeps {
		return
	}
	err := pa.opts.Driver.Pause(ctx, string(s.id))
	if err == nil {
		return
	}
	// It may be paused all the same: an error means that the driver does not know.
	again := pa.opts.Driver.Resume(context.WithoutCancel(ctx), string(s.id))
	s.markResumed(pa.opts.clock.Now())
	if s.life.Err() == nil {
		pa.opts.Log.Warn("failed to pause a quiet container; will retry", "container", s.id, "err", err,
			"resume", again)
	}
}

// wake resumes a sandbox if it sleeps.
func (pa *pauser) wake(ctx context.Context, s *instance) error {
	if !s.quiet.asleep.Load() {
		return nil
	}
	if pa.work.stopped() {
		return errStopping // the next server wakes it
	}
	ctx, cancel := pa.opts.clock.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	return pa.resume(ctx, s)
}

// sleeper connects the session of a guest with the sleep of its sandbox.
type sleeper struct {
	pauser *pauser
	s      *instance
}

// Sending implements mux.Sleeper.
func (z *sleeper) Sending() error {
	z.s.quiet.sending.Add(1)
	z.s.quiet.frames.Add(1)
	return z.pauser.wake(z.s.life, z.s)
}

// Sent implements mux.Sleeper.
func (z *sleeper) Sent() { z.s.quiet.sending.Add(-1) }

// Received implements mux.Sleeper.
func (z *sleeper) Received() { z.s.quiet.frames.Add(1) }

// Asleep implements mux.Sleeper.
func (z *sleeper) Asleep() bool { return z.s.quiet.asleep.Load() }

// showPause sets what a container's object shows of its pause.
func (s *instance) showPause(c *berth.ContainerBerth) {
	s.mu.Lock()
	defer s.mu.Unlock()
	paused := s.pause.over != nil && !s.pause.checkpointing
	c.Asleep = paused && s.quiet.asleep.Load()
	c.Paused = paused && !c.Asleep
}
