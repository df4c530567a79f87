// Package store says what a database must do for Berth.
//
// Every write is durable against the death of the process when its method
// returns. Every method is safe for concurrent use and scoped to a project,
// except the few that a keeper of the whole house needs, which return the
// project with each row. What is not there, and what belongs to another
// project, is ErrNotFound alike. Slices and pointers passed in are not kept or
// changed; those returned belong to the caller. The suite in package storetest
// is the contract in executable form.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/berth-run/berth"
)

var (
	// ErrNotFound: no such row in the project.
	ErrNotFound = errors.New("not found")
	// ErrExists: a row with that id is there already.
	ErrExists = errors.New("exists already")
	// ErrConflict: the write does not follow on what is stored, because another
	// run wrote first or the lease is somebody else's.
	ErrConflict = errors.New("conflict")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("the store is closed")
	// ErrStorage: the disk cannot take the write: it is full, or it fails. Nothing of
	// the write was saved.
	ErrStorage = errors.New("the disk cannot take it")
)

// A Store stores the state of a server.
//
// To add a database:
//  1. implement Store in a package beside sqlite, in the database's own language: rows,
//     transactions, and the list of keys that are to be erased;
//  2. seal what rows hold and erase their keys with package sealed; count usage with
//     ResponseUsage, CreatedUsage and Running; size pages with EventPage and Page.Fit;
//  3. run storetest.Run, Sealing and Killed from its tests;
//  4. open it in package server.
type Store interface {
	Responses
	Runs
	Files
	Containers
	ContainerFiles
	Objects
	Keys
	Projects
	Usages
	Close() error
}

// A Response is a response as it is kept: its object, and what is needed to go
// on with it after a crash.
type Response struct {
	Project   berth.ProjectID
	Body      *berth.Response        // the fold of its events so far
	Request   *berth.ResponseRequest // as decoded; Input is left out, see below
	Input     []berth.Item           // the request's own input, each with an id
	Container berth.ContainerID      // the container its shell runs in; empty if none
	Key       berth.KeyID            // with which it was asked for; empty without keys
	RequestID string                 // of the request that asked for it, for the log
}

// An Event is a berth.Event as stored and sent.
type Event struct {
	SequenceNumber int64
	Type           berth.EventType
	Data           json.RawMessage // the complete JSON of the berth.Event
}

// A Link is one response of a chain, as far as the next one needs it.
type Link struct {
	ID        berth.ResponseID
	Input     []berth.Item
	Output    []berth.Item
	Container berth.ContainerID
}

// A ResponseState says how a response is.
type ResponseState struct {
	Stored bool // it is to be stored after its end
	Final  bool // nothing follows
}

// PageBytes is how much a page of events holds, unless one event is larger.
const PageBytes = 64 << 10

// Responses keeps responses and their events.
//
// What may be large is read within the ration.Account that the context carries, if it
// carries one: the store reserves room in it before it reads.
type Responses interface {
	// CreateResponse saves a new response with its first events (which start at
	// sequence number 0) and a lease on its run. ErrExists if the id is taken. The
	// previous response of one that is not to be kept (Body.Store) need not exist.
	// Objects are saved in the same transaction, on the terms of CreateObjects.
	CreateResponse(ctx context.Context, r *Response, events []Event, lease Lease, also ...*Object) error

	GetResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (*Response, error)

	// DeleteResponse removes content and events of the response. Responses that
	// continue it keep their place in the chain and lose its items.
	DeleteResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) error

	// AppendEvents saves events and, when body is not nil, the response folded up
	// to them, in one transaction. ErrConflict unless the first sequence number
	// follows the last one stored and owner holds the run's lease. Concurrent
	// calls share a commit. Objects that come of the events are saved in the same
	// transaction, except those whose key is taken or whose parent is gone.
	AppendEvents(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string, events []Event, body *berth.Response, also ...*Object) error

	// ResponseState returns what is known of a response without reading it.
	ResponseState(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (ResponseState, error)

	// ReadResponse returns the JSON of the Body of GetResponse, in pieces that follow
	// each other.
	ReadResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (pieces [][]byte, err error)

	// Events returns up to limit events with sequence numbers above after, in order:
	// those that have about PageBytes together, but at least one if there is one.
	Events(ctx context.Context, p berth.ProjectID, id berth.ResponseID, after int64, limit int) ([]Event, error)

	// Chain returns the response and its ancestors, the oldest first. Deleted
	// ancestors are left out; ErrNotFound if id itself is missing or deleted.
	Chain(ctx context.Context, p berth.ProjectID, id berth.ResponseID) ([]Link, error)

	// Items returns items by their ids: of the input of responses that are to be
	// stored, of their output once they are final, and of conversations. One that
	// is not there, or went with the response that had it first, is left out.
	Items(ctx context.Context, p berth.ProjectID, ids []string) (map[string]berth.Item, error)
}

// A Lease says who works on a run, until when.
type Lease struct {
	Owner string // a server's name; empty when nobody does
	Until time.Time
}

// A RunRef names a run that somebody must take up.
type RunRef struct {
	Project  berth.ProjectID
	Response berth.ResponseID
}

// Runs keeps the leases on responses that are not final.
type Runs interface {
	// AcquireRun takes or renews the lease. ErrConflict while another owner's
	// lease lasts (by now), or if the response is final.
	AcquireRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, lease Lease, now time.Time) error

	// ReleaseRun gives the lease up if owner holds it.
	ReleaseRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string) error

	// OrphanedRuns returns the responses of all projects whose lease has ended by
	// now and that need a server: those that are not final, and those that are not
	// to be stored and have not been deleted.
	OrphanedRuns(ctx context.Context, now time.Time) ([]RunRef, error)

	// ReleaseOwner ends all leases of one owner, who says that it has just started.
	ReleaseOwner(ctx context.Context, owner string) error
}

// A Page asks for part of a list, newest first unless Ascending. After is the
// id of the last row already seen; an unknown one is ErrNotFound.
type Page struct {
	Limit     int // 1…10,000
	After     string
	Before    string // Objects only: the rows that come right before this one
	Bytes     int64  // Objects only: the page ends before the object with which it would have more, but has one; 0 is no limit
	Ascending bool
}

// Files keeps the objects of uploaded files; their bytes are in a bucket.
type Files interface {
	// CreateFile saves a file and the key of its bytes. Deleting the file destroys the
	// key, so an earlier disk image is unreadable.
	CreateFile(ctx context.Context, p berth.ProjectID, f *berth.File, key []byte) error
	FileKey(ctx context.Context, p berth.ProjectID, id berth.FileID) ([]byte, error)
	GetFile(ctx context.Context, p berth.ProjectID, id berth.FileID) (*berth.File, error)
	// ListFiles returns one page and whether there is more; purpose "" is any.
	ListFiles(ctx context.Context, p berth.ProjectID, purpose string, page Page) ([]*berth.File, bool, error)
	DeleteFile(ctx context.Context, p berth.ProjectID, id berth.FileID) error
	// FileBytes returns the sum of the project's files.
	FileBytes(ctx context.Context, p berth.ProjectID) (int64, error)
	// ExpiredFiles returns up to limit files, of all projects, that have expired by
	// now, those that expired first before the others.
	ExpiredFiles(ctx context.Context, now time.Time, limit int) ([]FileRef, error)
}

// A FileRef names a file.
type FileRef struct {
	Project berth.ProjectID
	File    berth.FileID
}

// A Container is a container as it is kept.
type Container struct {
	Project berth.ProjectID
	Key     berth.KeyID // with which it was asked for; not read back
	Body    *berth.Container
}

// Containers keeps containers.
type Containers interface {
	// CreateContainer saves a new container. ErrExists if the id is taken. Objects that
	// belong to it are saved in the same transaction, on the terms of CreateObjects.
	CreateContainer(ctx context.Context, c *Container, also ...*Object) error
	GetContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*Container, error)
	// ListContainers returns one page and whether there is more; name "" is any.
	ListContainers(ctx context.Context, p berth.ProjectID, name string, page Page) ([]*Container, bool, error)
	// UpdateContainer reads the container, lets change alter it, and saves it, as
	// one transaction. An error from change is returned and nothing is saved.
	// change may be called only while the store is locked: it must not block.
	UpdateContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID, change func(*berth.Container) error) (*Container, error)
	// DeleteContainer removes the container, the rows of its files, and all objects
	// that belong to it.
	DeleteContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error
	// CountContainers adds to what was used the seconds that running containers
	// have lived since they were last counted, to that minute. Those of a container
	// that ends are counted with its end.
	CountContainers(ctx context.Context) error
	// RunningContainers returns the containers of all projects whose status is running.
	RunningContainers(ctx context.Context) ([]*Container, error)
}

// ContainerFiles keeps what is known of files in containers: which id a path
// has and who made it. Bytes are in the sandbox.
type ContainerFiles interface {
	// PutContainerFile saves a file. A path that is known keeps its id,
	// created_at and, unless the new source is "user", its source; f is updated
	// to what is stored.
	PutContainerFile(ctx context.Context, p berth.ProjectID, f *berth.ContainerFile) error
	GetContainerFile(ctx context.Context, p berth.ProjectID, c berth.ContainerID, id berth.CFileID) (*berth.ContainerFile, error)
	// ContainerFiles returns all files of a container, the oldest first.
	ContainerFiles(ctx context.Context, p berth.ProjectID, c berth.ContainerID) ([]*berth.ContainerFile, error)
	DeleteContainerFile(ctx context.Context, p berth.ProjectID, c berth.ContainerID, id berth.CFileID) error
}

// An ObjectKey names an object of a project. Ids of objects that others belong to
// are the server's own, unique in the project.
type ObjectKey struct {
	Kind   Kind
	Parent string // the id of the object, of any kind, or the container that it belongs to; empty if none
	ID     string
}

// An Object is a JSON document with a name: an assistant, a thread, a message in
// a thread. What the store need not understand is kept as one.
type Object struct {
	ObjectKey
	CreatedAt int64 // Unix seconds
	ExpiresAt int64 // Unix seconds; 0 is never
	Body      json.RawMessage
}

// Objects keeps documents in the order in which they were created.
type Objects interface {
	// CreateObjects saves all objects or none. ErrExists if a key is taken,
	// ErrNotFound if a parent is not there.
	CreateObjects(ctx context.Context, p berth.ProjectID, objects ...*Object) error
	GetObject(ctx context.Context, p berth.ProjectID, key ObjectKey) (*Object, error)
	// ListObjects returns one page of the objects of a kind that belong to parent,
	// and whether there is more in the page's direction.
	ListObjects(ctx context.Context, p berth.ProjectID, kind Kind, parent string, page Page) ([]*Object, bool, error)
	// UpdateObject reads the object, lets change alter its body and its time of
	// expiry, and saves it, as one transaction. An error from change is returned
	// and nothing is saved. change may be called more than once, and only while the
	// store is locked: it must not block.
	UpdateObject(ctx context.Context, p berth.ProjectID, key ObjectKey, change func(*Object) error) (*Object, error)
	// DeleteObject removes the object and all that belongs to it, however far down.
	DeleteObject(ctx context.Context, p berth.ProjectID, key ObjectKey) error
	// ExpiredObjects returns up to limit objects of a kind, of all projects, that
	// have expired by now, those that expired first before the others.
	ExpiredObjects(ctx context.Context, kind Kind, now time.Time, limit int) ([]ObjectRef, error)
}

// An ObjectRef names an object across projects.
type ObjectRef struct {
	Project berth.ProjectID
	ObjectKey
}

// Keys keeps API keys, across projects.
type Keys interface {
	CreateKey(ctx context.Context, k *berth.Key) error
	// KeyByHash returns the key whose secret has this SHA-256.
	KeyByHash(ctx context.Context, hash [32]byte) (*berth.Key, error)
	// ListKeys returns all keys, the oldest first.
	ListKeys(ctx context.Context) ([]*berth.Key, error)
	DeleteKey(ctx context.Context, id berth.KeyID) error
}

// Projects tells what a project has that nothing else lists, so that it can be removed.
type Projects interface {
	// ProjectResponses returns up to limit responses that have not been deleted.
	ProjectResponses(ctx context.Context, p berth.ProjectID, limit int) ([]berth.ResponseID, error)
	// ProjectObjects returns the keys of up to limit objects, of all kinds, that belong
	// to no other.
	ProjectObjects(ctx context.Context, p berth.ProjectID, limit int) ([]ObjectKey, error)
	// StoredBytes returns how much the store keeps for the project: all bodies of
	// responses, objects, containers and files, with something for each row. The
	// content of files is not in it.
	StoredBytes(ctx context.Context, p berth.ProjectID) (int64, error)
}
