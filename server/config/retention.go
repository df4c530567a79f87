package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berth-run/berth"
)

// Retention is how long the objects of projects are retained. A kind without a value is retained until a client
// deletes it, or as long as the configuration of all projects says.
type Retention struct {
	ContainerLogs   time.Duration `yaml:"container_logs"` // entries of the logs of containers
	Containers      time.Duration `yaml:"containers"`     // records of ended containers, after their last use
	Snapshots       time.Duration `yaml:"snapshots"`
	Responses       time.Duration `yaml:"responses"` // stored ones
	Conversations   time.Duration `yaml:"conversations"`
	ChatCompletions time.Duration `yaml:"chat_completions"` // stored ones
	Threads         time.Duration `yaml:"threads"`          // of assistants
	Files           time.Duration `yaml:"files"`            // uploaded ones
	Traces          time.Duration `yaml:"traces"`           // of clients' agents; 30d at most
	Audit           time.Duration `yaml:"audit"`            // the audit record; of all projects only

	// Store: false never stores responses and chat completions, whatever requests say. Default: true
	Store *bool `yaml:"store"`
}

// Lives returns the times by kind, without those that are not set.
func (r Retention) Lives() map[berth.Retained]time.Duration {
	all := map[berth.Retained]time.Duration{berth.RetainedContainerLogs: r.ContainerLogs,
		berth.RetainedContainers: r.Containers, berth.RetainedSnapshots: r.Snapshots,
		berth.RetainedResponses: r.Responses, berth.RetainedConversations: r.Conversations,
		berth.RetainedChatCompletions: r.ChatCompletions, berth.RetainedThreads: r.Threads,
		berth.RetainedFiles: r.Files, berth.RetainedTraces: r.Traces, berth.RetainedAudit: r.Audit}
	maps.DeleteFunc(all, func(_ berth.Retained, life time.Duration) bool { return life == 0 })
	return all
}

// Retentions are the retention of projects, by id; "default" is that of all projects.
type Retentions map[string]Retention

// Of returns the retention of a project, or of all projects for "".
func (all Retentions) Of(p berth.ProjectID) Retention {
	if p == "" {
		return all[defaultLimits]
	}
	return all[string(p)]
}

func (all Retentions) check() error {
	var wrong []error
	for _, id := range slices.Sorted(maps.Keys(all)) {
		r := all[id]
		if id != defaultLimits && berth.ProjectID(id).Valid() != nil {
			wrong = append(wrong, fmt.Errorf("retention.%s: %q is neither %s nor a project id", id, id, defaultLimits))
		}
		if id != defaultLimits && r.Audit != 0 {
			wrong = append(wrong, fmt.Errorf("retention.%s.audit: the audit record is of all projects: set retention.%s.audit",
				id, defaultLimits))
		}
		if r.Traces > berth.TraceLife*time.Second {
			wrong = append(wrong, fmt.Errorf("retention.%s.traces: traces are retained for 30d at most", id))
		}
	}
	return errors.Join(wrong...)
}
