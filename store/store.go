// Package store defines what a database must do for Berth.
//
// A write is durable against a crash of the process when its method returns. Methods
// are safe for concurrent use and scoped to a project. A few serve the whole server
// and return the project with each row. Rows that do not exist and rows of another
// project are both ErrNotFound. Methods neither retain nor change slices and pointers
// passed in; those returned belong to the caller. Package storetest tests this
// contract.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/berth-run/berth"
)

var (
	// ErrNotFound means that the project has no such row.
	ErrNotFound = berth.ErrNotFound
	// ErrExists means that a row with the id exists.
	ErrExists = errors.New("exists already")
	// ErrConflict means that the write does not follow the stored state: another run
	// wrote first, or another owner holds the lease.
	ErrConflict = errors.New("conflict")
	// ErrClosed means that the store is closed.
	ErrClosed = errors.New("the store is closed")
	// ErrStorage means that the disk has failed or is full.
	ErrStorage = berth.ErrStorage
	// ErrUnavailable means that the database cannot be reached now.
	ErrUnavailable = berth.ErrUnavailable
)

// A Store stores the state of a server.
//
// To add a database:
//  1. implement Store in a package beside sqlite: rows, transactions, and the list of
//     keys to erase. For a database with SQL, implement sql.Driver, which leaves step 2 to package sql;
//  2. seal content and erase keys with package sealed; count usage with
//     ResponseUsage, CreatedUsage and Running; size pages with EventPage and Fit;
//  3. implement Members if several servers can use the database concurrently;
//  4. run storetest.Run, Members, Sealing and Killed from its tests;
//  5. open it in package server.
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

// A Watcher is a Store that several servers share. It wakes those that wait for changes of
// another server.
type Watcher interface {
	// Watch returns a channel that receives after a commit, of any server, that changed
	// the response, container or object with the id, or a child of it. Wake-ups coalesce.
	// The channel also receives without a change: at least once a second, because a
	// notification may be lost. The caller must call stop.
	Watch(id string) (wake <-chan struct{}, stop func())
}

// A Response is a stored response: its object, and the data to resume it after a
// crash.
type Response struct {
	Project   berth.ProjectID
	Body      *berth.Response        // the fold of its events so far
	Request   *berth.ResponseRequest // as decoded, without Input
	Input     []berth.Item           // the request's own input, each with an id
	Container berth.ContainerID      // the container its shell runs in; empty if none
	Key       berth.KeyID            // the API key of its request; empty without keys
	RequestID string                 // the id of its HTTP request, for the log
}

// An Event is a berth.Event as stored and sent.
type Event struct {
	SequenceNumber int64
	Type           berth.EventType
	Data           json.RawMessage // the complete JSON of the berth.Event
}

// A Link is a response of a chain, with the fields that the next one needs.
type Link struct {
	ID        berth.ResponseID
	Input     []berth.Item
	Output    []berth.Item
	Container berth.ContainerID
}

// A ResponseState is the state of a response.
type ResponseState struct {
	Stored bool // it remains after its end
	Final  bool // no events follow
}

// PageBytes is the most bytes in a page of events, unless one event is larger.
const PageBytes = 64 << 10

// Responses stores responses and their events.
//
// Large content is read within the ration.Account of the context, if it has one: the
// store reserves memory there before it reads.
type Responses interface {
	// CreateResponse saves a new response with a lease on its run and its first
	// events, whose sequence numbers start at 0. It returns ErrExists if the id is
	// taken. If Body.Store is false, the previous response need not exist. Objects are
	// saved in the same transaction, under the terms of CreateObjects.
	CreateResponse(ctx context.Context, r *Response, events []Event, lease Lease, also ...*Object) error

	GetResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (*Response, error)

	// DeleteResponse removes content and events of the response. Responses that
	// continue it remain in the chain, which loses its items.
	DeleteResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) error

	// AppendEvents saves events and, if body is not nil, the response folded up to
	// them, in one transaction. It returns ErrConflict unless the first sequence
	// number follows the last stored one and owner holds the run's lease. Concurrent
	// calls share a commit. Objects are saved in the same transaction, except those
	// whose key is taken or whose parent does not exist.
	AppendEvents(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string, events []Event,
		body *berth.Response, also ...*Object) error

	// ResponseState returns the state of a response without reading its content.
	ResponseState(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (ResponseState, error)

	// ListResponses returns stored responses in the order of their ids, which is that of
	// their creation, as Summary returns them. It reads at most MaxRead responses. next
	// is the After of the next page; it is empty if there is none. It returns
	// ErrNotFound if q.After does not exist.
	ListResponses(ctx context.Context, p berth.ProjectID, q ResponseQuery) (list []*Listed,
		next berth.ResponseID, err error)

	// ReadResponse returns the JSON of the Body of GetResponse, in consecutive pieces.
	ReadResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (pieces [][]byte, err error)

	// Events returns events with sequence numbers above after, in order: at most limit
	// and about PageBytes, but at least one if there is one.
	Events(ctx context.Context, p berth.ProjectID, id berth.ResponseID, after int64, limit int) ([]Event, error)

	// Chain returns the response and its ancestors, oldest first. It skips deleted
	// ancestors. It returns ErrNotFound if id is missing or deleted.
	Chain(ctx context.Context, p berth.ProjectID, id berth.ResponseID) ([]Link, error)

	// Items returns items by their ids: of the input of stored responses, of their
	// output once they are final, and of conversations. It skips items that do not
	// exist or were deleted with the first response that had them.
	Items(ctx context.Context, p berth.ProjectID, ids []string) (map[string]berth.Item, error)
}

// A Lease states which server works on a run, and until when.
type Lease struct {
	Owner string // a server's name; empty if the run has no owner
	Until time.Time
}

// A RunRef names a run that a server must resume.
type RunRef struct {
	Project  berth.ProjectID
	Response berth.ResponseID
}

// Runs stores the leases on responses that are not final.
type Runs interface {
	// AcquireRun acquires or renews the lease. It returns ErrConflict if another
	// owner's lease has not ended by now, or if the response is final.
	AcquireRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, lease Lease, now time.Time) error

	// RenewRun renews the lease of its owner, even if it has ended. It returns ErrConflict if the
	// owner does not hold it any more, or if the response is final.
	RenewRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, lease Lease) error

	// ReleaseRun ends the lease if owner holds it.
	ReleaseRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string) error

	// OrphanedRuns returns the responses of all projects whose lease has ended by now
	// and that need a server: those that are not final, and final ones that are not to
	// be stored but have not been deleted.
	OrphanedRuns(ctx context.Context, now time.Time) ([]RunRef, error)

	// ReleaseOwner ends all leases of an owner. A server calls it when it starts.
	ReleaseOwner(ctx context.Context, owner string) error
}

// A Page selects part of a list.
type Page = berth.Page

// Files stores the records of uploaded files. Their bytes are in a bucket.
type Files interface {
	// CreateFile saves a file and the key of its bytes. Deleting the file destroys the
	// key, so an earlier disk image is unreadable.
	CreateFile(ctx context.Context, p berth.ProjectID, f *berth.File, key []byte) error
	// GetFile returns a file and the key of its bytes.
	GetFile(ctx context.Context, p berth.ProjectID, id berth.FileID) (f *berth.File, key []byte, err error)
	// ListFiles returns one page and whether there are more; purpose "" matches any.
	ListFiles(ctx context.Context, p berth.ProjectID, purpose string, page Page) ([]*berth.File, bool, error)
	DeleteFile(ctx context.Context, p berth.ProjectID, id berth.FileID) error
	// FileBytes returns the total size of the project's files.
	FileBytes(ctx context.Context, p berth.ProjectID) (int64, error)
	// ExpiredFiles returns up to limit files of all projects that have expired by now,
	// in order of expiry.
	ExpiredFiles(ctx context.Context, now time.Time, limit int) ([]FileRef, error)
}

// A FileRef names a file.
type FileRef struct {
	Project berth.ProjectID
	File    berth.FileID
}

// A Container is a stored container.
type Container struct {
	Project berth.ProjectID
	Key     berth.KeyID // the API key of its request; empty when read
	Body    *berth.Container
}

// Containers stores containers.
type Containers interface {
	// CreateContainer saves a new container. It returns ErrExists if the id is taken, or if the
	// container has a unique name that a running container of the project has, too.
	// Its objects are saved in the same transaction, under the terms of CreateObjects.
	CreateContainer(ctx context.Context, c *Container, also ...*Object) error
	GetContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*Container, error)
	// ListContainers returns one page and whether there are more; name "" matches any.
	ListContainers(ctx context.Context, p berth.ProjectID, name string, page Page) ([]*Container, bool, error)
	// UpdateContainer reads the container, calls change, and saves the result, in one
	// transaction. If change returns an error, UpdateContainer returns it and saves
	// nothing. change may run while the store is locked, so it must not block.
	UpdateContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID,
		change func(*berth.Container) error) (*Container, error)
	// DeleteContainer removes the container, the rows of its files, and all its
	// objects.
	DeleteContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error
	// CountContainers adds the seconds that running containers have lived since the
	// last count to the usage of this minute. The seconds of a container that ends are
	// counted with its end.
	CountContainers(ctx context.Context) error
	// RunningContainers returns the containers of all projects with status running.
	RunningContainers(ctx context.Context) ([]*Container, error)
}

// ContainerFiles stores the records of files in containers: id, source and size by
// path. Their bytes are in the sandbox.
type ContainerFiles interface {
	// PutContainerFile saves a file. A known path retains its id, created_at and,
	// unless the new source is "user", its source. f is updated to the stored record.
	PutContainerFile(ctx context.Context, p berth.ProjectID, f *berth.ContainerFile) error
	GetContainerFile(ctx context.Context, p berth.ProjectID, c berth.ContainerID,
		id berth.CFileID) (*berth.ContainerFile, error)
	// ContainerFiles returns all files of a container, oldest first.
	ContainerFiles(ctx context.Context, p berth.ProjectID, c berth.ContainerID) ([]*berth.ContainerFile, error)
	DeleteContainerFile(ctx context.Context, p berth.ProjectID, c berth.ContainerID, id berth.CFileID) error
}

// An ObjectKey names an object of a project. The ids of objects that have children are
// assigned by the server and unique in the project.
type ObjectKey struct {
	Kind   Kind
	Parent string // the id of its parent, which is an object or a container; empty for none
	ID     string
}

// An Object is a named JSON document that the store need not understand, for example
// an assistant, a thread, or a message in a thread.
type Object struct {
	ObjectKey
	CreatedAt int64 // Unix seconds
	ExpiresAt int64 // Unix seconds; 0 means never
	Body      json.RawMessage
}

// Objects stores documents in the order of their creation.
type Objects interface {
	// CreateObjects saves all objects or none. It returns ErrExists if a key is taken
	// and ErrNotFound if a parent does not exist.
	CreateObjects(ctx context.Context, p berth.ProjectID, objects ...*Object) error
	GetObject(ctx context.Context, p berth.ProjectID, key ObjectKey) (*Object, error)
	// ListObjects returns one page of a parent's objects of a kind, and whether there
	// are more in the page's direction.
	ListObjects(ctx context.Context, p berth.ProjectID, kind Kind, parent string, page Page) ([]*Object, bool, error)
	// UpdateObject reads the object, calls change, which may alter Body and ExpiresAt,
	// and saves the result, in one transaction. If change returns an error,
	// UpdateObject returns it and saves nothing. change may run more than once, and
	// while the store is locked, so it must not block.
	UpdateObject(ctx context.Context, p berth.ProjectID, key ObjectKey, change func(*Object) error) (*Object, error)
	// DeleteObject removes the object and all its descendants.
	DeleteObject(ctx context.Context, p berth.ProjectID, key ObjectKey) error
	// ExpiredObjects returns up to limit objects of a kind, of all projects, that have
	// expired by now, in order of expiry.
	ExpiredObjects(ctx context.Context, kind Kind, now time.Time, limit int) ([]ObjectRef, error)
}

// An ObjectRef names an object across projects.
type ObjectRef struct {
	Project berth.ProjectID
	ObjectKey
}

// Keys stores the API keys of all projects.
type Keys interface {
	CreateKey(ctx context.Context, k *berth.Key) error
	// KeyByHash returns the key whose secret has this SHA-256.
	KeyByHash(ctx context.Context, hash [32]byte) (*berth.Key, error)
	// KeyOf returns the key of a caller by its id and project.
	KeyOf(ctx context.Context, c berth.Caller) (*berth.Key, error)
	// ListKeys returns all keys, oldest first.
	ListKeys(ctx context.Context) ([]*berth.Key, error)
	DeleteKey(ctx context.Context, id berth.KeyID) error
	// UseKeys saves when keys were used last, in Unix seconds. It skips keys that do not exist or were used later.
	UseKeys(ctx context.Context, used map[berth.KeyID]int64) error
	// KeyLimits returns the limits of a key: none if it does not exist.
	KeyLimits(ctx context.Context, id berth.KeyID) (berth.KeyLimits, error)
	// UpdateKey changes a key and returns it: its name, note, owner, role, scope, limits and expiry.
	UpdateKey(ctx context.Context, id berth.KeyID, change func(*berth.Key) error) (*berth.Key, error)
}

// Projects lists what else a project owns, so that it can be removed.
type Projects interface {
	// ProjectResponses returns up to limit responses that have not been deleted.
	ProjectResponses(ctx context.Context, p berth.ProjectID, limit int) ([]berth.ResponseID, error)
	// ProjectObjects returns the keys of up to limit objects without a parent, of all
	// kinds.
	ProjectObjects(ctx context.Context, p berth.ProjectID, limit int) ([]ObjectKey, error)
	// StoredBytes returns the size of the project's rows: all bodies of responses,
	// objects, containers and files, with an allowance for each row. It excludes the
	// bytes of files.
	StoredBytes(ctx context.Context, p berth.ProjectID) (int64, error)
}
