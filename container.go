package berth

// A Container is the durable object behind a sandbox: name, limits, files and
// expiry. It outlives its current sandbox.
type Container struct {
	ID            ContainerID     `json:"id"`
	Object        string          `json:"object"` // "container"
	CreatedAt     int64           `json:"created_at"`
	Status        ContainerStatus `json:"status"`
	ExpiresAfter  ExpiresAfter    `json:"expires_after"`
	LastActiveAt  int64           `json:"last_active_at"`
	MemoryLimit   string          `json:"memory_limit"` // 1g, 4g, 16g or 64g
	Name          string          `json:"name"`
	NetworkPolicy NetworkPolicy   `json:"network_policy"`
	Berth         ContainerBerth  `json:"berth"`
}

// ContainerBerth extends OpenAI's container object.
type ContainerBerth struct {
	Isolation string `json:"isolation"`          // gvisor, microvm, docker, kubernetes or none
	Template  string `json:"template"`           // digest of its template
	Starting  bool   `json:"starting,omitempty"` // the first use waits until the start is complete
	Server    string `json:"server,omitempty"`   // the member of the cluster that runs it, if there is one
	Moves     int64  `json:"moves,omitempty"`    // how often another member took it over
	Reason    string `json:"reason,omitempty"`   // why it ended: expired, deleted, oom, killed, host, disk or evicted

	// no other running container of the project with this field has the name
	UniqueName   bool        `json:"unique_name,omitempty"`
	Paused       bool        `json:"paused,omitempty"`        // by a client, until its next use
	Asleep       bool        `json:"asleep,omitempty"`        // paused because it was quiet, until its next use
	KeepAwake    bool        `json:"keep_awake,omitempty"`    // it does not sleep
	FromSnapshot SnapshotID  `json:"from_snapshot,omitempty"` // the snapshot it was created from
	ForkedFrom   ContainerID `json:"forked_from,omitempty"`   // the container it was copied from
	OnExpiry     OnExpiry    `json:"on_expiry,omitempty"`     // empty means delete
	LastSnapshot SnapshotID  `json:"last_snapshot,omitempty"` // the snapshot taken when it expired

	EndUser EndUserID `json:"end_user,omitempty"` // for whom it was created

	Start *ContainerStart `json:"start,omitempty"` // nil until it has started

	Network *GroupNetwork    `json:"network,omitempty"` // its place on a private network; nil for none
	Volumes []VolumeMount    `json:"volumes,omitempty"` // mounted volumes
	Skills  []ContainerSkill `json:"skills,omitempty"`
}

// A GroupNetwork is a container's place on the private network of a group: containers of one project that reach each
// other by name.
type GroupNetwork struct {
	Group string `json:"group"`           // its containers see each other
	Name  string `json:"name,omitempty"`  // by which the others reach it; empty: they do not
	Ports []int  `json:"ports,omitempty"` // at which it is reached by sandboxes without a route, such as Pods
}

// A ContainerStart tells how a container started and how long that took.
type ContainerStart struct {
	How           string `json:"how"`             // cold, pool, or memory: from a snapshot with memory
	RequestedAtMS int64  `json:"requested_at_ms"` // Unix milliseconds
	DurationMS    int64  `json:"duration_ms"`
}

// An OnExpiry selects what happens to the files of a container that expires.
type OnExpiry string

const (
	OnExpiryDelete   OnExpiry = "delete"   // delete them
	OnExpirySnapshot OnExpiry = "snapshot" // store them as a snapshot
)

// An OnLost selects how a chain continues if its container has OnExpirySnapshot and
// there is no snapshot: the container ended without one, or it was deleted.
type OnLost string

const (
	OnLostFail OnLost = "fail" // refuse the next request with container_expired
	OnLostNew  OnLost = "new"  // continue in a new container
)

// ContainerSource is the field "berth" of POST /v1/containers and of a shell's
// container_auto. OpenAI's requests have no such field.
type ContainerSource struct {
	Template   string     `json:"template,omitempty"`    // name or digest of the template; excludes snapshot_id
	SnapshotID SnapshotID `json:"snapshot_id,omitempty"` // the snapshot to start from
	OnExpiry   OnExpiry   `json:"on_expiry,omitempty"`   // of its files: delete, the default, or snapshot
	OnLost     OnLost     `json:"on_lost,omitempty"`     // of a container_auto that continues a chain: fail or new
	KeepAwake  bool       `json:"keep_awake,omitempty"`  // do not pause the container when it is quiet

	Network *GroupNetwork `json:"network,omitempty"` // the group that it joins; its name defaults to the container's
	Volumes []VolumeMount `json:"volumes,omitempty"`
}

// A ContainerExtension is the field "berth" of POST /v1/containers.
type ContainerExtension struct {
	ContainerSource
	// refuse the request if the name is taken by a container with a unique name
	UniqueName bool              `json:"unique_name,omitempty"`
	Env        map[string]string `json:"env,omitempty"`  // environment variables of all commands
	User       string            `json:"user,omitempty"` // name of the end user for whom the container is
}

// A ContainerStatus is the state of a container. The object of an expired container
// remains, with a reason, until it is deleted. Its disk is gone.
type ContainerStatus string

const (
	ContainerRunning ContainerStatus = "running"
	ContainerExpired ContainerStatus = "expired"
	ContainerDeleted ContainerStatus = "deleted"
)

// ExpiresAfter is the idle time after which a container expires.
type ExpiresAfter struct {
	Anchor  string `json:"anchor"` // "last_active_at"
	Minutes int    `json:"minutes"`
}

// A NetworkPolicy selects the hosts that a container may reach. Its type is "disabled"
// (no host, the default), "allowlist", or Berth's own "open" (any public name). "open" may deny
// addresses; its allowed domains are exceptions from these.
//
// An allowed domain is a name or "*.name" for its subdomains, optionally with ":port".
// Without a port, ports 80 and 443 are allowed.
type NetworkPolicy struct {
	Type           string   `json:"type"`
	AllowedDomains []string `json:"allowed_domains,omitempty"`
	// AllowedRequests restrict the requests to hosts of AllowedDomains that they name, such as
	// "GET api.example.com/repos/**"; of "allowlist" only.
	AllowedRequests []string `json:"allowed_requests,omitempty"`
	Denied          []string `json:"denied_addresses,omitempty"` // such as "198.51.100.0/24"; of "open" only
	// in requests only; never stored or shown with the policy
	DomainSecrets []DomainSecret `json:"domain_secrets,omitempty"`

	// Proxy is a client's own proxy for all connections of the container. It is sealed in the store, and never shown
	// with the policy.
	Proxy *EgressProxy `json:"-"`
}

// An EgressProxy is a SOCKS5 proxy of a client.
type EgressProxy struct {
	Address            string // host:port
	Username, Password string // may be empty
	TLS                bool   // of the connection to the proxy
	ServerName         string // that its certificate has; default: the host of Address
	CA                 string // PEM; verifies its certificate. Default: the authorities of the server's machine
}

// A DomainSecret is a value that a container may send to a domain but never sees.
// The environment variable Name holds a placeholder for it.
type DomainSecret struct {
	Type   string `json:"type,omitempty"` // a DomainSecret… constant
	Domain string `json:"domain"`
	Name   string `json:"name"`
	Value  string `json:"value"`

	// Of aws_sigv4. Value is the secret access key.
	AccessKeyID  string   `json:"access_key_id,omitempty"`
	SessionToken string   `json:"session_token,omitempty"`
	Regions      []string `json:"regions,omitempty"`  // for which requests are signed
	Services     []string `json:"services,omitempty"` // such as "s3"

	// Of oauth2_client_credentials. Value is the client's secret.
	ClientID string   `json:"client_id,omitempty"`
	TokenURL string   `json:"token_url,omitempty"`
	Scopes   []string `json:"scopes,omitempty"`
	Audience string   `json:"audience,omitempty"`

	// Of github_app. Value is the App's private key in PEM.
	AppID          string            `json:"app_id,omitempty"`
	InstallationID string            `json:"installation_id,omitempty"`
	Repositories   []string          `json:"repositories,omitempty"` // names; empty: all of the installation
	Permissions    map[string]string `json:"permissions,omitempty"`  // such as "contents": "read"; empty: all
	APIURL         string            `json:"api_url,omitempty"`      // default: https://api.github.com
}

// Types of a DomainSecret.
const (
	DomainSecretValue  = "value" // the default: the value replaces the placeholder
	DomainSecretAWS    = "aws_sigv4"
	DomainSecretOAuth  = "oauth2_client_credentials"
	DomainSecretGitHub = "github_app"
)

// A ContainerFile is a file in a container's working directory.
type ContainerFile struct {
	ID          CFileID     `json:"id"`
	Object      string      `json:"object"` // "container.file"
	ContainerID ContainerID `json:"container_id"`
	CreatedAt   int64       `json:"created_at"`
	Bytes       int64       `json:"bytes"`
	Path        string      `json:"path"`   // absolute, under /mnt/data
	Source      string      `json:"source"` // "user" for uploads, "assistant" for files created by commands
}

// A ContainerFileEvent is a change to a file in a container.
type ContainerFileEvent struct {
	Type ContainerFileEventType `json:"type"`
	File *ContainerFile         `json:"file"` // its state after the change; before it, if deleted
}

// A ContainerFileEventType is the "type" of a ContainerFileEvent.
type ContainerFileEventType string

const (
	ContainerFileCreated ContainerFileEventType = "container.file.created"
	ContainerFileUpdated ContainerFileEventType = "container.file.updated"
	ContainerFileDeleted ContainerFileEventType = "container.file.deleted"
)

// A ContainerFileCitation is an annotation of output text that mentions a file of a
// container. The indexes count characters of the text; the end is exclusive.
type ContainerFileCitation struct {
	Type        string      `json:"type"` // "container_file_citation"
	ContainerID ContainerID `json:"container_id"`
	FileID      CFileID     `json:"file_id"`
	Filename    string      `json:"filename"`
	StartIndex  int         `json:"start_index"`
	EndIndex    int         `json:"end_index"`
}

// WorkDir is where commands start and files are exchanged, as in the hosted containers.
const WorkDir = "/mnt/data"

// MemoryLimits are the tiers of a container's memory, in bytes.
var MemoryLimits = map[string]int64{"1g": 1 << 30, "4g": 4 << 30, "16g": 16 << 30, "64g": 64 << 30}
