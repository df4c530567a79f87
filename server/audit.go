package server

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/berth-run/berth/audit"
)

// AuditDir is where the audit record is kept below a state directory.
const AuditDir = "audit"

// openRecord opens a server's audit record, and logs where it stands: a log that is
// kept elsewhere is a witness of it.
func openRecord(state string, log *slog.Logger) (*audit.Log, error) {
	record, err := audit.Open(filepath.Join(state, AuditDir), log)
	if audit.Broken(err) {
		return nil, fmt.Errorf("%w\nrun berth audit verify, keep the directory %s as it is elsewhere, and find out who did that", err, filepath.Join(state, AuditDir))
	}
	if err != nil {
		return nil, err
	}
	log.Info("audit", "checkpoint", record.Checkpoint())
	return record, nil
}
