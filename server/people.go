package server

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/engine"
)

// recordAnswers returns a function that records who answers approval requests. It waits until the entries are durable.
func recordAnswers(log *audit.Log) engine.Answered {
	return func(ctx context.Context, c berth.Caller, id berth.ResponseID, answers []berth.ApprovalAnswer) error {
		entries := make([]audit.Entry, len(answers))
		for i, a := range answers {
			entries[i] = audit.Entry{Action: audit.ApprovalRefused, Project: c.Project, Key: c.Key, Person: c.Person,
				Object: string(id), Name: a.ApprovalRequestID}
			if a.Approve {
				entries[i].Action = audit.ApprovalGiven
			}
		}
		return log.Commit(ctx, entries...)
	}
}

// recordReads returns a function that records who reads stored content.
func recordReads(log *audit.Log) func(berth.Caller, berth.ContainerID, string, string) {
	return func(c berth.Caller, container berth.ContainerID, object, route string) {
		log.Record(audit.Entry{Action: audit.FileRead, Project: c.Project, Key: c.Key, Person: c.Person,
			Container: container, Object: object, Reason: route})
	}
}
