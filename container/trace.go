package container

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/internal/span"
)

// A causeSpan span is one that later spans of a container may be children of.
type causeSpan struct {
	span  trace.Span
	began time.Time
}

// traceCommand starts the span of a command. Connections that the container makes from now on
// count as the command's: the server does not see which program makes one. The caller holds
// s.log.mu.
func traceCommand(ctx context.Context, s *instance, id berth.LogID) trace.Span {
	_, traced := span.Start(ctx, "exec")
	if traced.IsRecording() {
		traced.SetAttributes(semconv.ContainerID(string(s.id)), attribute.String("berth.log.id", string(id)))
		s.log.last = causeSpan{traced, s.clock.Now()}
	}
	return traced
}

// endCommand ends the span of a command.
func endCommand(traced trace.Span, outcome berth.ShellOutcome) {
	if outcome.ExitCode != nil {
		traced.SetAttributes(semconv.ProcessExitCode(*outcome.ExitCode))
	}
	if kind := outcomeLabel(outcome); kind != "ok" {
		span.Fail(traced, kind)
	}
	traced.End()
}

// traceFlow makes the span of a connection that has ended or was refused.
func traceFlow(s *instance, f egress.Flow) {
	if f.Opening {
		return
	}
	s.log.mu.Lock()
	last := s.log.last
	s.log.mu.Unlock()
	if last.span == nil || f.Started.Before(last.began) {
		return
	}
	traced := span.Below(last.span, "connect", f.Started)
	if !traced.IsRecording() {
		return
	}
	traced.SetAttributes(semconv.ServerAddress(f.Target.Host), semconv.ServerPort(f.Target.Port),
		attribute.Int64("berth.sent_bytes", f.Sent), attribute.Int64("berth.received_bytes", f.Received))
	if !f.Allowed {
		span.Fail(traced, "refused")
	}
	traced.End(trace.WithTimestamp(f.Started.Add(f.Took)))
}

// traceStart makes the span of a container's start, from its request until now.
func traceStart(s *instance, pl *plan, how string) {
	if pl.cause == nil {
		return
	}
	traced := span.Below(pl.cause, "start container", pl.requestedAt)
	if !traced.IsRecording() {
		return
	}
	traced.SetAttributes(semconv.ContainerID(string(s.id)), attribute.String("berth.start", how))
	if how == StartFailed {
		span.Fail(traced, how)
	}
	traced.End()
}
