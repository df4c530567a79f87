// Package audit writes a hash-chained, signed record of the actions of a server.
//
// The record is a directory of plain text files, with one JSON object per line:
//
//	AUDIT/
//	  key                the private key, generated on first use; a golang.org/x/mod/sumdb/note signer
//	  key.pub            the public key, a note verifier
//	  lock               held by the process that writes
//	  000000000000.log   a segment, named by the sequence number of its first entry
//
// An entry holds its own hash and that of the entry before it. Entries are written in
// batches. Each batch ends with a checkpoint: a signed note with the number of entries and
// the hash of the last one. The public key suffices to verify the record without a server.
// An older checkpoint also reveals a record that was rolled back (see Verify).
//
// Segments are append-only. Lines that a crash leaves after the last checkpoint were
// neither signed nor acknowledged: the next writer removes them and records the removal in
// an entry.
package audit

import (
	"time"

	"github.com/berth-run/berth"
)

// An Action is the kind of an entry.
type Action string

// The actions, with the fields that they use besides Time, Project, Key and Container.
const (
	ContainerCreated Action = "container.created" // Template, Isolation, Snapshot
	// Reason: expired, deleted, oom, killed, host, disk or evicted; Snapshot. Once per container
	ContainerEnded  Action = "container.ended"
	ContainerErased Action = "container.erased" // Reason: key_destroyed or files_removed. Once per ended container
	ContainerMoved  Action = "container.moved"  // Object: the server that took it over. Its record continues
	FileCreated     Action = "file.created"     // Object, Bytes
	FileDeleted     Action = "file.deleted"     // Object
	FileExpired     Action = "file.expired"     // Object
	UploadCreated   Action = "upload.created"   // Object
	// Object, Reason: completed, cancelled, expired or deleted; Bytes: of its parts, which were erased
	UploadEnded  Action = "upload.ended"
	SkillCreated Action = "skill.created" // Object: the version, Bytes
	// Object: the skill or version; Bytes: of its versions, which were erased
	SkillDeleted   Action = "skill.deleted"
	NetworkChanged Action = "network.changed" // Reason: the type of the new policy
	SecretCreated  Action = "secret.created"  // Object, Name
	SecretUpdated  Action = "secret.updated"  // Object, Name
	SecretDeleted  Action = "secret.deleted"  // Object, Name
	SecretBound    Action = "secret.bound"    // Name, Host
	// Name, Host, Port; Count if it sums up several uses, without Host if they had several hosts
	SecretUsed      Action = "secret.used"
	EgressConnected Action = "egress.connected" // Host, Port, Address, Reason; recorded before any data is sent
	EgressEnded     Action = "egress.ended"     // as EgressConnected, and Sent, Received, Milliseconds
	EgressRefused   Action = "egress.refused"   // Host, Port, Reason
	// sums up connections beyond the limit on entries: Count, Refused, Sent, Received
	EgressMore      Action = "egress.more"
	SnapshotCreated Action = "snapshot.created" // Object, Bytes
	SnapshotDeleted Action = "snapshot.deleted" // Object, Reason: expired or deleted
	VolumeCreated   Action = "volume.created"   // Object, Name
	VolumeMounted   Action = "volume.mounted"   // Object, Name
	VolumeDeleted   Action = "volume.deleted"   // Object, Name, Reason: expired or deleted
	// Object: the id of the user, Count: of deleted objects. The containers have entries of their own
	EndUserForgotten Action = "end_user.forgotten"
	// Reason: archived; Count: the number of erased objects. Some have their own entries
	ProjectErased     Action = "project.erased"
	ProjectCreated    Action = "project.created" // Name
	ProjectUpdated    Action = "project.updated" // Name; Reason: name or limits
	ProjectArchived   Action = "project.archived"
	KeyCreated        Action = "key.created"    // Object: the new key
	KeyUpdated        Action = "key.updated"    // Object; Reason: limits
	KeyRevoked        Action = "key.revoked"    // Object
	PersonCreated     Action = "person.created" // Object: the person, Name: who it is; as in the next ones
	PersonSignedIn    Action = "person.signed_in"
	PersonRefused     Action = "person.refused"    // Reason
	PersonSignedOut   Action = "person.signed_out" // Reason: operator, or empty
	PersonDeactivated Action = "person.deactivated"
	PersonActivated   Action = "person.activated"
	SealKeyRotated    Action = "seal_key.rotated"
	SSHKeyCreated     Action = "ssh_key.created" // Object, Name: the fingerprint; as in the next one
	SSHKeyDeleted     Action = "ssh_key.deleted"
	ScheduleCreated   Action = "schedule.created" // Object: the schedule, Name; as in the next ones
	ScheduleUpdated   Action = "schedule.updated" // Reason: its status
	ScheduleDeleted   Action = "schedule.deleted"
	ScheduleStarted   Action = "schedule.started" // Reason: the response of the run
	ScheduleStopped   Action = "schedule.stopped" // Reason: why its key may not run it any more
	// Name: the fingerprint of the public key, or who a certificate is for; Address: the client's; Reason: password,
	// publickey, certificate or tunnel
	SSHConnected    Action = "ssh.connected"
	SSHForwarded    Action = "ssh.forwarded"    // Port, Reason: local or remote; as SSHConnected otherwise
	SSHEnded        Action = "ssh.ended"        // Reason, Milliseconds; as SSHConnected otherwise
	SSHRefused      Action = "ssh.refused"      // Address, Reason; Count: failures of the address that it sums up
	ApprovalGiven   Action = "approval.given"   // Object: the response with the answer, Name: the approval request
	ApprovalRefused Action = "approval.refused" // as ApprovalGiven
	// Reason: terminal, command, connection, files or port. Each terminal has an entry; of the others, the first in
	// ten minutes of a key
	ContainerAttached Action = "container.attached"
	FileRead          Action = "file.read" // Object: the file or what else was read; Reason: the route

	RetentionUpdated Action = "retention.updated" // Reason: what a project set
	// Object: the record of the batch, Name: the kind of its objects, Count, Digest: of their ids, Reason: the policy
	RetentionEnded Action = "retention.ended"
	HoldCreated    Action = "hold.created" // Object: the hold, Name: what it holds, Reason; as in the next one
	HoldReleased   Action = "hold.released"
	// Name: the numbers of the first and the last removed entry, Count, Digest: the hash of the last one, Reason: the
	// policy
	Trimmed Action = "audit.trimmed"

	// SegmentStarted is the first entry of each segment. Living lists the containers of
	// which anything was left, so that a writer needs to read only the last segment.
	SegmentStarted Action = "audit.segment"
	// Repaired records that Bytes after the last checkpoint were removed; Name is their
	// SHA-256.
	Repaired Action = "audit.repaired"
)

// An Entry records one action. It holds neither content nor secrets.
type Entry struct {
	Seq       int64             `json:"seq"` // counts from 0 without gaps; set by the Log
	Time      time.Time         `json:"time"`
	Project   berth.ProjectID   `json:"project,omitempty"`
	Key       berth.KeyID       `json:"key,omitempty"`    // the requester's key; empty if the server runs without keys
	Person    string            `json:"person,omitempty"` // who made the request, or answers for the key
	Action    Action            `json:"action"`
	Container berth.ContainerID `json:"container,omitempty"`
	Object    string            `json:"object,omitempty"` // id of another object involved

	Reason       string `json:"reason,omitempty"`
	Template     string `json:"template,omitempty"` // digest
	Isolation    string `json:"isolation,omitempty"`
	Snapshot     string `json:"snapshot,omitempty"` // id of the snapshot that a container started from or left
	Name         string `json:"name,omitempty"`
	Host         string `json:"host,omitempty"`
	Port         int    `json:"port,omitempty"`
	Address      string `json:"address,omitempty"` // the dialled address
	Proxy        string `json:"proxy,omitempty"`   // the proxy through which the host was reached
	Bytes        int64  `json:"bytes,omitempty"`
	Sent         int64  `json:"sent,omitempty"`     // bytes out of the container
	Received     int64  `json:"received,omitempty"` // bytes into it
	Milliseconds int64  `json:"milliseconds,omitempty"`
	Count        int64  `json:"count,omitempty"`
	Digest       string `json:"digest,omitempty"`    // sha256:…
	Refused      int64  `json:"refused,omitempty"`   // part of Count
	Recovered    bool   `json:"recovered,omitempty"` // happened before a crash, recorded after it

	Living map[berth.ContainerID]Life `json:"living,omitempty"`

	Prev Hash `json:"prev"` // hash of the previous entry
	Hash Hash `json:"-"`    // hash of this entry; the last field of its line
}

// A Life is the state of a container that is not erased.
type Life struct {
	Project berth.ProjectID `json:"project,omitempty"`
	Ended   bool            `json:"ended,omitempty"`
}

// maxText bounds each text of an entry, in bytes. Sandboxes control some of them.
const maxText = 512

// clip truncates the texts of an entry to maxText.
func (e *Entry) clip() {
	for _, s := range []*string{&e.Object, &e.Reason, &e.Template, &e.Isolation, &e.Snapshot, &e.Name, &e.Host,
		&e.Address, &e.Person,
		(*string)(&e.Project), (*string)(&e.Key), (*string)(&e.Container)} {
		if len(*s) > maxText {
			*s = (*s)[:maxText]
		}
	}
}
