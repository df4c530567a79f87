package state

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/berth-run/berth/audit"
)

// AuditDir is the directory of the audit record below a state directory.
const AuditDir = "audit"

// OpenAudit opens the audit record of a server and logs its last checkpoint. A log stored
// elsewhere can thus prove a later change of the record.
func OpenAudit(state string, log *slog.Logger) (*audit.Log, error) {
	record, err := audit.Open(filepath.Join(state, AuditDir), log)
	if audit.Broken(err) {
		return nil, fmt.Errorf(
			"%w\nrun berth audit verify, save a copy of the directory %s, and find out what has changed it", err,
			filepath.Join(state, AuditDir))
	}
	if err != nil {
		return nil, err
	}
	log.Debug("opened audit record", "checkpoint", record.Checkpoint())
	return record, nil
}
