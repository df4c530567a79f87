package kubernetes

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/berth-run/berth/sandbox"
)

// containerName is the name of the container in a sandbox's Pod.
const containerName = "sandbox"

// wordsLimit bounds quoted messages, in bytes.
const wordsLimit = 1024

// lostAfter is how long after its time to end a Pod counts as lost if its node has not confirmed
// the end.
const lostAfter = time.Minute

// An end is why and how a sandbox has ended.
type end struct {
	reason sandbox.Reason
	detail string // in words
}

// failures are reasons for which a container waits that do not pass by themselves, or only if the
// operator changes something.
var failures = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
	"ImageInspectError", "RegistryUnavailable",
	"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}

// stateOf returns the state of a Pod's sandbox, and its end if it is dead.
func stateOf(p *pod, now time.Time) (sandbox.State, end, error) {
	if e, dead := endOf(p, now); dead {
		return sandbox.StateDead, e, nil
	}
	if len(p.Spec.SchedulingGates) > 0 {
		return sandbox.StateCreated, end{}, nil
	}
	switch p.Status.Phase {
	case "Pending", "Running", "":
		return sandbox.StateRunning, end{}, nil
	}
	return "", end{}, fmt.Errorf("the cluster reports the phase %.30q", p.Status.Phase)
}

// endOf returns the end of a Pod that has ended, or cannot start.
func endOf(p *pod, now time.Time) (end, bool) {
	disrupted := p.condition("DisruptionTarget")
	container := p.container()
	t := container.State.Terminated
	if w := container.State.Waiting; w != nil && slices.Contains(failures, w.Reason) {
		return end{sandbox.ReasonHost, inWords(w.Reason+": "+w.Message, wordsLimit)}, true
	}
	switch {
	case p.Status.Reason == "Evicted":
		return end{sandbox.ReasonEvicted, inWords("evicted: "+p.Status.Message, wordsLimit)}, true
	case t != nil && t.Reason == "OOMKilled":
		return end{sandbox.ReasonOOM, "a process reached the memory limit"}, true
	case disrupted != nil:
		if t != nil || p.Status.Phase == "Failed" || disrupted.Reason == "DeletionByTaintManager" &&
			p.Metadata.DeletionTimestamp != nil {
			return disruption(disrupted), true
		}
	case t != nil && t.Reason == "ContainerStatusUnknown":
		return end{sandbox.ReasonHost, "its node lost it"}, true
	case t != nil:
		detail := fmt.Sprintf("its first process ended with exit code %d", t.ExitCode)
		if t.Message != "" {
			detail += "; its log: " + t.Message
		}
		return end{sandbox.ReasonKilled, inWords(detail, wordsLimit)}, true
	case p.Status.Phase == "Failed": // its container never ran, or its end was not observed
		return end{sandbox.ReasonHost, inWords(cmp.Or(p.Status.Reason, "its Pod failed")+": "+p.Status.Message,
			wordsLimit)}, true
	case p.Status.Phase == "Succeeded":
		return end{sandbox.ReasonKilled, "its first process ended"}, true
	}
	if d := p.Metadata.DeletionTimestamp; d != nil && now.Sub(*d) > lostAfter {
		return end{sandbox.ReasonHost, "its node does not confirm its end"}, true
	}
	return end{}, false
}

// disruption returns the end of a Pod that the cluster disrupted: its node was lost, or something
// evicted it.
func disruption(c *condition) end {
	e := end{sandbox.ReasonEvicted, inWords(c.Reason+": "+c.Message, wordsLimit)}
	switch c.Reason {
	case "DeletionByTaintManager", "DeletionByPodGC":
		e.reason = sandbox.ReasonHost
	}
	return e
}

// endOfDeleted returns the end of a Pod that something other than the driver deleted. p is its
// last state.
func endOfDeleted(p *pod, now time.Time) end {
	if c := p.condition("DisruptionTarget"); c != nil {
		return disruption(c)
	}
	if e, dead := endOf(p, now); dead && e.reason != sandbox.ReasonKilled {
		return e
	}
	return end{sandbox.ReasonKilled, "its Pod was deleted"}
}

// condition returns a condition that is true, or nil.
func (p *pod) condition(kind string) *condition {
	for i, c := range p.Status.Conditions {
		if c.Type == kind && c.Status == "True" {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// container returns the status of the sandbox's container, which may be zero.
func (p *pod) container() containerStatus {
	for _, c := range p.Status.Containers {
		if c.Name == containerName {
			return c
		}
	}
	return containerStatus{}
}

// pending describes why a Pod does not run yet.
func (p *pod) pending() string {
	for _, c := range p.Status.Conditions {
		if c.Type == "PodScheduled" && c.Status == "False" {
			return inWords("it is not scheduled: "+c.Message, wordsLimit)
		}
	}
	if w := p.container().State.Waiting; w != nil {
		return inWords("its container waits: "+w.Reason+" "+w.Message, wordsLimit)
	}
	return inWords("its phase is "+cmp.Or(p.Status.Phase, "unknown")+" "+p.Status.Message, wordsLimit)
}
