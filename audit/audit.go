// Package audit keeps the hash-chained, signed record of what was done.
//
// The record is a directory of plain text, one JSON object a line:
//
//	AUDIT/
//	  key                the private key, made at first; a golang.org/x/mod/sumdb/note signer
//	  key.pub            the public key, a note verifier
//	  lock               held by whoever writes
//	  000000000000.log   a segment, named by the sequence number of its first entry
//
// An entry holds the hash of the one before it and its own. What is written at
// once, a batch, ends with a checkpoint: a signed note that states how many entries
// there are and the hash of the last. Whoever has the public key checks all of it
// without a server, and whoever has kept an older checkpoint sees a record that
// was rolled back (Verify).
//
// Nothing is ever changed in a segment. What a crash leaves behind the last
// checkpoint was neither signed nor acknowledged: the next writer cuts it off and
// says so in an entry of its own.
package audit

import (
	"time"

	"github.com/berth-run/berth"
)

// An Action is what an entry says was done.
type Action string

// The actions, with the fields that they fill beside Time, Project, Key and Container.
const (
	ContainerCreated Action = "container.created" // Template, Isolation, Snapshot
	ContainerEnded   Action = "container.ended"   // Reason: expired, deleted, oom, killed, host or disk; Snapshot. Once for each container
	ContainerErased  Action = "container.erased"  // Reason: key_destroyed or files_removed. Nothing of it is left; once for each that has ended
	FileCreated      Action = "file.created"      // Object, Bytes
	FileDeleted      Action = "file.deleted"      // Object
	FileExpired      Action = "file.expired"      // Object
	SecretBound      Action = "secret.bound"      // Name, Host
	SecretUsed       Action = "secret.used"       // Name, Host, Port; Count of more than one, of which some may be toward other hosts if there is none
	EgressConnected  Action = "egress.connected"  // Host, Port, Address, Reason: before anything was sent there
	EgressEnded      Action = "egress.ended"      // of a connection: and Sent, Received, Milliseconds
	EgressRefused    Action = "egress.refused"    // Host, Port, Reason
	EgressMore       Action = "egress.more"       // of too many to tell of each: Count, Refused, Sent, Received
	SnapshotCreated  Action = "snapshot.created"  // Object, Bytes
	SnapshotDeleted  Action = "snapshot.deleted"  // Object, Reason: expired or deleted
	VolumeCreated    Action = "volume.created"    // Object, Name
	VolumeMounted    Action = "volume.mounted"    // Object, Name
	VolumeDeleted    Action = "volume.deleted"    // Object, Name, Reason: expired or deleted
	ProjectErased    Action = "project.erased"    // Reason: archived; Count: of the things that it had, of which some have entries of their own
	KeyCreated       Action = "key.created"       // Object: the key that was made
	KeyRevoked       Action = "key.revoked"       // Object

	// SegmentBegun is the first entry of each segment: Living says of which containers
	// something was left by then, so that a writer needs to read the last segment only.
	SegmentBegun Action = "audit.segment"
	// Repaired says that Bytes were cut off behind the last checkpoint; Name is
	// their SHA-256.
	Repaired Action = "audit.repaired"
)

// An Entry says one thing that was done. It holds no content and no secret.
type Entry struct {
	Seq       int64             `json:"seq"` // from 0, without gaps; the Log's
	Time      time.Time         `json:"time"`
	Project   berth.ProjectID   `json:"project,omitempty"`
	Key       berth.KeyID       `json:"key,omitempty"` // with which it was asked for; empty without keys
	Action    Action            `json:"action"`
	Container berth.ContainerID `json:"container,omitempty"`
	Object    string            `json:"object,omitempty"` // the id of what else it is about

	Reason       string `json:"reason,omitempty"`
	Template     string `json:"template,omitempty"` // a digest
	Isolation    string `json:"isolation,omitempty"`
	Snapshot     string `json:"snapshot,omitempty"` // the id of the one that a container started from, or has left
	Name         string `json:"name,omitempty"`
	Host         string `json:"host,omitempty"`
	Port         int    `json:"port,omitempty"`
	Address      string `json:"address,omitempty"` // that was dialled
	Bytes        int64  `json:"bytes,omitempty"`
	Sent         int64  `json:"sent,omitempty"`     // bytes, out of the container
	Received     int64  `json:"received,omitempty"` // bytes, into it
	Milliseconds int64  `json:"milliseconds,omitempty"`
	Count        int64  `json:"count,omitempty"`
	Refused      int64  `json:"refused,omitempty"`   // of Count
	Recovered    bool   `json:"recovered,omitempty"` // it was done before a crash, and written after it

	Living map[berth.ContainerID]Life `json:"living,omitempty"`

	Prev Hash `json:"prev"` // of the entry before
	Hash Hash `json:"-"`    // of this entry; the last field of its line
}

// A Life is the state of a container of which something is left.
type Life struct {
	Project berth.ProjectID `json:"project,omitempty"`
	Ended   bool            `json:"ended,omitempty"`
}

// maxText bounds each text of an entry, in bytes. Some come out of sandboxes.
const maxText = 512

// clip bounds the texts of an entry.
func (e *Entry) clip() {
	for _, s := range []*string{&e.Object, &e.Reason, &e.Template, &e.Isolation, &e.Snapshot, &e.Name, &e.Host, &e.Address,
		(*string)(&e.Project), (*string)(&e.Key), (*string)(&e.Container)} {
		if len(*s) > maxText {
			*s = (*s)[:maxText]
		}
	}
}
